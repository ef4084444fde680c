"""FlashInfer all-reduce fusion in all its spellings: flag, back end, what the engine turns on, off switch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from validators.rules.context import Context, place
from validators.rules.fusion_gates import BACKEND, OFF, ON, Effect, through_the_gates
from validators.rules.interface import Evidence, Expectation, Gate, Outcome, Part, Step, Value

SUBJECT = "FlashInfer all-reduce fusion: flag, back end, automatic enabling, off switch"
FLAGS = (ON, BACKEND, OFF)
SITES = (
    "fusion.attention",
    "fusion.next-layer",
    "fusion.next-layer.archs",
    "fusion.preinit",
    "fusion.preflight",
    "fusion.off",
    "fusion.deterministic",
)
ALWAYS = True
KERNEL = "allreduce_fusion_kernel"


def judge(c: Context) -> Iterator[Part]:
    if not (c.has(ON) or c.has(BACKEND)):
        return
    on = c.args.get(ON) is True
    backend = c.args.get(BACKEND)
    off = c.args.get(OFF) is True
    unasked, unsure = _automatic(c)
    asked = str(backend) if backend else "auto"
    if off:
        yield _off(c)
    if not (on or backend):
        if unasked and not off:
            yield from _unasked(c, unasked)
        elif unsure and not off and c.tp > 1:
            yield _perhaps(c, unsure)
        return
    effect = _forced_off(c) if off else through_the_gates(c, asked)
    part = _part(c, effect, BACKEND if backend else ON, unasked)
    yield part
    if on and backend:
        reason = f"--{BACKEND} {backend} is given too, and decides."
        yield replace(part, flag=ON, reason=f"{part.reason} {reason}")


def _part(c: Context, effect: Effect, flag: str, unasked: dict[str, Value] | None) -> Part:
    """The part of a flag that was given; what leaving it out would do decides what may stand in for it."""
    known = _known(effect)
    instead: tuple[dict[str, Value], ...] = ()
    if effect.outcome is Outcome.FAILS:
        if not unasked:
            instead = ({},)  # left out, nothing turns it on
        elif c.has(OFF):
            instead = ({OFF: True},)
    redundant = bool(unasked) and effect.outcome is Outcome.ACTIVE
    reason = effect.reason
    if redundant:
        reason += " The engine turns it on by itself here, so leaving it out changes nothing."
    return Part(
        flag=flag,
        outcome=effect.outcome,
        reason=reason,
        evidence=known,
        steps=effect.steps,
        expects=_expects(c, effect),
        becomes=effect.becomes,
        instead=instead,
        redundant=redundant,
    )


def _known(effect: Effect) -> tuple[Evidence, ...]:
    """Evidence of the gate that decided first, then of those before it."""
    decisive = [s.evidence for s in effect.steps if s.evidence and s.passed is not True]
    passed = [s.evidence for s in effect.steps if s.evidence and s.passed is True]
    return tuple(dict.fromkeys([*decisive, *passed]))


def _unasked(c: Context, row: dict[str, Value]) -> Iterator[Part]:
    backend = str(row["value"]) if row["value"] not in ("True", "backend") else "auto"
    effect = through_the_gates(c, backend)
    if effect.outcome is Outcome.INERT:
        return  # on, without effect, and nobody asked for it
    flag = BACKEND if c.has(BACKEND) else ON
    proof = place(c.release, row)
    step = Step(Gate.RESOLUTION, True, f"{c.release.version} turns the fusion on by itself for {c.arch}.", proof)
    switch: dict[str, Value] = {OFF: True} if c.has(OFF) and c.row("fusion.off") else {}
    reason = f"{step.text} {effect.reason}"
    if effect.outcome is Outcome.FAILS and not switch:
        reason += " This release has no switch that keeps it off."
    yield Part(
        flag=flag,
        outcome=effect.outcome,
        reason=reason,
        evidence=(proof, *_known(effect)),
        steps=(step, *effect.steps),
        expects=_expects(c, effect),
        becomes=effect.becomes,
        off=switch if effect.outcome is Outcome.FAILS else {},
        automatic=True,
        value=True if flag == ON else backend,
    )


def _perhaps(c: Context, row: dict[str, Value]) -> Part:
    proof = place(c.release, row)
    reason = f"Whether {c.release.version} turns the fusion on by itself for {c.arch} here is not known."
    step = Step(Gate.RESOLUTION, None, reason, proof)
    flag = BACKEND if c.has(BACKEND) else ON
    return Part(flag, Outcome.UNKNOWN, reason, (proof,), (step,), automatic=True, value=None)


def _automatic(c: Context) -> tuple[dict[str, Value] | None, dict[str, Value] | None]:
    """The place that turns the fusion on unasked in this case, and one of which nobody can tell."""
    if not c.arch:
        return None, None
    unsure: dict[str, Value] | None = None
    given = {name: value for name, value in c.args.items() if name not in (ON, BACKEND)}
    bare = Context(c.case, c.release, given, c.sm_text)
    for row in c.release.gates.get("switches", ()):
        if row["flag"] not in (ON, BACKEND) or c.arch not in row["test"]:
            continue
        held = bare.holds(row["test"])
        if held:
            return row, None
        if held is None:
            unsure = row
    return None, unsure


def _off(c: Context) -> Part:
    proof = c.proof("fusion.off")
    reason = "The fusion is kept off, whatever the model and the GPU; only this switch does that."
    expects = (Expectation("kernel", absent=KERNEL, where="every rank", source=proof[0] if proof else None),)
    step = Step(Gate.RESOLUTION, True, reason, proof[0] if proof else None)
    return Part(OFF, Outcome.ACTIVE, reason, proof, (step,), expects)


def _forced_off(c: Context) -> Effect:
    proof = c.proof("fusion.off")
    reason = f"--{OFF} is given too and wins: the fusion is off."
    return Effect(Outcome.INERT, reason, (Step(Gate.RESOLUTION, False, reason, proof[0] if proof else None),))


def _expects(c: Context, effect: Effect) -> tuple[Expectation, ...]:
    source = next((step.evidence for step in effect.steps if step.evidence), None)
    if effect.outcome is Outcome.ACTIVE:
        return (Expectation("kernel", present=KERNEL, where="every rank", source=source),)
    if effect.outcome in (Outcome.INERT, Outcome.ALTERED):
        return (Expectation("kernel", absent=KERNEL, where="every rank", source=source),)
    return ()
