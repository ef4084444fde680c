"""A service whose engine release nothing is known of: the engine on the host is asked instead of the knowledge. Pure.

Before it can be asked every flag is `unknown`. Its parser and its argument resolution then say what it refuses, what it
raises and what it changes. That it resolves a flag does not show that the flag acts, so a flag becomes `active` only
where the known releases next to it have no gate for it either; everything else stays `unknown` and follows the policy.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

from sglfleet.verify.probe import RULE, generators_of, refused_kernels
from sglfleet.verify.probe_arguments import resolution
from validators import parser, policy
from validators.case import Case
from validators.knowledge import BrokenKnowledgeError, UnknownReleaseError, load_sglang, releases
from validators.rules.interface import Part
from validators.verdict import Decision, Evidence, Gate, Judgement, Outcome, Step, Verdict

ENGINE = "engine.sglang"  # the verdict on the release itself


def unknown(judgement: Judgement) -> bool:
    """Whether a judgement only says that nothing is known of the release."""
    return any(v.flag == ENGINE and v.rule == "knowledge" for v in judgement.verdicts)


def pending(case: Case) -> Judgement:
    """Every flag as it was asked, unknown until the engine on the host has spoken. Waivers and policies hold."""
    text = f"NO KNOWLEDGE of SGLang {case.sglang}: its own engine on the host is asked before anything is switched"
    todo = f"Add it with `sglfleet knowledge add {case.sglang}`, so that its gates are judged too."
    verdicts = []
    for name, value in sorted({**case.args, ENGINE: case.sglang}.items()):
        flag = name.lstrip("-")
        reason = (
            f"{text}." if flag == ENGINE else f"Unknown in SGLang {case.sglang} until the engine on the host is asked."
        )
        part = Part(flag, Outcome.UNKNOWN, reason, steps=(Step(Gate.PARSER, None, reason),), todo=todo)
        chosen = case.policies.get(flag) or case.on_unsupported
        decision, _ = policy.decide(part, chosen)
        one = Verdict(
            flag, value, Outcome.UNKNOWN, decision, part.reason, RULE, steps=part.steps,
            todo=todo if flag == ENGINE else "",
        )  # fmt: skip
        verdicts.append(policy.waive(one, case.allow, case.today) or one)
    args = {name.lstrip("-"): value for name, value in case.args.items()}
    return Judgement(policy.overall(tuple(verdicts)), tuple(verdicts), render(case.sglang, args), args, case.id)


def render(sglang: str, args: Mapping[str, Any]) -> tuple[str, ...]:
    """Flags as tokens, written as the nearest known release writes them; the engine's own parser has the last word."""
    near = neighbours(sglang)
    return parser.render(load_sglang(near[0]), args) if near else ()


@cache
def neighbours(sglang: str) -> tuple[str, ...]:
    """The known releases next to one: the last before it and the first after it, where there are such."""
    known = [name for name in releases("sglang") if _loads(name)]
    here = _key(sglang)
    before = [name for name in known if _key(name) < here]
    after = [name for name in known if _key(name) > here]
    found = sorted(before, key=_key)[-1:] + sorted(after, key=_key)[:1]
    return tuple(found) or tuple(sorted(known, key=_key)[-1:])


def _loads(name: str) -> bool:
    try:
        load_sglang(name)
    except (UnknownReleaseError, BrokenKnowledgeError):
        return False
    return True


def _key(name: str) -> tuple[tuple[int, ...], int]:
    """Order of releases: numbers first, a post-release after them. What is no number stands last."""
    head, _, tail = name.partition("post")
    numbers = tuple(int(n) for n in re.findall(r"\d+", head)) or (10**6,)
    return numbers, int(tail) if tail.isdigit() else 0


def ungated(case: Case) -> tuple[frozenset[str], dict[str, frozenset[str]]]:
    """Flags that the neighbours run without any gate (no rule speaks of them, and the parser takes them), and flag ->
    FlashInfer's generator functions that the neighbours' verdicts rest on.
    """
    from validators.judge import judge

    found: set[str] | None = None
    library: dict[str, frozenset[str]] = {}
    for name in neighbours(case.sglang):
        judged = judge(replace(case, sglang=name, flashinfer="", packages={}))
        plain = {v.flag for v in judged.verdicts if v.outcome is Outcome.ACTIVE and v.rule == parser.RULE}
        found = plain if found is None else found & plain
        for v in judged.verdicts:
            library[v.flag] = library.get(v.flag, frozenset()) | generators_of(v)
    return frozenset(found or ()), library


def decided(verdicts: tuple[Verdict, ...], answer: Mapping[str, Any], case: Case) -> tuple[Verdict, ...]:
    """Verdicts of `pending` after the engine spoke and `mended` heard it: what it takes and nobody gates is active.

    What stays unknown says what the engine did say of it.
    """
    told = answer.get("arguments") or {}
    free, library = ungated(case)
    near = " and ".join(neighbours(case.sglang))
    has_gpu = bool((answer.get("gpu") or {}).get("devices"))
    asked = "" if has_gpu else " (without a GPU to ask)"
    out = []
    for v in verdicts:
        said = resolution(v, told, {}) if v.outcome is Outcome.UNKNOWN and v.flag != ENGINE else None
        if said is None:
            out.append(v)
            continue
        kernels = refused_kernels(answer, library.get(v.flag, frozenset()))
        evidence = (Evidence("the engine on the host", "", condition=f"resolves {v.flag} as given{asked}"), *v.evidence)
        if said.becomes is not None or said.warning:
            word = said.warning or f"it becomes {said.becomes}"
            reason = (
                f"The engine on this host{asked} says: {word}. Nothing else is known of it in SGLang {case.sglang}."
            )
            out.append(replace(v, reason=reason))
        elif kernels:
            reason = f"The engine on this host takes it as given, but its FlashInfer cannot serve it: {kernels}"
            out.append(replace(v, reason=reason, evidence=evidence))
        elif v.flag in free:
            reason = (
                f"The engine on this host takes it as given{asked}, and no gate for it is known in {near}, next to it."
            )
            decision = Decision.KEEP if v.decision is Decision.WARN and not v.waiver else v.decision
            out.append(replace(v, outcome=Outcome.ACTIVE, decision=decision, reason=reason, evidence=evidence))
        else:
            reason = (
                f"The engine on this host takes it as given{asked}. Whether it acts is not known: in {near} a gate"
                f" decides that, and nothing is known of the gates of {case.sglang}."
            )
            out.append(replace(v, reason=reason, evidence=evidence))
    return tuple(out)
