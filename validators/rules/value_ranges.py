"""Numbers that no GPU can make good: an empty set of ranks, a port that is none, more memory than there is."""

from __future__ import annotations

import re
from collections.abc import Iterator

from validators.rules import places, resolved
from validators.rules.context import Context
from validators.rules.interface import Evidence, Gate, Outcome, Part, Step

SUBJECT = "Numbers that no release can take: sizes, ranks, ports, memory"
_SIZES = ("tp-size", "pp-size", "dp-size", "nnodes")
# less than one means nothing here; what a release makes of it differs
_COUNTS = (
    *("ep-size", "page-size", "stream-interval", "max-running-requests", "max-total-tokens", "context-length"),
    *("tokenizer-worker-num", "attn-cp-size", "moe-dp-size", "attn-dp-size"),
)
FLAGS = (*_SIZES, "node-rank", "port", "mem-fraction-static", "enable-dp-attention", *_COUNTS)
SITES: tuple[str, ...] = ()
WITHOUT_GPU = True
_EVEN = re.compile(r"tp_size % \w+\.(attn_)?dp_size == 0$")
_ADJUSTED = 1.25  # releases lower the fraction by up to a tenth or so for models with images


def judge(c: Context) -> Iterator[Part]:
    for flag in _SIZES:
        if _below(c, flag, 1):
            yield _size(c, flag)
    yield from _node_rank(c)
    yield from _port(c)
    yield from _memory(c)
    yield from _groups(c)
    for flag in _COUNTS:
        if _below(c, flag, 1) and not (flag == "max-total-tokens" and c.args[flag] == -1):
            what = f"What {c.release.version} makes of a {flag} of {c.args[flag]}"
            yield _unsure(c, flag, what, f"Write a number of at least 1 for {flag}, or leave it out.")


def _number(c: Context, flag: str) -> int | float | None:
    value = c.args.get(flag)
    return value if isinstance(value, int | float) and not isinstance(value, bool) and c.has(flag) else None


def _below(c: Context, flag: str, least: int) -> bool:
    value = _number(c, flag)
    return value is not None and value < least


def _size(c: Context, flag: str) -> Part:
    value = c.args[flag]
    if flag == "nnodes" and value != 0:
        return _unsure(c, flag, f"What {c.release.version} makes of {value} nodes", "Write at least 1 for nnodes.")
    name = {"tp-size": "ranks.tp", "pp-size": "ranks.pp", "dp-size": "replicas", "nnodes": "ranks.pp"}[flag]
    where = places.place(c, name)
    if flag == "dp-size" and where is None:
        return _unsure(c, flag, f"What {c.release.version} makes of {value} replicas", "Write at least 1 for dp-size.")
    what = {
        "tp-size": "no rank is started, and the launcher waits for the first one",
        "pp-size": "the ranks of a node are counted by dividing by it, and as many processes as it says must meet",
        "dp-size": "the controller of the replicas starts none and asks the first one for its size",
        "nnodes": "the ranks of a node are counted by dividing by it",
    }[flag]
    reason = f"{c.release.version} cannot start with a {flag} of {value}: {what}."
    return _fails(c, flag, reason, where, f"Write at least 1 for {flag}.")


def _node_rank(c: Context) -> Iterator[Part]:
    rank = _number(c, "node-rank")
    if rank is None or any(name.startswith(("ep-join", "elastic-ep")) for name in c.args):
        return  # a node that joins later has a number of its own
    if rank < 0 or rank >= c.nnodes:
        last = c.nnodes - 1
        reason = f"{c.nnodes} nodes are numbered 0 to {last}; the ranks of node {rank} are beyond the last one."
        yield _fails(c, "node-rank", reason, places.place(c, "ranks.pp"), f"Write 0 to {c.nnodes - 1} for node-rank.")


def _port(c: Context) -> Iterator[Part]:
    port = _number(c, "port")
    if port is not None and not 0 <= port <= 65535:
        reason = f"{port} is no port: the server cannot listen there, and ends when the model is loaded."
        yield _fails(c, "port", reason, places.place(c, "serve"), "Write a port of 1 to 65535.")


def _memory(c: Context) -> Iterator[Part]:
    flag = "mem-fraction-static"
    share = _number(c, flag)
    if share is None:
        return
    where, todo = places.place(c, "fraction"), f"Write a {flag} above 0 and below 1, or leave it out."
    if share <= 0:
        reason = f"With a {flag} of {share} no memory is left for the cache: the start ends for want of it."
        yield _fails(c, flag, reason, where, todo)
    elif share >= _ADJUSTED and not c.given("max-total-tokens"):
        reason = (
            f"A {flag} of {share} asks for a cache that is larger than the free memory: the start ends for want of it."
        )
        yield _fails(c, flag, reason, where, todo)
    elif share >= 1:
        yield _unsure(c, flag, f"Whether {c.release.version} starts with a {flag} of {share}", todo)


def _groups(c: Context) -> Iterator[Part]:
    """Ranks that are to be divided into groups of one size."""
    if (
        c.args.get("enable-dp-attention") is True
        and not c.given("attn-dp-size")
        and c.dp > 1
        and c.tp > 0
        and c.tp % c.dp
    ):
        flag = "dp-size" if c.given("dp-size") else "enable-dp-attention"
        reason = (
            f"DP attention divides the {c.tp} tensor-parallel ranks into {c.dp} groups, which does not come out even."
        )
        yield _fails(c, flag, reason, _divides(c), f"Choose a dp-size that divides {c.tp}.")
    if c.given("ep-size") and c.ep > 0 and c.tp > 0 and c.tp % c.ep:
        what = f"Whether {c.release.version} can divide {c.tp} tensor-parallel ranks by an ep-size of {c.ep}"
        yield _unsure(c, "ep-size", what, f"Choose an ep-size that divides {c.tp}.")


def _divides(c: Context) -> Evidence | None:
    stops = (stop for found in resolved.table(c.release).stops.values() for stop in found)
    near = [stop.proof for stop in stops if _EVEN.search(stop.proof.condition)]
    return min(near, key=lambda proof: (proof.file, proof.line), default=None)


def _fails(c: Context, flag: str, reason: str, where: Evidence | None, todo: str) -> Part:
    proof = where or places.declared(c, flag)
    step = Step(Gate.RESOLUTION, False, reason, proof)
    return Part(flag, Outcome.FAILS, reason, (proof,), (step,), todo=todo, final=True)


def _unsure(c: Context, flag: str, what: str, todo: str) -> Part:
    proof = places.declared(c, flag)
    reason = f"{what} is not known."
    return Part(flag, Outcome.UNKNOWN, reason, (proof,), (Step(Gate.RESOLUTION, None, reason, proof),), todo=todo)
