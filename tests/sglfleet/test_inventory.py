"""Inventories are read as pyinfra reads them: every case is loaded both ways and compared."""

from __future__ import annotations

import os
from pathlib import Path
from textwrap import dedent

import pytest

from sglfleet.inventory import read_inventory
from validators.source import InputError

CASES: dict[str, dict[str, str]] = {
    "plain list": {"inventory/prod.py": 'gpu = ["a", "b"]', "group_data/gpu.py": 'services = ["x"]\nrack = 1'},
    "file group comes last and wins": {
        "inventory/prod.py": 'big = ["a"]\nsmall = ["b"]',
        "group_data/big.py": "x = 'big'",
        "group_data/prod.py": "x = 'prod'",
    },
    "file group declared first loses": {
        "inventory/prod.py": 'prod = ["a", "b"]\nbig = ["a"]',
        "group_data/big.py": "x = 'big'\nd = {'k': 1}",
        "group_data/prod.py": "x = 'prod'\nd = {'j': 2}\ny = 1",
    },
    "host data beats groups, all is weakest": {
        "inventory/prod.py": 'g = [("a", {"x": 1}), "b"]\nh = ["a", ("b", {"y": 5})]',
        "group_data/all.py": "x = 0\nz = 9",
        "group_data/h.py": "x = 2\ny = 3",
    },
    "group with data": {"inventory/prod.py": 'g = (["a", ("b", {"k": 2})], {"x": 1})', "group_data/g.py": "x = 2"},
    "all with data": {"inventory/prod.py": 'all = (["a", "b"], {"x": 1})\ng = ["a"]', "group_data/all.py": "y = 2"},
    "all leaves a host of a group out": {"inventory/prod.py": 'all = ["a"]\ng = ["a", "zz"]'},
    "code makes hosts": {
        "inventory/prod.py": dedent(
            """
            import os
            from names import number
            def _host(i):
                return f"gpu-{i}", {"rack": i % 2, "fn": None}
            g = [_host(i) for i in range(number())]
            _hidden = ["no"]
            text = "no"
            count = 3
            mixed = ["a", 1]
            """
        ),
        "names.py": "def number():\n    return 5",
        "group_data/g.py": "import json\nfrom math import pi as PI\nx = json.loads('[1]')\n"
        "def helper():\n    return 1\n",
    },
    "__all__ in group data": {"inventory/prod.py": 'g = ["a"]', "group_data/g.py": "__all__ = ['x']\nx = 1\ny = 2"},
    "connectors": {
        "inventory/prod.py": 'g = ["@fake/a", ("@fake/b,c", {"x": 1}), "@local"]\nh = ["@fake/a", "@ssh/n"]',
        "group_data/h.py": "x = 3",
        "group_data/@fake.py": "f = 1",
        "group_data/g.py": "f = 2\nx = 0",
    },
    "same host twice": {"inventory/prod.py": 'g = ["a", ("a", {"x": 1})]\nh = [("a", {"x": 2})]\nall = ["a", "a"]'},
    "group data beside the inventory": {
        "inventory/prod.py": 'g = ["a"]',
        "inventory/group_data/g.py": "x = 'beside'",
        "group_data/g.py": "x = 'root'\ny = 1",
    },
    "group data looks into the inventory": {
        "inventory/prod.py": 'g = ["a", "b"]',
        "group_data/g.py": "from pyinfra import inventory\nx = len(inventory.get_group('g'))",
    },
    "group data without hosts": {"inventory/prod.py": 'g = ["a"]', "group_data/nobody.py": "x = 1"},
    "empty": {"inventory/prod.py": "g = []"},
    "other connector": {"inventory/prod.py": 'g = ["@docker/ubuntu"]', "group_data/@docker.py": "x = 1"},
}
PROBED = ("x", "y", "z", "f", "d", "k", "rack", "services", "helper", "json", "PI", "pi", "fn", "ssh_hostname")


def project(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def by_pyinfra(inventory: str, root: Path) -> dict[str, object]:
    from pyinfra.api import State
    from pyinfra.context import ctx_state
    from pyinfra_cli import util
    from pyinfra_cli.inventory import make_inventory

    util.PYTHON_CODES.clear()  # pyinfra keeps compiled files by relative name
    with ctx_state.use(State()):
        found = make_inventory(inventory, cwd=str(root))
    hosts = {host.name: (sorted(set(host.groups)), _plain(host.data.get)) for host in found}
    groups = {g: list(dict.fromkeys(h.name for h in m)) for g, m in found.groups.items() if m}
    return {"hosts": hosts, "order": list(hosts), "groups": groups}


def _plain(get: object) -> dict[str, object]:
    values = {name: get(name) for name in PROBED}  # type: ignore[operator]
    return {name: "a function" if callable(value) else value for name, value in values.items()}


@pytest.mark.parametrize("files", CASES.values(), ids=CASES)
@pytest.mark.parametrize("relative", [True, False])
def test_as_pyinfra(files: dict[str, str], relative: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = project(tmp_path, files)
    monkeypatch.chdir(root)
    monkeypatch.syspath_prepend(str(root))
    inventory = "inventory/prod.py" if relative else str(root / "inventory/prod.py")
    ours = read_inventory(inventory, root)
    hosts = {h.name: (sorted(set(h.groups)), _plain(h.get)) for h in ours.hosts.values()}
    got = {"hosts": hosts, "order": list(hosts), "groups": {g: list(m) for g, m in ours.groups.items() if m}}
    assert got == by_pyinfra(inventory, root)


def test_host_lists(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = project(tmp_path, {"group_data/all.py": "x = 1"})
    monkeypatch.chdir(root)
    for text in ("a,b", "@fake/a,b", "@local"):
        ours = read_inventory(text, root)
        hosts = {h.name: (sorted(set(h.groups)), _plain(h.get)) for h in ours.hosts.values()}
        assert {"hosts": hosts, "order": list(hosts)} == {
            k: v for k, v in by_pyinfra(text, root).items() if k != "groups"
        }


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("g = [", "inventory/prod.py:1:5: not Python: '[' was never closed: correct the line"),
        ("x = 1\ny = 1 / 0", "inventory/prod.py:2:1: the file's own code failed: ZeroDivisionError: division by zero"),
        ("g = [('a', 1)]", "inventory/prod.py: `('a', 1)` is no host"),
        ("g = ('a', 'b')", "inventory/prod.py: group `g` is a tuple, but not one of hosts and data"),
        ("raise SystemExit(3)", "inventory/prod.py:1:1: the file's own code failed: SystemExit: 3"),
    ],
)
def test_broken(code: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = project(tmp_path, {"inventory/prod.py": code})
    monkeypatch.chdir(root)
    with pytest.raises(InputError) as raised:
        read_inventory("inventory/prod.py", root)
    assert str(raised.value).startswith(said)


def test_pyinfra_is_not_imported(tmp_path: Path) -> None:
    import subprocess
    import sys

    root = project(tmp_path, CASES["code makes hosts"])
    code = (
        "import sys; from sglfleet.inventory import read_inventory\n"
        "assert len(read_inventory('inventory/prod.py').hosts) == 5\n"
        "print([m for m in ('pyinfra', 'gevent', 'paramiko', 'sglang', 'torch') if m in sys.modules])"
    )
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run([sys.executable, "-c", code], cwd=root, env=env, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
