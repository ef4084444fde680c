"""What a change does to the fleet: the tree as it is against a git revision."""

from __future__ import annotations

import io
import subprocess
import tarfile
import tempfile
from dataclasses import replace
from datetime import date
from pathlib import Path

from sglfleet.inventory import project_root
from sglfleet.report.change import Change, Moved, Roll
from sglfleet.report.model import Report
from sglfleet.snapshot import Snapshot, in_tree, take
from validators.case import Case
from validators.source import Mark, Problem


class BaseError(Exception):
    """The revision cannot be had: what is wrong, and what to do."""

    def __init__(self, what: str, todo: str) -> None:
        super().__init__(what, todo)
        self.what, self.todo = what, todo


def check_against(inventory: str, base: str, today: date, *, strict: bool = False) -> Report:
    """The report of the working tree, with what it changes against `base`."""
    root = project_root(inventory)
    report, now = take(inventory, today, root)
    report = replace(report, strict=strict)
    try:
        before = of_revision(inventory, base, root, today)
    except BaseError as error:
        problem = Problem(Mark(f"--base {base}"), error.what, error.todo)
        return replace(report, problems=tuple(sorted({*report.problems, problem})))
    return replace(report, change=compare(base, before, now))


def of_revision(inventory: str, base: str, root: Path, today: date) -> Snapshot:
    """The snapshot of a revision. The working tree and its index stay as they are.

    Raises:
        BaseError: not in a repository, no such revision, or it cannot be read.
    """
    top = Path(_git(root, "rev-parse", "--show-toplevel").decode().strip())
    if base.startswith("-"):
        raise BaseError("no revision", "name a branch, a tag or a commit")
    _git(root, "rev-parse", "--verify", "--quiet", f"{base}^{{commit}}")
    packed = _git(top, "archive", "--format=tar", base)
    here = Path(inventory)
    name = str(here.resolve().relative_to(root)) if here.exists() and here.resolve().is_relative_to(root) else inventory
    with tempfile.TemporaryDirectory(prefix="sglfleet-base-") as folder:
        with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
            archive.extractall(folder, filter="data")
        tree = Path(folder) / root.relative_to(top.resolve())
        if not (tree / name).exists() and here.exists():
            return Snapshot()  # the inventory is new
        try:
            return in_tree(name, tree, today)
        except RuntimeError as error:
            raise BaseError(f"the revision cannot be read: {error}", "name another one") from None


def _git(folder: Path, *words: str) -> bytes:
    try:
        done = subprocess.run(["git", "-C", str(folder), *words], capture_output=True, check=False)
    except FileNotFoundError:
        raise BaseError("git is not installed", "install git") from None
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        what = said[-1].removeprefix("fatal: ") if said else "no such revision"
        raise BaseError(what, "name a branch, a tag or a commit that was fetched (in CI: fetch-depth: 0)")
    return done.stdout


def compare(base: str, before: Snapshot, now: Snapshot) -> Change:
    """Everything that differs, grouped so that equal changes of many hosts are one."""
    moved: dict[tuple[str, str, str, str], list[str]] = {}
    arrived: dict[str, list[str]] = {}
    left: dict[str, list[str]] = {}
    for service in sorted(before.runs.keys() | now.runs.keys()):
        old, new = before.runs.get(service, {}), now.runs.get(service, {})
        left.setdefault(service, []).extend(host for host in old if host not in new)
        for host, run in new.items():
            if host not in old:
                arrived.setdefault(service, []).append(host)
            elif _differs(before, now, service, host):
                moved.setdefault((service, "", old[host].unit, run.unit), []).append(host)
    return Change(
        base=base,
        moved=tuple(_moved(before, now, service, hosts) for (service, _, _, _), hosts in moved.items()),
        arrived={name: tuple(hosts) for name, hosts in arrived.items() if hosts},
        left={name: tuple(hosts) for name, hosts in left.items() if hosts},
        rolls=tuple(_rolls(before, now)),
        unreadable=tuple(before.problems),
    )


def _differs(before: Snapshot, now: Snapshot, service: str, host: str) -> bool:
    old, new = before.runs[service][host], now.runs[service][host]
    was, is_ = before.units[old.unit], now.units[new.unit]
    return (old.decision, old.verdicts, was["text"], was["argv"]) != (
        new.decision, new.verdicts, is_["text"], is_["argv"]
    )  # fmt: skip


def _moved(before: Snapshot, now: Snapshot, service: str, hosts: list[str]) -> Moved:
    old, new = before.runs[service][hosts[0]], now.runs[service][hosts[0]]
    was, is_ = before.units[old.unit], now.units[new.unit]
    return Moved(
        service=service,
        hosts=tuple(hosts),
        decision=(old.decision, new.decision),
        appeared=tuple(v for v in new.verdicts if v not in old.verdicts),
        vanished=tuple(v for v in old.verdicts if v not in new.verdicts),
        argv=(tuple(was["argv"]), tuple(is_["argv"])),
        unit=(was["text"], is_["text"]),
        engine=(was["sglang"], is_["sglang"]),
        restarts=bool(is_["release"]) and was["release"] != is_["release"],
        upgrade=_upgrade(now.cases.get(new.unit), was["sglang"], is_["sglang"]),
    )


def _upgrade(case: Case | None, old: str, new: str) -> tuple[str, ...]:
    """What another engine does with the same flags, as `sglfleet upgrade` says it."""
    from validators.knowledge import BrokenKnowledgeError, UnknownReleaseError
    from validators.upgrade import Kind, changes

    if case is None or old == new:
        return ()
    try:
        found = changes(replace(case, sglang=old), new)
    except (UnknownReleaseError, BrokenKnowledgeError) as error:
        return (str(error),)
    return tuple(f"{one.flag}: {one.kind.value}: {one.text}" for one in found if one.kind is not Kind.DEFAULT)


def _rolls(before: Snapshot, now: Snapshot) -> list[Roll]:
    """Which hosts restart, in which batches, by the plan that a deploy would make if all of them serve the base."""
    from sglfleet.roll.plan import Node, Policy, plan

    found = []
    for service, runs in now.runs.items():
        spec = now.services[service]
        nodes = []
        for host, run in runs.items():
            old = before.runs.get(service, {}).get(host)
            running = before.units[old.unit]["release"] if old else ""
            target = now.units[run.unit]["release"] or running
            if target:  # refused before and now: no deploy reaches it
                nodes.append(Node(host, target, running, serving=bool(running)))
        canary = spec["canary"]
        names = tuple(canary) if isinstance(canary, list) else tuple(runs)[: canary or 1]
        chosen = plan(nodes, Policy(canary=names, max_unavailable=spec["max_unavailable"]))
        if chosen.batches:
            found.append(Roll(service, tuple((batch.kind, batch.hosts) for batch in chosen.batches)))
    return found
