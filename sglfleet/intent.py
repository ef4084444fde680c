"""What should run where: inventory, group data and service files to (host, service) pairs, every override located."""

from __future__ import annotations

import ast
import difflib
import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from sglfleet.inventory import Host, Inventory
from validators.load import FlagTypes, Loaded, load_file, load_launch, merge
from validators.service import LaunchOverride, Service
from validators.source import Mark, Problem

SERVICES = Path("group_data") / "services"


@dataclass(frozen=True, slots=True)
class Placement:
    """One service on one host. `loaded` knows the place of every key, an override's included."""

    host: Host
    loaded: Loaded
    service: Service
    launch: LaunchOverride | None = None
    rank: int = 0  # among the nodes of the service, 0 where it is no multi-node service
    nodes: tuple[str, ...] = ()  # names of the hosts of a multi-node service, by rank


@dataclass(frozen=True, slots=True)
class Conflict:
    """Services that want the same GPU or port of a host. It is refused, as no file alone is wrong."""

    host: str
    services: tuple[str, ...]
    problem: Problem


@dataclass(frozen=True, slots=True)
class Intents:
    """All pairs in inventory order, and everything that is wrong."""

    placements: tuple[Placement, ...]
    problems: tuple[Problem, ...] = ()
    notes: tuple[Problem, ...] = ()
    conflicts: tuple[Conflict, ...] = ()
    services: dict[str, Loaded] = field(default_factory=dict)


def intents(inventory: Inventory, root: Path, types: FlagTypes | None = None) -> Intents:
    """Every (host, service) pair. Never raises for bad input: read `problems` first, it means exit 2."""
    return _Reader(inventory, root, types).read()


class _Reader:
    def __init__(self, inventory: Inventory, root: Path, types: FlagTypes | None) -> None:
        self.inventory, self.root, self.types = inventory, root, types
        self.problems: set[Problem] = set()
        self.notes: set[Problem] = set()
        self.merged: dict[tuple[str, str], Loaded] = {}
        self.checked: set[tuple[str, str]] = set()

    def read(self) -> Intents:
        self.services = self.load_services()
        self.check_groups()
        placements = [p for host in self.inventory.hosts.values() for p in self.of_host(host)]
        if not self.inventory.hosts and not self.problems:
            todo = 'write GROUP = ["HOST", …]: a list of names, or of (name, {data}), is a group'
            self.problems.add(Problem(Mark("inventory"), "no host in it", todo))
        if not placements and not self.problems:
            what = "no host has a service"
            todo = "write services = [\"NAME\"] into a group's or a host's data"
            self.problems.add(Problem(Mark("group_data"), what, todo))
        return Intents(
            tuple(placements),
            tuple(sorted(self.problems)),
            tuple(sorted(self.notes)),
            tuple(conflicts(placements)),
            self.services,
        )

    def check_groups(self) -> None:
        """`services = ["NAME"]` in an inventory: pyinfra takes the list for a group of hosts called `services`."""
        hosts = self.inventory.groups.get("services", ())
        if hosts and all(host in self.services for host in hosts):
            what = f"`services` is taken for a group of hosts here, and {', '.join(hosts)} for a host"
            todo = "write `services = […]` into group_data/GROUP.py, or the data of a host, and name an inventory"
            self.problems.add(Problem(Mark("inventory"), what, todo))

    def load_services(self) -> dict[str, Loaded]:
        """Every service file, used or not: an error in one that is not used yet is an error too."""
        found: dict[str, Loaded] = {}
        folder = self.root / SERVICES
        for path in sorted([*folder.glob("*.yaml"), *folder.glob("*.yml")]):
            loaded = load_file(path, self.types, str(SERVICES / path.name))
            self.problems.update(loaded.problems)
            self.notes.update(loaded.notes)
            name = loaded.service.service if loaded.service else path.stem
            if name in found:
                what = f"service `{name}` is defined in {found[name].file} too"
                self.problems.add(Problem(loaded.where("service"), what, "rename one"))
            found[name] = loaded
        return found

    def of_host(self, host: Host) -> list[Placement]:
        levels = host.having("services")
        if not levels:
            return []
        origin, names = levels[-1]
        if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
            self.problems.add(
                Problem(self.mark(origin, "services"), "`services` is no list of names", 'write ["NAME"]')
            )
            return []
        found = []
        for name in dict.fromkeys(names):
            base = self.services.get(name)
            if base is None:
                self.problems.add(Problem(self.mark(origin, "services"), f"no service `{name}`", self.hint(name)))
            elif base.service is not None and (placement := self.place(host, name, base)):
                found.append(placement)
        return found

    def hint(self, name: str) -> str:
        close = difflib.get_close_matches(name, self.services, 1)
        return f"did you mean `{close[0]}`?" if close else f"add {SERVICES / (name + '.yaml')}"

    def place(self, host: Host, name: str, base: Loaded) -> Placement | None:
        changes = []
        for origin, overrides in host.having("service_overrides"):
            if not isinstance(overrides, dict):
                mark = self.mark(origin, "service_overrides")
                self.problems.add(Problem(mark, "`service_overrides` is no mapping", 'write {"NAME": {"args": {…}}}'))
                continue
            for unknown in overrides.keys() - self.services.keys():
                mark = self.mark(origin, "service_overrides", str(unknown))
                self.problems.add(Problem(mark, f"no service `{unknown}`", self.hint(str(unknown))))
            if name in overrides:
                changes.append((origin, overrides[name]))
        loaded = self.merge(name, base, changes)
        if loaded.service is None:
            return None
        launch = self.launch(host, name)
        nodes = self.nodes_of(host, loaded)
        rank = nodes.index(host.name) if host.name in nodes else 0
        self.check_canary(loaded, name)
        return Placement(host, loaded, loaded.service, launch, rank, nodes)

    def merge(self, name: str, base: Loaded, changes: list[tuple[str, Any]]) -> Loaded:
        if not changes:
            return base
        # host levels have an origin per host: the same change there is the same service
        key = (name, json.dumps([change for _, change in changes], default=repr, sort_keys=True))
        if key not in self.merged:
            located = [(self.places(origin, "service_overrides", name), change) for origin, change in changes]
            loaded = merge(base, located, self.types)
            if loaded.service and loaded.service.service != name:
                what, todo = f"an override renames service `{name}`", "make a service file of its own"
                self.problems.add(Problem(loaded.where("service"), what, todo))
                loaded = replace(loaded, service=None)
            self.merged[key] = loaded
            self.problems.update(loaded.problems)
            self.notes.update(loaded.notes)
        return self.merged[key]

    def launch(self, host: Host, name: str) -> LaunchOverride | None:
        levels = host.having("launch_override")
        if not levels:
            return None
        origin, data = levels[-1]
        mark = self.mark(origin, "launch_override")
        if not host.get("lab"):
            todo = "remove it, or set `lab = True` where hosts only play GPUs"
            self.problems.add(Problem(mark, "`launch_override` outside a lab", todo))
            return None
        if not isinstance(data, dict) or not all(isinstance(part, dict) for part in data.values()):
            self.problems.add(
                Problem(mark, "`launch_override` is no mapping", 'write {"*": {"args": {…}, "env": {…}}}')
            )
            return None
        both = {**data.get("*", {})}
        for key, value in data.get(name, {}).items():
            same = isinstance(value, dict) and isinstance(both.get(key), dict)
            both[key] = {**both[key], **value} if same else value
        override, problems = load_launch(both, str(mark))
        self.problems.update(problems)
        return override

    def nodes_of(self, host: Host, loaded: Loaded) -> tuple[str, ...]:
        spec = loaded.service.nodes if loaded.service else None
        if spec is None:
            return ()
        members = self.inventory.groups.get(spec.group)
        mark = loaded.where("nodes", "group")
        if members is None:
            close = difflib.get_close_matches(spec.group, self.inventory.groups, 1)
            todo = f"did you mean `{close[0]}`?" if close else "name a group of the inventory"
            self.problems.add(Problem(mark, f"no group `{spec.group}` in this inventory", todo))
            return ()
        if host.name not in members:
            what = f"{host.name} runs this service, but is not in its group `{spec.group}`"
            self.problems.add(Problem(mark, what, "give the service to the group's hosts only"))
        return tuple(sorted(members)) if spec.rank_by == "name" else members

    def check_canary(self, loaded: Loaded, name: str) -> None:
        service = loaded.service
        if service is None or not isinstance(service.rollout.canary, tuple) or (name, loaded.file) in self.checked:
            return
        self.checked.add((name, loaded.file))
        for i, host in enumerate(service.rollout.canary):
            if host not in self.inventory.hosts:
                close = difflib.get_close_matches(host, self.inventory.hosts, 1)
                todo = f"did you mean `{close[0]}`?" if close else "name a host of the inventory"
                mark = loaded.where("rollout", "canary", i)
                self.notes.add(Problem(mark, f"canary `{host}` is not in this inventory", todo))

    def mark(self, origin: str, *path: str) -> Mark:
        return python_mark(self.root, origin, path)

    def places(self, origin: str, *before: str) -> Callable[[tuple[str | int, ...]], Mark]:
        return lambda path: python_mark(self.root, origin, (*before, *map(str, path)))


def _tree(file: Path) -> ast.Module | None:
    try:
        return _parsed(file.read_text(encoding="utf-8"))
    except (OSError, SyntaxError, ValueError):
        return None


@cache
def _parsed(text: str) -> ast.Module:
    return ast.parse(text)


def python_mark(root: Path, origin: str, path: tuple[str, ...]) -> Mark:
    """The place of a variable in a group data file, followed into its dict literal as far as it is one."""
    tree = _tree(root / origin) if origin.endswith(".py") else None
    best: ast.AST | None = None
    value: ast.AST | None = None
    for node in tree.body if tree else ():
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if any(isinstance(target, ast.Name) and target.id == path[0] for target in targets):
            best, value = node, getattr(node, "value", None)
    for step in path[1:]:
        if not isinstance(value, ast.Dict):
            break
        pairs = zip(value.keys, value.values, strict=True)
        hit = next(((k, v) for k, v in pairs if isinstance(k, ast.Constant) and str(k.value) == step), None)
        if hit is None:
            break
        best, value = hit
    if best is None:
        return Mark(f"{origin}, {path[0]}")
    return Mark(origin, getattr(best, "lineno", 0), getattr(best, "col_offset", 0) + 1)


def conflicts(placements: list[Placement]) -> list[Conflict]:
    """GPUs and ports of one host that several services want: one for each set of services, however many they are."""
    found = []
    by_host: dict[str, list[Placement]] = {}
    for placement in placements:
        by_host.setdefault(placement.host.name, []).append(placement)
    for host, group in by_host.items():
        if len(group) > 1:
            found += [*_gpu_clashes(host, group), *_port_clashes(host, group)]
    return found


def _gpu_clashes(host: str, group: list[Placement]) -> list[Conflict]:
    wanting: dict[int, list[int]] = {}
    for number, placement in enumerate(group):
        for gpu in placement.service.gpus:
            wanting.setdefault(gpu, []).append(number)
    clashes: dict[tuple[int, ...], list[int]] = {}
    for gpu, numbers in sorted(wanting.items()):
        if len(numbers) > 1:
            clashes.setdefault(tuple(numbers), []).append(gpu)
    return [
        _conflict(host, [group[n] for n in numbers], f"`gpus`: {', '.join(map(str, gpus))}", ("gpus",))
        for numbers, gpus in clashes.items()
    ]


def _port_clashes(host: str, group: list[Placement]) -> list[Conflict]:
    everywhere = {"0.0.0.0", "::", "*"}  # noqa: S104 - compared, not bound
    ports: dict[int, list[Placement]] = {}
    for placement in group:
        ports.setdefault(placement.service.port, []).append(placement)
    found = []
    for port, same in sorted(ports.items()):
        binds: dict[str, list[Placement]] = {}
        for placement in same:
            binds.setdefault(placement.service.bind, []).append(placement)
        sets = [same] if binds.keys() & everywhere else list(binds.values())
        found += [_conflict(host, one, f"port {port}", ("args", "port")) for one in sets if len(one) > 1]
    return found


def _conflict(host: str, wanting: list[Placement], of: str, path: tuple[str, ...]) -> Conflict:
    names = tuple(placement.service.service for placement in wanting)
    shown = ", ".join(f"`{name}`" for name in names[:-1]) + f" and `{names[-1]}`"
    todo = "give each service GPUs of its own" if path == ("gpus",) else "set `port` in `args:`"
    problem = Problem(wanting[1].loaded.where(*path), f"{of} wanted by services {shown} on the same host", todo)
    return Conflict(host, names, problem)
