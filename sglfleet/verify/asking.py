"""Before launch: the engine on the host is asked what it makes of the effective command line."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from sglfleet.verify.probe import MODULES, STOPS, Disagreement, could_not_ask, disagreements, mended
from validators.verdict import Decision, Outcome, Policy, Verdict

if TYPE_CHECKING:
    from pyinfra.api.host import Host

    from validators.case import Case

SECONDS = 200.0  # imports of the engine included, on a busy host; what is not asked by then is said to be missing
GRACE = 20.0  # seconds more until it is ended on the host, and as many until the host counts as lost
FILE = "probe.json"  # in the release's folder


@dataclass(frozen=True, slots=True)
class Question:
    """What the engine is asked about, and what was judged of it."""

    python: str
    argv: tuple[str, ...]  # as it will be started
    env: Mapping[str, str]
    verdicts: tuple[Verdict, ...]
    sglang: str
    before: tuple[str, ...] = ()  # the command line before flags were left out, where that can say anything
    case: Case | None = None  # where nothing is known of the release: the engine judges instead
    refuses: frozenset[str] = frozenset()  # flags whose policy is to refuse what does not act


@dataclass(frozen=True, slots=True)
class Word:
    """What came of it."""

    verdicts: tuple[Verdict, ...]  # with the engine's own word in them
    said: tuple[str, ...] = ()  # for a person, a line each
    stops: tuple[str, ...] = ()  # why it must not start
    answer: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """What is kept beside the release."""
        from sglfleet.render import plain

        return {
            "schema_version": 1, "asked": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "verdicts": [plain(v) for v in self.verdicts], "said": list(self.said),
            "gaps": dict(self.answer.get("gaps") or {}), "seconds": dict(self.answer.get("seconds") or {}),
        }  # fmt: skip


def ask(host: Host, question: Question, seconds: float = SECONDS) -> dict[str, Any]:
    """The engine's answer; `gaps` says what could not be asked, everything where the probe could not run.

    It ends after `seconds` with what it has by then; soon after that it is ended on the host, with all it started.
    """
    from sglfleet.operations import HostFailed, run
    from sglfleet.verify import ship

    spec = {"argv": question.argv, "asked": question.before, "sms": [], "env": dict(question.env), "seconds": seconds}
    script = ship.script(json.dumps(spec), question.python, MODULES, MODULES[0], seconds + GRACE, nice=5)
    try:
        output = run(host, script, timeout=seconds + 2 * GRACE, check=False)
    except HostFailed as error:
        return {"gaps": {"everything": error.reason}}
    try:
        answer = json.loads(output.out.strip().splitlines()[-1])
    except (ValueError, IndexError):
        told = (output.err or output.out).strip().splitlines()
        return {"gaps": {"everything": told[-1] if told else f"exit code {output.code}"}}
    return answer if isinstance(answer, dict) else {"gaps": {"everything": "not an answer of ours"}}


def before_launch(host: Host, question: Question, seconds: float = SECONDS) -> Word:
    """Ask, and let the engine's word count where it could really be asked."""
    return heard(question, ask(host, question, seconds))


def heard(question: Question, answer: Mapping[str, Any]) -> Word:
    """Verdicts, words and refusals from an answer. Pure but for the knowledge."""
    from sglfleet.verify.prove import naming

    fields, _ = naming(question.sglang)
    found = disagreements(answer, question.verdicts, fields, majors=_majors(answer))
    verdicts = mended(question.verdicts, found)
    stops = [str(one) for one in found if refuses(one, question)]
    gaps = [f"the engine could not be asked: {text}" for text in could_not_ask(answer)]
    said = [str(one) for one in found] + gaps
    if question.case is not None:
        from sglfleet.verify.probe_judge import decided

        verdicts = decided(verdicts, answer, question.case)
        if not answer.get("arguments"):
            stops.append(
                f"nothing is known of SGLang {question.sglang}, and the engine could not be asked either: "
                f"run `sglfleet knowledge add {question.sglang}`"
            )
        head = f"NO KNOWLEDGE of SGLang {question.sglang}: the engine on this host was asked instead"
        rows = [f"{v.flag}: {v.outcome}, {v.decision}: {v.reason}" for v in verdicts if v.flag != "engine.sglang"]
        told = {v.flag for v in verdicts}
        said = [head, *rows, *(str(one) for one in found if one.subject not in told), *gaps]
    return Word(verdicts, tuple(said), tuple(stops), answer)


def refuses(one: Disagreement, question: Question) -> bool:
    """Whether the engine's word means that it must not start: it would not, or the policy lets nothing idle through."""
    if not one.wins or one.becomes is None:
        return False
    if one.becomes in STOPS:
        return True
    kept = any(v.flag == one.subject and v.decision in (Decision.KEEP, Decision.WARN) for v in question.verdicts)
    return kept and one.subject in question.refuses and one.becomes is not Outcome.ACTIVE


def refusing(verdicts: tuple[Verdict, ...], default: Policy, flags: Mapping[str, Policy]) -> frozenset[str]:
    """Flags under the policy `refuse` that no waiver lets through."""
    return frozenset(v.flag for v in verdicts if flags.get(v.flag, default) is Policy.REFUSE and not v.waiver)


def keep(host: Host, folder: str, word: Word) -> None:
    """Put what the engine said beside the release on the host: the proof after launch is held against it."""
    import shlex

    from sglfleet.operations import run

    text, file = json.dumps(word.to_json(), ensure_ascii=False), shlex.quote(f"{folder}/{FILE}")
    run(host, f"cat > {file}.new && chmod 644 {file}.new && mv -T {file}.new {file}", stdin=text)


def _majors(answer: Mapping[str, Any]) -> dict[str, tuple[int, ...] | None]:
    """What is known of the generators of the FlashInfer that is installed; uncertain ones are left out.

    Those that name their architectures themselves do not look at the GPU: they answer the same everywhere.
    """
    from validators.knowledge import BrokenKnowledgeError, UnknownReleaseError, load_flashinfer

    version = str((answer.get("packages") or {}).get("flashinfer-python") or "")
    try:
        rows = load_flashinfer(version).generators.values() if version else ()
    except (UnknownReleaseError, BrokenKnowledgeError, ValueError):
        return {}
    return {row.name: row.majors for row in rows if row.certain and not row.archs}
