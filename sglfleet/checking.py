"""Pre-merge validation: every host × service from recorded or declared facts. No network, no GPU, no root."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from sglfleet import gate, hints, record
from sglfleet.intent import Intents, Placement, intents
from sglfleet.inventory import Inventory, project_root, read_inventory
from sglfleet.report.model import Cause, Pair, Report, Summary
from validators.classes import HostClass, against_declared, grave
from validators.facts import HostFacts
from validators.flagtypes import flag_types
from validators.hardware import HardwareError, declared
from validators.source import InputError, Mark, Problem
from validators.verdict import Decision, Judgement, Outcome, Overall, Verdict

Judge = Callable[[Placement, HostFacts, date, Mapping[str, Any] | None], Judgement]


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of one host, and why there is nothing."""

    facts: HostFacts
    label: str  # hosts with the same label have the same facts
    said: tuple[str, ...] = ()  # where record and declaration disagree


@dataclass(frozen=True, slots=True)
class Group:
    """One service on hosts that are alike, judged once."""

    placements: tuple[Placement, ...]
    facts: HostFacts
    judgement: Judgement


Ready = tuple["Checker", Inventory, Intents, dict[str, Known]]


def check(inventory: str, today: date, *, strict: bool = False, root: Path | None = None) -> Report:
    """Everything there is to say about an inventory. Bad input ends up in `problems`, never as an exception."""
    ready = prepare(inventory, today, strict=strict, root=root)
    if isinstance(ready, Report):
        return ready
    checker, hosts, found, known = ready
    return checker.run(hosts, found, known)


def prepare(inventory: str, today: date, *, strict: bool = False, root: Path | None = None) -> Report | Ready:
    """Everything read, nothing judged yet; a report where that is impossible."""
    root = root or project_root(inventory)
    problems: set[Problem] = set()
    classes: list[HostClass] = []
    known: dict[str, Known] = {}
    try:
        hosts = read_inventory(inventory, root)
    except InputError as error:
        return Report(inventory, 0, 0, problems=error.problems, strict=strict)
    found = intents(hosts, root, flag_types)
    try:
        classes = record.load(root)
    except InputError as error:
        problems.update(error.problems)
    try:
        known = facts_of(hosts, classes)
    except InputError as error:
        problems.update(error.problems)
    if problems:
        every = tuple(sorted({*problems, *found.problems}))
        return Report(inventory, len(hosts.hosts), 0, problems=every, notes=found.notes, strict=strict)
    return Checker(inventory, root, today, strict), hosts, found, known


def facts_of(hosts: Inventory, classes: list[HostClass]) -> dict[str, Known]:
    """Facts of every host: recorded, else declared, else unknown. Both: the record counts, and must agree."""
    recorded = {host: one for one in classes for host in one.hosts}
    wanted: dict[str, HostFacts] = {}
    problems: set[Problem] = set()
    found: dict[str, Known] = {}
    compared: dict[tuple[str, str], tuple[str, ...]] = {}
    for host in hosts.hosts.values():
        levels = host.having("gpu")
        key = json.dumps(levels[-1][1], default=repr, sort_keys=True) if levels else ""
        if levels and key not in wanted:
            try:
                wanted[key] = declared("", levels[-1][1])
            except HardwareError as error:
                problems.add(Problem(Mark(levels[-1][0]), f"`gpu`: {error.what}", error.todo))
                continue
        one = recorded.get(host.name)
        if one and levels:
            pair = (one.name, key)
            if pair not in compared:
                compared[pair] = tuple(against_declared(wanted[key], one.facts))
            found[host.name] = Known(one.facts, f"{one.name} {key}", compared[pair])
        elif one:
            found[host.name] = Known(one.facts, one.name)
        elif levels:
            found[host.name] = Known(wanted[key], key)
        else:
            found[host.name] = Known(HostFacts(gpu_error="neither recorded nor declared"), "")
    if problems:
        raise InputError(tuple(problems))
    return found


class Checker:
    """Judges each (service, host class) once, however many hosts share it."""

    def __init__(self, inventory: str, root: Path, today: date, strict: bool, judge: Judge = gate.judge) -> None:
        self.inventory, self.root, self.today, self.strict, self.judge = inventory, root, today, strict, judge
        self.notes: set[Problem] = set()
        self.configs: dict[str, Any] = {}
        self.causes: dict[Cause, list[str]] = {}
        self.judged: list[Group] = []
        self.decided: dict[tuple[str, str], str] = {}  # (host, service) -> decision

    def run(self, hosts: Inventory, found: Intents, known: dict[str, Known]) -> Report:
        groups: dict[tuple[int, str, int], list[Placement]] = {}
        for placement in found.placements:
            key = (id(placement.loaded), known[placement.host.name].label, len(placement.nodes))
            groups.setdefault(key, []).append(placement)
        pairs: dict[tuple[str, str], Pair] = {}
        clashing = {(conflict.host, name) for conflict in found.conflicts for name in conflict.services}
        for group in groups.values():
            self.judge_group(group, known[group[0].host.name], pairs, clashing)
        for cause, names in hints.causes(self.judged, self.today):
            self.add(cause, names)
        for conflict in found.conflicts:
            problem = conflict.problem
            cause = Cause(
                "error",
                "conflict",
                ", ".join(conflict.services),
                "",
                problem.what,
                problem.todo,
                problem.mark,
                (),
                "fails",
                "refuse",
            )
            self.add(cause, [conflict.host])
        ordered = tuple(pairs[placement.host.name, placement.service.service] for placement in found.placements)
        return Report(
            self.inventory,
            len(hosts.hosts),
            len({known[p.host.name].label for p in found.placements}),
            summaries(found, ordered),
            self.grouped(),
            found.problems,
            tuple(sorted({*found.notes, *self.notes})),
            ordered,
            strict=self.strict,
        )

    def judge_group(
        self,
        group: list[Placement],
        known: Known,
        pairs: dict[tuple[str, str], Pair],
        clashing: set[tuple[str, str]],
    ) -> None:
        first = group[0]
        name = first.service.service
        names = [placement.host.name for placement in group]
        judgement = self.judge(first, known.facts, self.today, self.config(first))
        self.judged.append(Group(tuple(group), known.facts, judgement))
        decision = judgement.decision
        for verdict in judgement.verdicts:
            if cause := cause_of(first, verdict):
                self.add(cause, names)
        for said in known.said:
            level = "error" if grave([said]) else "warning"
            decision = Overall.REFUSE if level == "error" else decision
            todo = "Correct the declaration (`gpu`), or record the facts anew."
            mark = Mark(first.host.having("gpu")[-1][0])
            self.add(Cause(level, "declared-hardware", name, "", said, todo, mark, (), "unknown", "refuse"), names)
        for host in names:
            refused = (host, name) in clashing
            word = Overall.REFUSE.value if refused else decision.value
            pairs[host, name] = Pair(host, name, word, judgement.argv)
            self.decided[host, name] = word

    def add(self, cause: Cause, hosts: list[str]) -> None:
        self.causes.setdefault(cause, []).extend(hosts)

    def grouped(self) -> tuple[Cause, ...]:
        from dataclasses import replace

        from sglfleet.report.model import LEVELS

        found = [replace(cause, hosts=tuple(hosts)) for cause, hosts in self.causes.items()]
        return tuple(sorted(found, key=lambda c: (LEVELS.index(c.level), c.service, c.mark, c.what, c.reason)))

    def config(self, placement: Placement) -> Mapping[str, Any] | None:
        """The model's config.json as the project keeps it."""
        name = placement.service.model.config
        if name is None:
            return None
        if name not in self.configs:
            try:
                read = json.loads((self.root / name).read_text(encoding="utf-8"))
                if not isinstance(read, dict):
                    raise ValueError("not a JSON object")
                self.configs[name] = read
            except (OSError, ValueError) as error:
                mark = placement.loaded.where("model", "config")
                what = f"`model.config`: {name} cannot be read ({getattr(error, 'strerror', '') or error})"
                self.notes.add(Problem(mark, what, "copy the model's config.json there"))
                self.configs[name] = None
        found: Mapping[str, Any] | None = self.configs[name]
        return found


def cause_of(placement: Placement, verdict: Verdict) -> Cause | None:
    """What a person should read of a verdict; None for a flag that simply works."""
    if verdict.decision is Decision.KEEP and verdict.outcome is Outcome.ACTIVE:
        return None
    if verdict.decision is Decision.KEEP and verdict.automatic:
        return None
    if verdict.rule == "knowledge" and verdict.flag != "engine.sglang":
        return None  # nothing is known of the release: said once, not for every flag
    levels = {Decision.REFUSE: "error", Decision.DROP: "warning", Decision.REPLACE: "warning", Decision.WARN: "warning"}
    value = json.dumps(verdict.value, ensure_ascii=False) if not isinstance(verdict.value, str) else verdict.value
    instead = ", ".join(f"{flag}: {_plain(value)}" for flag, value in verdict.replacement.items())
    return Cause(
        level=levels.get(verdict.decision, "note"),
        rule=verdict.rule,
        service=placement.service.service,
        what=f"{verdict.flag}: {value}" if verdict.value is not None else verdict.flag,
        reason=verdict.reason,
        todo=verdict.todo,
        mark=place(placement, verdict),
        outcome=verdict.outcome.value,
        decision=verdict.decision.value,
        evidence=tuple(
            f"{item.artifact} {item.file}{f':{item.line}' if item.line else ''} {item.symbol}".rstrip()
            for item in verdict.evidence
        ),
        becomes=instead or verdict.becomes,
        waiver=verdict.waiver,
    )


def place(placement: Placement, verdict: Verdict) -> Mark:
    """The YAML key that a verdict is about; for what the engine does by itself, `args`."""
    loaded = placement.loaded
    for path in (("args", verdict.flag), ("env", verdict.flag), tuple(verdict.flag.split("."))):
        if path in loaded.marks:
            return loaded.marks[path]
    return loaded.where("args")


def _plain(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def summaries(found: Intents, pairs: tuple[Pair, ...]) -> tuple[Summary, ...]:
    """One line per service, in the order of the names."""
    counts: dict[str, dict[str, int]] = {}
    for pair in pairs:
        row = counts.setdefault(pair.service, {})
        row[pair.decision] = row.get(pair.decision, 0) + 1
    releases: dict[str, list[str]] = {}
    files: dict[str, str] = {}
    for placement in found.placements:
        names = releases.setdefault(placement.service.service, [])
        if placement.service.engine.sglang not in names:
            names.append(placement.service.engine.sglang)
        files[placement.service.service] = placement.loaded.file
    return tuple(
        Summary(name, files[name], ", ".join(sorted(releases[name])), **row) for name, row in sorted(counts.items())
    )
