"""The engine's own answers before launch, beside the judgement: where they disagree, and who wins. Pure.

The probe wins, loudly, except where it could not ask: without a GPU the engine's SM checks answer for no GPU at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from sglfleet.verify.evidence import as_text
from validators.verdict import Decision, Outcome, Verdict

MODULES = ("ask_engine",)
SM_MESSAGE = "No supported CUDA architectures found"


@dataclass(frozen=True, slots=True)
class Disagreement:
    """One thing that the engine on the host says otherwise than the judgement."""

    subject: str  # flag, package or generator
    judged: str
    engine: str
    wins: bool  # the probe's word counts; False: it could not really ask
    becomes: Outcome | None = None  # outcome of the flag by the engine's word

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
    has_gpu = bool((answer.get("gpu") or {}).get("devices"))
    out = [*_versions(answer, pins or {}), *_generators(answer, majors or {})]
    told = answer.get("arguments") or {}
    if told:
        out += _arguments(told, [v for v in verdicts if not v.automatic], fields or {}, has_gpu)
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


def _arguments(
    told: Mapping[str, Any], verdicts: list[Verdict], fields: Mapping[str, str], has_gpu: bool
) -> list[Disagreement]:
    raised = str(told.get("raised") or "")
    if raised:
        # what the parser refuses it refuses everywhere; what resolution raises may be for want of a GPU
        wins = has_gpu or bool(told.get("rejected"))
        outcome = Outcome.REJECTED if told.get("rejected") else Outcome.FAILS
        expected = [v for v in verdicts if v.outcome in (Outcome.FAILS, Outcome.REJECTED) and _kept(v)]
        if expected:
            return []
        named = [v for v in verdicts if _names(v.flag, raised)]
        if not named:
            return [Disagreement("argument resolution", "every flag kept to start", raised, wins, outcome)]
        return [Disagreement(v.flag, str(v.outcome), raised, wins, outcome) for v in named]
    out = []
    resolved = told.get("resolved") or {}
    for v in verdicts:
        field = fields.get(v.flag) or v.flag.replace("-", "_")
        if v.outcome is not Outcome.ACTIVE or not _kept(v) or field not in resolved or v.value in (None, "auto"):
            continue
        if as_text(resolved[field]) != as_text(v.value) and not _same(resolved[field], v.value):
            said = f"it becomes {as_text(resolved[field])}"
            out.append(Disagreement(v.flag, f"active as {as_text(v.value)}", said, has_gpu, Outcome.ALTERED))
    return out


def _kept(verdict: Verdict) -> bool:
    return verdict.decision in (Decision.KEEP, Decision.WARN)


def _names(flag: str, text: str) -> bool:
    even = text.replace("_", "-").replace("=", " ")
    return f"--{flag} " in even + " " or f" {flag} " in f" {even} ".replace(",", " ").replace("'", " ")


def _same(a: Any, b: Any) -> bool:
    """Equal but for how it is written: numbers in text, one-element lists, JSON in text."""
    import json

    for value, other in ((a, b), (b, a)):
        if isinstance(value, list) and len(value) == 1 and as_text(value[0]) == as_text(other):
            return True
        if isinstance(value, str):
            try:
                if json.loads(value) == other:
                    return True
            except ValueError:
                continue
    return False
