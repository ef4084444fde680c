"""pyinfra inventories and group data, read as pyinfra reads them, without connecting and without its imports.

pyinfra needs 0.7 s to import, a check of a whole fleet less. So the rules of `pyinfra_cli.inventory.make_inventory`
and `pyinfra.api.inventory.Inventory` (3.10.0) are followed here, and what only pyinfra can know (other connectors,
inventories that are functions, group data that looks into the inventory) is asked of pyinfra itself.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from validators.source import InputError, Mark, Problem

OVERRIDE = "--data"  # origin of data given on pyinfra's command line


@dataclass(frozen=True, slots=True)
class Layer:
    """One level of data, and where it comes from."""

    origin: str
    data: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Host:
    """A host of the inventory. Data levels stand in rising precedence: all, groups in order, host, command line."""

    name: str
    groups: tuple[str, ...]
    layers: tuple[Layer, ...]

    def get(self, key: str, default: Any = None) -> Any:
        """`host.data.get(key)` as pyinfra answers it."""
        return next((layer.data[key] for layer in reversed(self.layers) if key in layer.data), default)

    @property
    def data(self) -> dict[str, Any]:
        """All levels merged, as `host.data.dict()`."""
        return {key: value for layer in self.layers for key, value in layer.data.items()}

    def having(self, key: str) -> tuple[tuple[str, Any], ...]:
        """(origin, value) of every level that sets `key`, in rising precedence."""
        return tuple((layer.origin, layer.data[key]) for layer in self.layers if key in layer.data)


@dataclass(frozen=True, slots=True)
class Inventory:
    """Hosts by name, in the inventory's order, and groups as lists of names."""

    hosts: dict[str, Host]
    groups: dict[str, tuple[str, ...]] = field(default_factory=dict)


def project_root(inventory: str, cwd: Path | None = None) -> Path:
    """The folder with group_data/: the working directory, else the nearest above the inventory that has one."""
    cwd = (cwd or Path.cwd()).resolve()
    path = Path(inventory)
    if (cwd / "group_data").is_dir() or not path.exists():
        return cwd
    return next((up for up in path.resolve().parents if (up / "group_data").is_dir()), cwd)


def read_inventory(inventory: str, root: Path | None = None, override: dict[str, Any] | None = None) -> Inventory:
    """An inventory as `pyinfra INVENTORY` run in `root` sees it.

    Raises:
        InputError: a file cannot be read, or its code fails; says where.
    """
    root = root or project_root(inventory)
    if str(root) not in sys.path:
        sys.path.append(str(root))  # as pyinfra does, so that inventories can import the project's own modules
    path = Path(inventory)
    if not path.exists() and "," not in inventory and "@" not in inventory:
        if inventory.endswith(".py") or "/" in inventory:
            raise InputError([Problem(Mark(inventory), "there is no such inventory", "check the path")])
        return _ask_pyinfra(inventory, root, override)
    if path.is_file() and (what := _no_inventory(path)):
        raise InputError([Problem(Mark(inventory), what, "name an inventory, such as inventory/prod.py")])
    had_pyinfra = "pyinfra" in sys.modules
    folders = _group_data_folders(path, root)
    files = [path] * path.is_file() + [file for folder in folders for file in sorted(folder.glob("*.py"))]
    if any(_mentions_pyinfra(file) for file in files):
        return _ask_pyinfra(inventory, root, override)
    try:
        found = _from_files(inventory, folders, override or {}, root)
    except _OnlyPyinfraError:
        found = None
    if found is None or ("pyinfra" in sys.modules and not had_pyinfra):
        return _ask_pyinfra(inventory, root, override)
    return found


def _no_inventory(path: Path) -> str:
    """Why a file is none, where its place or its name says so: its lists would be taken for groups of hosts."""
    above = path.resolve().parts[:-1]
    if path.suffix in (".yaml", ".yml"):
        return "a service file, no inventory" if above[-2:] == ("group_data", "services") else "YAML, no inventory"
    return "group data, no inventory" if above[-1:] == ("group_data",) else ""


class _OnlyPyinfraError(Exception):
    """This inventory has something that only pyinfra can expand."""


def _group_data_folders(path: Path, root: Path) -> list[Path]:
    folders = [root / "group_data"]
    beside = path.parent.resolve()
    if beside != root:
        folders.append(beside / "group_data")
    return [folder for folder in folders if folder.is_dir()]


def _mentions_pyinfra(file: Path) -> bool:
    return bool(re.search(rb"(?m)^\s*(from|import)\s+pyinfra\b", file.read_bytes()))


def _execute(file: Path, root: Path) -> dict[str, Any]:
    """The globals of a Python file, as `pyinfra_cli.util.exec_file` makes them."""
    shown = _shown(file, root)
    try:
        text = file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise InputError([Problem(Mark(shown), f"not UTF-8: {error.reason}", "save it as UTF-8")]) from None
    except OSError as error:
        what = f"cannot be read: {(error.strerror or str(error)).lower()}"
        raise InputError([Problem(Mark(shown), what, "name the inventory's file")]) from None
    names: dict[str, Any] = {"__file__": str(file)}
    try:
        exec(compile(text, str(file), "exec"), names)  # noqa: S102 - inventories are code
    except SyntaxError as error:
        mark = Mark(shown, error.lineno or 1, error.offset or 1)
        raise InputError([Problem(mark, f"not Python: {error.msg}", "correct the line")]) from None
    except (Exception, SystemExit) as error:  # whatever the user's code raises is theirs to see, at its line
        line = 0
        trace = error.__traceback__
        while trace is not None:
            line = trace.tb_lineno if trace.tb_frame.f_code.co_filename == str(file) else line
            trace = trace.tb_next
        what = f"the file's own code failed: {type(error).__name__}: {error}"
        raise InputError([Problem(Mark(shown, line, 1), what, "correct it")]) from None
    return names


def _shown(file: Path, root: Path) -> str:
    try:
        return str(file.resolve().relative_to(root.resolve()))
    except ValueError:
        return str(file)


def _first(item: Any) -> Any:
    return item[0] if isinstance(item, tuple) and item else item


def _is_group(name: str, value: Any) -> bool:
    if name.startswith("_") or not isinstance(value, list | tuple):
        return False
    hosts = _first(value) if isinstance(value, tuple) else value
    return isinstance(hosts, Iterable) and all(isinstance(item, str | tuple) for item in hosts)


def _imported(file: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Import):
            names |= {alias.asname or alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names |= {alias.asname or alias.name for alias in node.names}
    return names


def _group_data(folders: list[Path], root: Path) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
    data: dict[str, dict[str, Any]] = {}
    origins: dict[str, str] = {}
    for folder in folders:
        for file in sorted(folder.glob("*.py")):
            names = _execute(file, root)
            hidden = set() if "__all__" in names else _imported(file)
            keys = names.get("__all__", names)
            own = {k: v for k, v in names.items() if k in keys and k not in hidden and not k.startswith("__")}
            data.setdefault(file.stem, {}).update(own)
            origins[file.stem] = _shown(file, root)
    return data, origins


def _from_files(inventory: str, folders: list[Path], override: dict[str, Any], root: Path) -> Inventory:
    path = Path(inventory)
    file_group = ""
    groups: dict[str, Any] = {}
    if path.exists():
        groups = {name: value for name, value in _execute(path, root).items() if _is_group(name, value)}
        file_group = path.name.rsplit(".", 1)[0]
    else:
        groups["all"] = inventory.split(",")
    shown = _shown(path, root) if path.exists() else "the command line"
    all_data: dict[str, Any] = {}
    if "all" in groups:
        all_hosts = groups.pop("all")
        if isinstance(all_hosts, tuple):
            all_hosts, all_data = _pair(all_hosts, "all", shown)
    else:
        names = (_first(host) for hosts in groups.values() for host in _first(hosts))
        all_hosts = list(dict.fromkeys(names))
    if file_group and file_group not in groups and file_group != "all":
        groups[file_group] = list(all_hosts)
    data, origins = _group_data(folders, root)
    members: dict[str, tuple[list[Any], dict[str, Any]]] = {}
    for name, value in groups.items():
        hosts, own = _pair(value, name, shown) if isinstance(value, tuple) else (value, {})
        members[name] = (hosts, {**own, **data.get(name, {})})
    layers = {name: Layer(origins.get(name, f"{shown}, group {name}"), own) for name, (_, own) in members.items()}
    layers |= {name: Layer(origins[name], own) for name, own in data.items() if name not in layers and name != "all"}
    top = Layer(origins.get("all", f"{shown}, all"), {**all_data, **data.get("all", {})})
    return _assemble(all_hosts, {name: hosts for name, (hosts, _) in members.items()}, layers, top, override, shown)


def _pair(value: tuple[Any, ...], name: str, shown: str) -> tuple[list[Any], dict[str, Any]]:
    if len(value) != 2 or not isinstance(value[0], list | tuple) or not isinstance(value[1], dict):
        what = f"group `{name}` is a tuple, but not one of hosts and data"
        raise InputError([Problem(Mark(shown), what, "write a list of hosts, or ([hosts], {data})")])
    return list(value[0]), value[1]


def _expand(name: str) -> Iterator[tuple[str, dict[str, Any], list[str]]]:
    """What the connectors that only name hosts make of a name; others are left to pyinfra."""
    if not name.startswith("@"):
        yield name, {}, []
        return
    connector, _, rest = name[1:].partition("/")
    if connector == "ssh" and rest:
        yield f"@ssh/{rest}", {"ssh_hostname": rest}, []
    elif connector == "local" and not rest:
        yield "@local", {}, ["@local"]
    elif connector == "fake":
        parts = [part.strip() for part in rest.split(",") if part.strip()]
        yield from ((f"@fake/{part}", {}, ["@fake"]) for part in parts)
        if not rest:
            yield "@fake", {}, ["@fake"]
    else:
        raise _OnlyPyinfraError


def _assemble(
    all_hosts: Iterable[Any],
    groups: dict[str, list[Any]],
    group_layers: dict[str, Layer],
    top: Layer,
    override: dict[str, Any],
    shown: str,
) -> Inventory:
    own: dict[str, dict[str, Any]] = {}
    in_groups: dict[str, list[str]] = {}
    for group, hosts in groups.items():
        for host in hosts:
            name, data = _named(host, shown)
            own.setdefault(name, {}).update(data)
            in_groups.setdefault(name, []).append(group)
    names = []
    for host in all_hosts:
        name, data = _named(host, shown)
        own.setdefault(name, {}).update(data)
        names.append(name)
    data_of: dict[str, dict[str, Any]] = {}
    for name in names:
        for sub, data, extra in _expand(name):
            data_of[sub] = {**data, **own[name]}
            belongs = in_groups.setdefault(sub, [])
            belongs.extend(extra)
            if name.startswith("@"):  # the groups of the connector's name, which may be the host's own once more
                belongs.extend(list(in_groups.get(name, ())))
    members: dict[str, dict[str, None]] = {}
    last = (Layer(OVERRIDE, override),) if override else ()
    found: dict[str, Host] = {}
    for name, data in data_of.items():
        levels = tuple(group_layers[group] for group in in_groups[name] if group in group_layers)
        layer = Layer(f"{shown}, host {name}", data)
        found[name] = Host(name, tuple(in_groups[name]), (top, *levels, layer, *last))
        for group in in_groups[name]:
            members.setdefault(group, {})[name] = None
    return Inventory(found, {group: tuple(hosts) for group, hosts in members.items()})


def _named(host: Any, shown: str) -> tuple[str, dict[str, Any]]:
    name, data = (host[0], host[1]) if isinstance(host, tuple) and len(host) == 2 else (host, {})
    if not isinstance(name, str) or not name or not isinstance(data, dict):
        raise InputError([Problem(Mark(shown), f"`{host!r}` is no host", 'write "name" or ("name", {data})')])
    return name, data


def from_pyinfra(inventory: Any, root: Path | None = None) -> Inventory:
    """The same from pyinfra's live `Inventory` object; `root` is where group_data/ is, to name its files."""

    def origin(group: str) -> str:
        file = Path("group_data") / f"{group}.py"
        return str(file) if ((root or Path.cwd()) / file).is_file() else f"group {group}"

    layers = {name: Layer(origin(name), dict(data)) for name, data in inventory.group_data.items()}
    top = Layer(origin("all"), dict(inventory.get_data() or {}))
    override = inventory.get_override_data()
    last = (Layer(OVERRIDE, dict(override)),) if override else ()
    hosts = {}
    for host in inventory:
        own = Layer(f"host {host.name}", dict(inventory.get_host_data(host.name)))
        levels = tuple(layers[group] for group in host.groups if group in layers)
        hosts[host.name] = Host(host.name, tuple(host.groups), (top, *levels, own, *last))
    groups = {name: tuple(host.name for host in members) for name, members in inventory.groups.items() if members}
    return Inventory(hosts, groups)


def _ask_pyinfra(inventory: str, root: Path, override: dict[str, Any] | None) -> Inventory:
    from pyinfra.api.exceptions import PyinfraError
    from pyinfra.api.state import State
    from pyinfra.context import ctx_state
    from pyinfra_cli.exceptions import CliError
    from pyinfra_cli.inventory import make_inventory

    if Path(inventory).exists():
        inventory = str(Path(inventory).resolve())  # pyinfra keeps compiled files by the name it is given
    try:
        with ctx_state.use(State()):
            found = from_pyinfra(make_inventory(inventory, override_data=override, cwd=str(root)), root)
    except (PyinfraError, CliError, TypeError, ValueError) as error:
        cause = getattr(error, "exception", error)
        what = f"pyinfra cannot load it: {type(cause).__name__}: {cause}"
        raise InputError([Problem(Mark(inventory), what, "correct the inventory")]) from None
    if not found.hosts and not Path(inventory).exists():
        raise InputError([Problem(Mark(inventory), "neither a file, hosts, nor a function", "check the name")])
    return found
