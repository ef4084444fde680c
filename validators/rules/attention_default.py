"""The attention back end that a release picks by itself and then stops on."""

from __future__ import annotations

from collections.abc import Iterator

from validators.rules import argument_resolution, hybrid_attention, start_up_checks
from validators.rules.context import Context, answered_once
from validators.rules.interface import Gate, Outcome, Part, Step
from validators.rules.package_minimums import PLAIN

SUBJECT = "Attention back ends that a release picks by itself and stops on"
FLAGS: tuple[str, ...] = ()
SITES: tuple[str, ...] = ()
ALWAYS = True
FLAG = "attention-backend"
_ANYWHERE = "triton"
# what the choice depends on besides the SM and the kind of model
_OTHERS = (
    "speculative",
    "enable-deterministic",
    "prefill-attention",
    "decode-attention",
    "page-size",
    "device",
    "dllm",
)


@answered_once
def judge(c: Context) -> Iterator[Part]:
    if c.given(FLAG) or any(name.startswith(_OTHERS) for name in c.args):
        return
    tables = c.release.gates.get("tables") or {}
    row = tables.get("attention.default.mha") if isinstance(tables, dict) else None
    picked = row["by_sm"].get(c.sm_text) if row else None
    if not isinstance(picked, str) or not c.choice(FLAG, _ANYWHERE):
        return
    found = _stopped(c, picked) if c.arch in PLAIN else _hybrid(c, picked)
    if found is not None:
        yield found


def _hybrid(c: Context, picked: str) -> Part | None:
    """Models with linear attention have a choice of their own in some releases, which was not followed."""
    alone = Context(c.case, c.release, {**c.args, FLAG: picked}, c.sm_text)
    stop = hybrid_attention.part(alone, FLAG, picked, ())
    if stop is None or stop.outcome is not Outcome.FAILS:
        return None
    reason = (
        f"{c.release.version} picks {picked} by itself on SM {c.sm_text} for other models, and for {c.arch} it stops at"
        f" that. Whether it picks another one for {c.arch} is not known."
    )
    return Part(
        FLAG,
        Outcome.UNKNOWN,
        reason,
        stop.evidence,
        (Step(Gate.MODEL, None, reason, stop.evidence[0]),),
        automatic=True,
        value=picked,
        todo=f"Write {FLAG}: {_ANYWHERE}.",
    )


def _stopped(c: Context, picked: str) -> Part | None:
    """What stops the release's own choice, asked of the choice alone."""
    alone = Context(c.case, c.release, {FLAG: picked}, c.sm_text)
    parts = (*argument_resolution.judge(alone), *start_up_checks.judge(alone))
    stop = next((part for part in parts if part.flag == FLAG and part.outcome is Outcome.FAILS), None)
    if stop is None:
        return None
    reason = f"{c.release.version} picks {picked} by itself on SM {c.sm_text}, and then refuses it. {stop.reason}"
    step = Step(Gate.RESOLUTION, False, reason, stop.evidence[0])
    return Part(
        FLAG,
        Outcome.FAILS,
        reason,
        stop.evidence,
        (step,),
        off={FLAG: _ANYWHERE},
        automatic=True,
        value=picked,
        todo=f"Write {FLAG}: {_ANYWHERE}.",
    )
