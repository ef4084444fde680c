"""The gate itself: a case in, a judgement out. Pure; what is known of releases comes from the shipped knowledge.

parser → the rules (argument resolution, the engine's own gate, the kernel library, topology, model) → policy → the
command line that follows. What a dropped flag sets free is judged again, so that the effective command line has
nothing new to say.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from validators import parser, policy
from validators.case import Case
from validators.knowledge.loader import UnknownReleaseError, load_sglang
from validators.knowledge.model import Sglang
from validators.rules import always, by_flag
from validators.rules.context import Context
from validators.rules.environment import as_read
from validators.rules.interface import SEVERITY, Part, Rule
from validators.verdict import (
    Decision,
    Gate,
    Judgement,
    Outcome,
    Overall,
    Policy,
    Step,
    Value,
    Verdict,
)

_ROUNDS = 4  # a downgrade sets free at most a few other flags; more means that two rules undo each other


def judge(case: Case) -> Judgement:
    """All verdicts for one service on one kind of host."""
    try:
        release = _release(case.sglang, str(Path.cwd()))
    except UnknownReleaseError as error:
        return _without_knowledge(case, str(error))
    verdicts, args = _round(case, release)
    seen = {(verdict.flag, verdict.decision) for verdict in verdicts}
    for _ in range(_ROUNDS):
        if not any(verdict.decision in (Decision.DROP, Decision.REPLACE) for verdict in verdicts):
            break
        again, args_again = _round(replace(case, args=args), release)
        new = [
            verdict
            for verdict in again
            if verdict.decision not in (Decision.KEEP, Decision.WARN) and (verdict.flag, verdict.decision) not in seen
        ]
        if not new:
            break
        seen |= {(verdict.flag, verdict.decision) for verdict in new}
        told = {verdict.flag for verdict in new}
        verdicts = [*(verdict for verdict in verdicts if verdict.flag not in told), *new]
        args = args_again
    ordered = tuple(sorted(verdicts, key=lambda verdict: verdict.flag))
    return Judgement(policy.overall(ordered), ordered, parser.render(release, args), args, case.id)


@lru_cache(maxsize=256)
def _release(name: str, _folder: str) -> Sglang:
    """One release; the loader looks at the file every time, which ten thousand cases need not. `_folder` may hold
    knowledge of its own."""
    return load_sglang(name)


def _round(case: Case, release: Sglang) -> tuple[list[Verdict], dict[str, Value]]:
    """One pass over the flags as they stand: verdicts, and what is left of the flags."""
    given = parser.read(release, case.args)
    accepted = {one.flag.name: one for one in given if one.flag is not None}
    verdicts: list[Verdict] = []
    args: dict[str, Value] = {}
    for one in given:
        if one.part is not None:
            _settle(case, one.part, parser.RULE, one.name, one.name, one.value, verdicts, args)
    values = {name: one.value for name, one in accepted.items()}
    parts = _aside(case, _ask(case, release, values))
    for name, one in accepted.items():
        spoken = parts.pop(name, None)
        part, rule = (_spelled(release, one, _merge(spoken))) if spoken else (_plain(release, one), parser.RULE)
        _settle(case, part, rule, name, one.name, one.value, verdicts, args)
    for name, spoken in parts.items():
        part, rule = _merge(spoken)
        _settle(case, part, rule, "", name, part.value, verdicts, args)
    return verdicts, args


def _ask(case: Case, release: Sglang, values: dict[str, Value]) -> dict[str, list[tuple[Part, str]]]:
    """What the rules say, by flag."""
    parts: dict[str, list[tuple[Part, str]]] = {}
    context = Context(as_read(case, release), release, values, case.sm[0] if case.sm else "")
    for rule in _concerned(values):
        if not case.sm and not rule.without_gpu:
            for flag in rule.flags:
                if flag in values:
                    what = f"What --{flag} does without GPU facts"
                    parts.setdefault(flag, []).append((context.unsure(flag, what), rule.stem))
            continue
        for part in rule.judge(context):
            parts.setdefault(part.flag, []).append((part, rule.stem))
    return parts


def _aside(case: Case, parts: dict[str, list[tuple[Part, str]]]) -> dict[str, list[tuple[Part, str]]]:
    """Without what stops only beside another flag that is dropped or replaced."""
    out: dict[str, list[tuple[Part, str]]] = {}
    for flag, spoken in parts.items():
        kept = [one for one in spoken if not (one[0].beside and _gives_way(case, parts.get(one[0].beside, [])))]
        if kept:
            out[flag] = kept
    return out


def _gives_way(case: Case, spoken: list[tuple[Part, str]]) -> bool:
    if not spoken:
        return False
    part, _ = _merge(spoken)
    decision, _ = policy.decide(part, case.policies.get(part.flag) or case.on_unsupported)
    return decision in (Decision.DROP, Decision.REPLACE)


def _concerned(values: Iterable[str]) -> list[Rule]:
    table = by_flag()
    found = {rule.stem: rule for rule in always()}
    for name in values:
        for rule in table.get(name, ()):
            found[rule.stem] = rule
    return [found[stem] for stem in sorted(found)]


def _merge(spoken: list[tuple[Part, str]]) -> tuple[Part, str]:
    """Several rules on one flag: the gravest outcome holds, all gates are shown, all expectations of its kind kept."""
    if len(spoken) == 1:
        return spoken[0]
    worst, rule = min(
        spoken,
        key=lambda item: (
            SEVERITY.index(item[0].outcome),
            not item[0].refuse,
            not item[0].advice,
            item[0].outcome is Outcome.UNKNOWN and not item[0].todo,
        ),
    )
    same = [part for part, _ in spoken if part.outcome is worst.outcome]
    merged = replace(
        worst,
        steps=tuple(step for part, _ in spoken for step in part.steps),
        expects=tuple(dict.fromkeys(e for part in same for e in part.expects)),
        needs=tuple(dict.fromkeys(need for part, _ in spoken for need in part.needs)),
    )
    return merged, rule


def _plain(release: Sglang, one: parser.Given) -> Part:
    """A flag that no rule speaks of: the parser takes it, and no gate is known that would stop it."""
    flag = one.flag
    assert flag is not None
    evidence = release.evidence(flag.place, "--" + flag.name)
    reason = f"{release.version} takes --{one.name}; no gate of it is known that depends on the GPU."
    todo = ""
    if one.spelling:
        reason = f"--{one.name} is an abbreviation of {one.spelling}, which {release.version} takes."
        todo = f"Write {flag.name}."
    if flag.deprecated:
        reason = f"{release.version} takes --{one.name} and calls it deprecated."
        todo = (
            f"Use {flag.replacement.lstrip('-')} instead." if flag.replacement else f"Plan to do without {flag.name}."
        )
        if "<dp-size>" in flag.replacement:  # with both sizes the release stops
            todo = f"Use {flag.replacement.split()[0].lstrip('-')} with the number of dp-size, and leave dp-size out."
    return Part(flag.name, Outcome.ACTIVE, reason, (evidence,), (Step(Gate.PARSER, True, reason, evidence),), todo=todo)


def _spelled(release: Sglang, one: parser.Given, spoken: tuple[Part, str]) -> tuple[Part, str]:
    """What a rule says, with what the parser would add: the flag is deprecated, or an abbreviation."""
    assert one.flag is not None
    if not (one.spelling or one.flag.deprecated):
        return spoken
    plain = _plain(release, one)
    part, rule = spoken
    todo = part.todo or plain.todo
    if one.flag.deprecated and part.outcome in (Outcome.FAILS, Outcome.INERT):
        todo = part.todo or f"Leave {one.name} out: under a newer name it does no better on this host."
    return replace(part, reason=f"{part.reason} {plain.reason}", todo=todo), rule


def _settle(
    case: Case,
    part: Part,
    rule: str,
    name: str,
    written: str,
    value: Value,
    verdicts: list[Verdict],
    args: dict[str, Value],
) -> None:
    """Make the verdict of a part, and put what it leaves of the flag into `args`."""
    chosen = case.policies.get(written) or case.policies.get(name) or case.on_unsupported
    decision, stand_in = policy.decide(part, chosen)
    verdict = Verdict(
        flag=written,
        value=value,
        outcome=part.outcome,
        decision=decision,
        reason=part.reason,
        rule=rule,
        evidence=part.evidence,
        expects=part.expects,
        automatic=part.automatic,
        redundant=part.redundant,
        replacement=stand_in,
        becomes=part.becomes,
        todo=part.todo,
        steps=part.steps,
        needs=part.needs,
    )
    verdict = policy.waive(verdict, case.allow, case.today, name) or verdict
    verdicts.append(verdict)
    if verdict.decision is Decision.REPLACE:
        for flag, instead in verdict.replacement.items():
            args.setdefault(flag, instead)
    elif verdict.decision is not Decision.DROP and (name or written in case.args):
        args[name or written] = value


def _without_knowledge(case: Case, why: str) -> Judgement:
    """Nothing is known of the release: every flag is unknown, and nothing is let through."""
    number = case.sglang[:1].isdigit() and not any(mark in case.sglang for mark in ("dev", "nightly", "+", "/", ":"))
    todo = why.split(": ")[-1] if number else "Pin engine.sglang to an exact release."
    if not number:
        why = f"{case.sglang} is not a release number, so nothing is known of its gates"
    step = Step(Gate.PARSER, None, why)
    verdicts = tuple(
        Verdict(
            name.lstrip("-"), value, Outcome.UNKNOWN, Decision.REFUSE, f"{why}.", "knowledge", todo=todo, steps=(step,)
        )
        for name, value in sorted({**case.args, "engine.sglang": case.sglang}.items())
    )
    return Judgement(Overall.REFUSE, verdicts, (), {}, case.id)


__all__ = ["Policy", "judge"]
