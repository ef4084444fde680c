"""Which service runs where: placements, overrides from every level, multi-node groups, stand-ins."""

from __future__ import annotations

from pathlib import Path

import pytest

from sglfleet.intent import Intents, intents
from sglfleet.inventory import from_pyinfra, read_inventory
from tests.sglfleet.test_inventory import project

SERVICE = "service: {name}\nengine: {{sglang: 0.5.9}}\nmodel: /m\ngpus: [0]\nargs: {{tp-size: 4, port: {port}}}\n"


def read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: dict[str, str]) -> Intents:
    services = {
        f"group_data/services/{name}.yaml": SERVICE.format(name=name, port=port)
        for name, port in (("one", 30000), ("two", 30001))
    }
    root = project(tmp_path, {**services, **files})
    monkeypatch.chdir(root)
    return intents(read_inventory("inventory/prod.py", root), root)


def test_overrides_of_every_level_meet_key_by_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {
        "inventory/prod.py": (
            'g = ["a", ("b", {"service_overrides": {"one": {"args": {"tp-size": 1}}}})]\nh = ["a", "b"]'
        ),
        "group_data/all.py": 'services = ["one"]\nservice_overrides = {"one": {"env": {"A": "all"}}}',
        "group_data/g.py": 'service_overrides = {"one": {"args": {"tp-size": 2}, "env": {"B": "g"}}}',
        "group_data/h.py": 'service_overrides = {\n  "one": {"args": {"max-running-requests": 8}},\n}',
    }
    found = read(tmp_path, monkeypatch, files)
    assert found.problems == ()
    a, b = found.placements
    assert a.service.args == {"tp-size": 2, "port": 30000, "max-running-requests": 8}
    assert b.service.args == {"tp-size": 1, "port": 30000, "max-running-requests": 8}
    assert a.service.env == {"A": "all", "B": "g"}
    assert str(a.loaded.where("args", "max-running-requests")) == "group_data/h.py:2:20"
    assert a.loaded.origins["env.A"] == "group_data/all.py:2:38"
    assert b.loaded.origins["args.tp-size"] == "inventory/prod.py, host b, service_overrides"
    assert str(a.loaded.where("args", "port")) == "group_data/services/one.yaml:5:20"


def test_the_last_group_says_which_services(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {
        "inventory/prod.py": 'g = ["a"]\nh = ["a"]\nnone = ["z"]',
        "group_data/g.py": 'services = ["one"]',
        "group_data/h.py": 'services = ["two", "two"]',
    }
    found = read(tmp_path, monkeypatch, files)
    assert [(p.host.name, p.service.service) for p in found.placements] == [("a", "two")]


@pytest.mark.parametrize(("rank_by", "nodes"), [("order", ("n3", "n1", "n2")), ("name", ("n1", "n2", "n3"))])
def test_ranks(rank_by: str, nodes: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {
        "inventory/prod.py": 'pair = ["n3", "n1", "n2"]',
        "group_data/pair.py": 'services = ["one"]',
        "group_data/services/one.yaml": SERVICE.format(name="one", port=1)
        + f"nodes: {{group: pair, rank_by: {rank_by}}}",
    }
    found = read(tmp_path, monkeypatch, files)
    assert found.problems == ()
    assert [placement.nodes for placement in found.placements] == [nodes] * 3
    assert [placement.rank for placement in found.placements] == [nodes.index(n) for n in ("n3", "n1", "n2")]


def test_a_host_outside_the_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {
        "inventory/prod.py": 'pair = ["n1", "n2"]\nother = ["x"]',
        "group_data/all.py": 'services = ["one"]',
        "group_data/services/one.yaml": SERVICE.format(name="one", port=1) + "nodes: {group: pair}",
    }
    found = read(tmp_path, monkeypatch, files)
    assert "x runs this service, but is not in its group `pair`" in str(found.problems[0])


def test_stand_ins_only_in_a_lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    override = 'launch_override = {"*": {"args": {"device": "cpu"}}, "one": {"args": {"max-total-tokens": 9}}}'
    base = {"inventory/prod.py": 'g = ["a"]'}
    found = read(
        tmp_path, monkeypatch, {**base, "group_data/g.py": f'lab = True\nservices = ["one", "two"]\n{override}'}
    )
    one, two = found.placements
    assert one.launch is not None
    assert one.launch.args == {"device": "cpu", "max-total-tokens": 9}
    assert two.launch is not None
    assert two.launch.args == {"device": "cpu"}
    assert one.service.args == {"tp-size": 4, "port": 30000}
    found = read(tmp_path, monkeypatch, {**base, "group_data/g.py": f'services = ["one"]\n{override}'})
    assert str(found.problems[0]).startswith("group_data/g.py:2:1: `launch_override` outside a lab")


def test_conflicts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {"inventory/prod.py": 'g = ["a"]', "group_data/g.py": 'services = ["one", "two"]'}
    found = read(tmp_path, monkeypatch, files)
    assert [conflict.problem.what for conflict in found.conflicts] == [
        "`gpus`: 0 wanted by services `one` and `two` on the same host"
    ]


def test_one_refusal_for_each_clash_however_many_services(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nine services on the same GPUs and port are two clashes, not 72; ports of several addresses clash by address."""
    names = [f"s{i}" for i in range(9)]
    files = {"inventory/prod.py": 'g = ["a"]', "group_data/g.py": f"services = {names}"}
    files |= {f"group_data/services/{n}.yaml": SERVICE.format(name=n, port=30000) for n in names}
    found = read(tmp_path, monkeypatch, files)
    assert [(c.services, c.problem.what[:11]) for c in found.conflicts] == [
        (tuple(names), "`gpus`: 0 w"),
        (tuple(names), "port 30000 "),
    ]
    gpus = {"s0": "[0, 1]", "s1": "[1, 0]", "s2": "[1, 2]", "s3": "[5]"}
    binds = {"s0": "10.0.0.1", "s1": "10.0.0.1", "s2": "10.0.0.2", "s3": "10.0.0.2"}
    for name, listed in gpus.items():
        text = SERVICE.format(name=name, port=30000).replace("gpus: [0]", f"gpus: {listed}")
        files[f"group_data/services/{name}.yaml"] = text.replace("port:", f"host: {binds[name]}, port:")
    files["group_data/g.py"] = f"services = {list(gpus)}"
    found = read(tmp_path, monkeypatch, files)
    assert [(c.services, c.problem.what.split(" wanted")[0]) for c in found.conflicts] == [
        (("s0", "s1"), "`gpus`: 0"),
        (("s0", "s1", "s2"), "`gpus`: 1"),
        (("s0", "s1"), "port 30000"),
        (("s2", "s3"), "port 30000"),
    ]


def test_services_written_into_an_inventory_are_no_hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {"inventory/prod.py": 'g = ["a"]\nservices = ["one"]', "group_data/g.py": 'services = ["two"]'}
    found = read(tmp_path, monkeypatch, files)
    assert "`services` is taken for a group of hosts here" in str(found.problems[0])
    files["inventory/prod.py"] = 'services = ["a"]'  # a group may be called so
    files["group_data/services.py"] = 'services = ["two"]'
    assert read(tmp_path, monkeypatch, files).problems == ()


def test_canary_that_is_not_there_is_a_note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {
        "inventory/prod.py": 'g = ["gpu-1"]',
        "group_data/g.py": 'services = ["one"]',
        "group_data/services/one.yaml": SERVICE.format(name="one", port=1) + "rollout: {canary: [gpu-7]}",
    }
    found = read(tmp_path, monkeypatch, files)
    assert found.problems == ()
    assert [str(note) for note in found.notes] == [
        "group_data/services/one.yaml:6:20: canary `gpu-7` is not in this inventory: did you mean `gpu-1`?"
    ]


def test_the_same_from_pyinfras_live_objects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pyinfra.api.state import State
    from pyinfra.context import ctx_state
    from pyinfra_cli import util
    from pyinfra_cli.inventory import make_inventory

    files = {
        "inventory/prod.py": 'g = ["a", ("b", {"service_overrides": {"one": {"args": {"tp-size": 1}}}})]',
        "group_data/all.py": 'services = ["one"]',
        "group_data/g.py": 'service_overrides = {"one": {"env": {"B": "g"}}}',
    }
    found = read(tmp_path, monkeypatch, files)
    util.PYTHON_CODES.clear()
    with ctx_state.use(State()):
        live = from_pyinfra(make_inventory("inventory/prod.py", cwd=str(tmp_path)), tmp_path)
    again = intents(live, tmp_path)
    assert [(p.host.name, p.service) for p in again.placements] == [(p.host.name, p.service) for p in found.placements]
    assert again.placements[0].loaded.origins == found.placements[0].loaded.origins
