"""Attention back ends that a release takes under an older name: judged as what they become."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from validators.rules import argument_resolution, attention_backends, places, start_up_checks
from validators.rules.context import Context
from validators.rules.interface import SEVERITY, Gate, Outcome, Part, Step, Value

SUBJECT = "Older names of attention back ends"
FLAGS = (
    *("attention-backend", "prefill-attention-backend", "decode-attention-backend"),
    "speculative-draft-attention-backend",
)
SITES: tuple[str, ...] = ()
_RULES = (argument_resolution.judge, attention_backends.judge, start_up_checks.judge)
# of tokenspeed_mla, by the same lines: prefill gets another back end, and the cache becomes FP8
_PREFILL = {"cutedsl_mla": "trtllm_mla"}
_CACHE, _FP8 = "kv-cache-dtype", "fp8_e4m3"


def judge(c: Context) -> Iterator[Part]:
    renamed = {flag: new for flag in FLAGS if (new := _new(c, flag)) is not None}
    if not renamed:
        return
    args: dict[str, Value] = {**c.args, **renamed}
    cached = any(c.args.get(flag) == "tokenspeed_mla" for flag in ("attention-backend", "decode-attention-backend"))
    if cached and c.args.get(_CACHE) != _FP8:
        args[_CACHE] = _FP8
    meant = Context(c.case, c.release, args, c.sm_text)
    parts = [part for rule in _RULES for part in rule(meant)]
    for flag, new in renamed.items():
        yield _renamed(c, flag, new, [part for part in parts if part.flag == flag], cached)
    if cached and c.given(_CACHE) and c.args[_CACHE] != _FP8:
        proof = places.place(c, "alias.tokenspeed_mla") or places.declared(c, _CACHE)
        reason = f"{c.release.version} sets --{_CACHE} to {_FP8} because tokenspeed_mla is asked for."
        step = Step(Gate.RESOLUTION, False, reason, proof)
        instead: tuple[dict[str, Value], ...] = ({_CACHE: _FP8},)
        yield Part(_CACHE, Outcome.ALTERED, reason, (proof,), (step,), becomes=_FP8, instead=instead)


def _new(c: Context, flag: str) -> str | None:
    value = c.args.get(flag)
    new = places.value(c, f"alias.{value}") if isinstance(value, str) and c.has(flag) else ""
    if not new:
        return None
    return _PREFILL.get(new, new) if flag == "prefill-attention-backend" else new


def _renamed(c: Context, flag: str, new: str, parts: list[Part], cached: bool) -> Part:
    old = c.args[flag]
    proof = places.place(c, f"alias.{old}") or places.declared(c, flag)
    also = f", and --{_CACHE} becomes {_FP8}" if cached and flag != "prefill-attention-backend" else ""
    reason = f"{c.release.version} takes {old} for an older name of {new}{also}."
    step = Step(Gate.RESOLUTION, True, reason, proof)
    worst = min(parts, key=lambda part: SEVERITY.index(part.outcome), default=None)
    if worst is not None and worst.outcome is not Outcome.ACTIVE:
        return replace(worst, reason=f"{reason} {worst.reason}", steps=(step, *worst.steps))
    instead: tuple[dict[str, Value], ...] = ({flag: new},)
    expects = worst.expects if worst else ()
    steps = (step, *(worst.steps if worst else ()))
    return Part(flag, Outcome.ALTERED, reason, (proof,), steps, expects, becomes=new, instead=instead)
