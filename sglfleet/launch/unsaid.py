"""What hangs on a value that a variable or a template holds: the command is judged with other values too. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from validators import parser, policy
from validators.case import Case
from validators.judge import judge
from validators.knowledge.model import Sglang
from validators.verdict import Decision, Judgement, Outcome, Value, Verdict

_SIZES = frozenset(
    {"tp-size", "pp-size", "dp-size", "ep-size", "nnodes", "attn-dp-size", "attn-cp-size", "moe-dp-size", "dcp-size"}
)
_MANY = 2  # stands for "more than one" of a size that nobody can know here
_CHOICES = 60  # values tried of one flag; no release has a flag with more


def hanging(release: Sglang, case: Case, unsaid: Mapping[str, Value]) -> Judgement:
    """The judgement without the flags whose values are not known; what differs with some value of theirs is unknown.

    `unsaid`: flag as written -> what stands for its value.
    """
    plain = judge(case)
    depends: dict[str, list[str]] = {}
    for names, other in _variants(release, case, unsaid):
        found = {verdict.flag: verdict for verdict in judge(other).verdicts}
        for verdict in plain.verdicts:
            told = len(names) > 1 and verdict.flag in depends  # by one of them alone
            if not _same(verdict, found.get(verdict.flag)) and not _worse_anyway(verdict) and not told:
                depends.setdefault(verdict.flag, []).extend(names)
    return _told(release, plain, {flag: sorted(set(names)) for flag, names in depends.items()}, unsaid)


def _variants(release: Sglang, case: Case, unsaid: Mapping[str, Value]) -> Iterator[tuple[tuple[str, ...], Case]]:
    sizes: dict[str, str] = {}
    for written in unsaid:
        flag = release.resolve_spelling("--" + written).flag
        if flag is None:
            continue
        if flag.name in _SIZES:
            sizes[written] = flag.name
            yield (written,), _sized(case, {flag.name: _MANY})
        elif flag.choices is not None:
            for choice in flag.choices[:_CHOICES]:
                yield (written,), replace(case, args={**case.args, flag.name: choice})
    if len(sizes) > 1:
        yield tuple(sizes), _sized(case, dict.fromkeys(sizes.values(), _MANY))


def _sized(case: Case, sizes: dict[str, int]) -> Case:
    """GPUs are not counted: how many there are is not what a size that nobody knows is about."""
    return replace(case, args={**case.args, **sizes}, gpus=None, nnodes=sizes.get("nnodes", case.nnodes))


def _same(one: Verdict, other: Verdict | None) -> bool:
    return other is not None and (one.outcome, one.decision) == (other.outcome, other.decision)


def _worse_anyway(verdict: Verdict) -> bool:
    """Too many ranks for the GPUs that are there: a larger size of something else makes no room."""
    return verdict.rule == "gpu-kinds" and verdict.outcome is Outcome.FAILS


def _told(
    release: Sglang, plain: Judgement, depends: Mapping[str, list[str]], unsaid: Mapping[str, Value]
) -> Judgement:
    if not depends:
        return plain
    args = dict(plain.args)
    verdicts: list[Verdict] = []
    for verdict in plain.verdicts:
        names = depends.get(verdict.flag)
        if names is None:
            verdicts.append(verdict)
            continue
        for name in verdict.replacement:
            args.pop(name, None)
        if verdict.automatic:
            continue  # nobody asked for it, and nobody can tell
        args[verdict.flag] = verdict.value
        shown = " and ".join(f"{name} ({_text(unsaid[name])})" for name in names)
        reason = f"What it does depends on {shown}, whose value is not known here."
        todo = f"Give {' and '.join(names)} a value, or set the variable before the command."
        verdicts.append(
            Verdict(verdict.flag, verdict.value, Outcome.UNKNOWN, Decision.WARN, reason, verdict.rule, todo=todo)
        )
    found = tuple(verdicts)
    rendered = parser.render(release, args)
    return replace(plain, verdicts=found, decision=policy.overall(found), args=args, argv=rendered)


def _text(value: Value) -> str:
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)
