"""The engine's own answers before launch, beside the judgement: where they disagree, and who wins. Pure.

The probe wins, loudly, except where it could not ask: without a GPU the engine's SM checks answer for no GPU at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from sglfleet.verify.evidence import as_text
from sglfleet.verify.probe_arguments import Resolution, names, resolution
from validators.verdict import Decision, Evidence, Outcome, Verdict

MODULES = ("ask_engine", "ask_arguments")  # what is sent to a host; the first is run
SM_MESSAGE = "No supported CUDA architectures found"
STOPS = (Outcome.FAILS, Outcome.REJECTED)
RULE = "probe"  # provenance of a verdict that the engine's own word decided


@dataclass(frozen=True, slots=True)
class Disagreement:
    """One thing that the engine on the host says otherwise than the judgement."""

    subject: str  # flag, package or generator
    judged: str
    engine: str
    wins: bool  # the probe's word counts; False: it could not really ask
    becomes: Outcome | None = None  # outcome of the flag by the engine's word
    value: str = ""  # altered: what the engine makes of it

    def __str__(self) -> str:
        end = "the engine's word counts" if self.wins else "it could not ask a GPU, so the judgement stands"
        return f"{self.subject}: judged {self.judged}, the engine says {self.engine}: {end}"


def could_not_ask(answer: Mapping[str, Any]) -> tuple[str, ...]:
    """What the probe could not ask, with the reason."""
    return tuple(f"{name}: {why}" for name, why in sorted((answer.get("gaps") or {}).items()))


def disagreements(
    answer: Mapping[str, Any],
    verdicts: Iterable[Verdict],
    fields: Mapping[str, str] | None = None,
    pins: Mapping[str, str] | None = None,
    majors: Mapping[str, tuple[int, ...] | None] | None = None,
) -> tuple[Disagreement, ...]:
    """Compare the probe with a judgement.

    `fields`: flag -> ServerArgs field where it is not the flag's own name. `pins`: package -> version that was judged.
    `majors`: generator -> SM majors in the knowledge; None where it restricts nothing.
    """
    out = [*_versions(answer, pins or {}), *_generators(answer, majors or {})]
    mine = [v for v in verdicts if not v.automatic]
    out += _kernels(answer, mine)
    if answer.get("arguments"):
        out += _arguments(answer, mine, fields or {})
    return tuple(out)


def _versions(answer: Mapping[str, Any], pins: Mapping[str, str]) -> list[Disagreement]:
    have = answer.get("packages") or {}
    return [
        Disagreement(name, version, have.get(name, "not installed"), True)
        for name, version in sorted(pins.items())
        if have.get(name, "").partition("+")[0] != version.partition("+")[0]
    ]


def _generators(answer: Mapping[str, Any], majors: Mapping[str, tuple[int, ...] | None]) -> list[Disagreement]:
    out = []
    for sm, answers in sorted((answer.get("generators") or {}).items()):
        for key, said in sorted(answers.items()):
            name = key.rpartition(".")[2]
            if name not in majors or said.startswith("could not ask"):
                continue
            known = majors[name]
            builds = known is None or int(sm.partition(".")[0]) in known
            if builds != (said == "ok"):
                judged = f"builds for SM majors {list(known) if known is not None else 'of any kind'}"
                out.append(Disagreement(f"{name} on SM {sm}", judged, said, True))
    return out


def _kernels(answer: Mapping[str, Any], verdicts: list[Verdict]) -> list[Disagreement]:
    """Flags judged to act whose kernels the installed FlashInfer refuses to build for this host's own SM."""
    out = []
    for v in verdicts:
        if v.outcome is Outcome.ACTIVE and _kept(v) and (word := refused_kernels(answer, generators_of(v))):
            out.append(Disagreement(v.flag, "active", word, True, Outcome.UNKNOWN))
    return out


def generators_of(verdict: Verdict) -> frozenset[str]:
    """FlashInfer's generator functions that a verdict rests on."""
    return frozenset(e.symbol for e in verdict.evidence if e.artifact.startswith("flashinfer") and e.symbol)


def refused_kernels(answer: Mapping[str, Any], names: frozenset[str]) -> str:
    """Why none of these generators builds for this host's own GPUs; "" where one does, or none could be asked.

    Several are alternatives: one of them is enough.
    """
    for sm in sorted({d["sm"] for d in (answer.get("gpu") or {}).get("devices", [])}):
        answers = (answer.get("generators") or {}).get(sm) or {}
        said = {key.rpartition(".")[2]: text for key, text in answers.items() if key.rpartition(".")[2] in names}
        if said and all(SM_MESSAGE in text for text in said.values()):
            name = min(said)
            return f"{', '.join(sorted(said))} has no kernels for SM {sm}: {said[name]}"
    return ""


def _arguments(answer: Mapping[str, Any], verdicts: list[Verdict], fields: Mapping[str, str]) -> list[Disagreement]:
    told = answer.get("arguments") or {}
    has_gpu = bool((answer.get("gpu") or {}).get("devices"))
    raised = str(told.get("raised") or "")
    if raised:
        return _raised(raised, bool(told.get("rejected")), verdicts, has_gpu)
    out = []
    for v in verdicts:
        kept = _kept(v)
        said = resolution(v, told if kept else answer.get("asked") or {}, fields)
        if said is None:
            continue
        one = _on_command_line(v, said, has_gpu) if kept else _left_out(v, said, has_gpu)
        out += [one] if one else []
    return out


def _raised(raised: str, rejected: bool, verdicts: list[Verdict], has_gpu: bool) -> list[Disagreement]:
    # what the parser refuses it refuses everywhere; what resolution raises may be for want of a GPU
    wins = has_gpu or rejected
    outcome = Outcome.REJECTED if rejected else Outcome.FAILS
    kept = [v for v in verdicts if _kept(v)]
    if any(v.outcome in STOPS for v in kept):
        return []
    named = [v for v in kept if names(v.flag, raised)]
    if not named:
        return [Disagreement("argument resolution", "every flag kept to start", raised, wins, outcome)]
    return [Disagreement(v.flag, str(v.outcome), raised, wins, outcome) for v in named]


def _on_command_line(v: Verdict, said: Resolution, has_gpu: bool) -> Disagreement | None:
    judged = f"{v.outcome} as {as_text(v.value)}" if v.outcome is Outcome.ACTIVE else str(v.outcome)
    if said.becomes is not None:
        if v.outcome is Outcome.ALTERED and v.becomes in (said.becomes, ""):
            return None
        if v.outcome in (Outcome.INERT, *STOPS):
            return None  # altered into nothing or not: it was not to act
        return Disagreement(v.flag, judged, f"it becomes {said.becomes}", has_gpu, Outcome.ALTERED, said.becomes)
    if said.warning:
        becomes = Outcome.INERT if said.off else Outcome.UNKNOWN
        if v.outcome not in (Outcome.ACTIVE, Outcome.UNKNOWN) or v.outcome is becomes:
            return None
        return Disagreement(v.flag, judged, f"“{said.warning}”", has_gpu, becomes)
    if v.outcome is Outcome.REJECTED:
        return Disagreement(v.flag, "rejected", "its parser takes it", True, Outcome.UNKNOWN)
    if v.outcome in (Outcome.ALTERED, Outcome.FAILS):
        return Disagreement(v.flag, str(v.outcome), "it stays as it was given", has_gpu, Outcome.UNKNOWN)
    return None


def could_matter(verdicts: Iterable[Verdict]) -> bool:
    """Whether a flag was left out on which the engine's resolution of the command line as asked has a say."""
    return any(not _kept(v) and not v.automatic and v.outcome in (Outcome.ALTERED, *STOPS) for v in verdicts)


def _left_out(v: Verdict, said: Resolution, has_gpu: bool) -> Disagreement | None:
    """A flag that was dropped or replaced, and that the engine here would have taken. Idle ones resolve as well."""
    if v.outcome not in (Outcome.ALTERED, *STOPS) or said.becomes is not None or said.warning:
        return None
    wins = has_gpu or v.outcome is Outcome.REJECTED
    return Disagreement(v.flag, f"{v.outcome} and left out", "it would stay as given", wins, Outcome.UNKNOWN)


def _kept(verdict: Verdict) -> bool:
    return verdict.decision in (Decision.KEEP, Decision.WARN)


def mended(verdicts: Iterable[Verdict], found: Iterable[Disagreement]) -> tuple[Verdict, ...]:
    """Verdicts after the engine's own word: what it changes, turns off or refuses is not called active any more.

    What is on the command line stays there, and is shown; what was left out stays out. Provenance: rule `probe`.
    """
    won = {one.subject: one for one in reversed(tuple(found)) if one.wins and one.becomes}
    return tuple(_mended(v, won[v.flag]) if v.flag in won and not v.automatic else v for v in verdicts)


def _mended(v: Verdict, one: Disagreement) -> Verdict:
    from validators.expectations import for_flag

    assert one.becomes is not None
    decision = Decision.REFUSE if one.becomes in STOPS else Decision.WARN if v.decision is Decision.KEEP else v.decision
    expects = v.expects
    if one.becomes is Outcome.ALTERED:
        expects = for_flag(v.flag, one.value)  # that of what it becomes
    todo = "Add what is known of this release, or correct it: the engine on the host says otherwise."
    evidence = Evidence("the engine on the host", "", condition=one.engine[:300])
    return replace(
        v, outcome=one.becomes, decision=decision, rule=RULE, becomes=one.value, redundant=False, expects=expects,
        reason=f"The engine on this host was asked: {one.engine}. Judged before: {one.judged}: {v.reason}",
        evidence=(evidence, *v.evidence), todo=todo,
    )  # fmt: skip
