# ruff: noqa: E501 - messages are compared whole
"""Hosts: declared hardware, classes and drift, whether a service fits, and what stands against switching it on."""

from __future__ import annotations

from typing import Any

import pytest

from validators.classes import classify, differences, grave, label, stable
from validators.facts import Engine, Gpu, HostFacts
from validators.fit import fit
from validators.hardware import HardwareError, declared
from validators.hostcheck import foreign, inspect, left_over
from validators.load import load
from validators.service import Service
from validators.state import GpuHealth, GpuProcess, HostState, Model, Own, Process, Unit
from validators.verdict import Outcome


def service(text: str = "", gpus: str = "[0, 1]") -> Service:
    loaded = load(
        f"service: qwen\nengine: {{sglang: 0.5.23, venv: /opt/e}}\nmodel: /m\ngpus: {gpus}\nargs: {{tp-size: 2}}\n{text}",
        "s",
    )
    assert loaded.service is not None, loaded.problems
    return loaded.service


def host(**other: Any) -> HostFacts:
    gpus = tuple(
        Gpu(index=i, uuid=f"U{i}", name="NVIDIA H200", sm="9.0", memory_mib=143771, pci_bus_id=f"00000000:0{i}:00.0")
        for i in range(2)
    )
    base: dict[str, Any] = {
        "host": "h",
        "gpus": gpus,
        "driver": "580.1",
        "cuda": "13.0",
        "engines": (Engine(venv="/opt/e", packages={"sglang": "0.5.23", "torch": "2.13.0+cu130"}),),
    }
    return HostFacts(**{**base, **other})


# --- declared ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("profile", "sm", "count", "link"),
    [
        ("rtx-pro-6000 x4", "12.0", 4, "pcie"),
        ("h100 x8", "9.0", 8, "nvswitch"),
        ("8x B200", "10.0", 8, "nvswitch"),
        ("h200 x2", "9.0", 2, "nvlink"),
        ("H100 PCIe x2", "9.0", 2, None),
        ("l40s", "8.9", 1, None),
    ],
)
def test_declared(profile: str, sm: str, count: int, link: str | None) -> None:
    found = declared("h", profile)
    assert found.declared
    assert found.gpus is not None
    assert ({gpu.sm for gpu in found.gpus}, len(found.gpus), found.interconnect) == ({sm}, count, link)


@pytest.mark.parametrize(
    ("value", "what"),
    [
        ("h1000 x8", "`h1000 x8` names no GPU that is known: did you mean `h100`?"),
        ("h100 x99", "`h100 x99`: 99 GPUs in a host: write a count from 1 to 64"),
        (4, "`gpu` is no profile"),
        ({"profile": "h100", "drivr": "1"}, "unknown key drivr: known are profile, driver"),
        (
            {"profile": "h100 x8", "interconnect": "infiniband"},
            "`infiniband` is no interconnect: write one of nvswitch",
        ),
        ({"profile": "h100", "p2p": "maybe"}, "`p2p` has the wrong type"),
    ],
)
def test_declared_wrong(value: object, what: str) -> None:
    with pytest.raises(HardwareError) as raised:
        declared("h", value)
    assert str(raised.value).startswith(what)


# --- classes and drift ------------------------------------------------------------------------------------------------


def test_a_class_holds_nothing_of_one_host_alone() -> None:
    one = host(memory_mib=515_000)
    two = host(
        host="i",
        memory_mib=515_007,
        gpus=tuple(g.model_copy(update={"uuid": "V", "pci_bus_id": "9"}) for g in one.gpus or ()),
    )
    managed = Engine(venv="/opt/sglfleet/engines/0.5.23-ab", packages={"sglang": "0.5.23"})
    two = two.model_copy(update={"engines": (*two.engines, managed)})
    found = classify({"h": one, "i": two})
    assert [(c.name, c.hosts) for c in found] == [("h200-x2", ("h", "i"))]
    assert "U0" not in found[0].model_dump_json()


def test_classes_keep_their_names() -> None:
    first = classify({"a": host(), "b": host(), "c": host(driver="590.1")})
    assert [(c.name, c.hosts) for c in first] == [("h200-x2", ("a", "b")), ("h200-x2-2", ("c",))]
    later = classify(
        {"a": host(driver="590.1"), "b": host(driver="590.1"), "c": host(driver="590.1"), "d": host()}, first
    )
    assert {c.name: c.hosts for c in later} == {"h200-x2": ("a", "b", "c"), "h200-x2-3": ("d",)}


@pytest.mark.parametrize(
    ("facts", "name"), [(HostFacts(), "unknown"), (HostFacts(gpus=()), "no-gpu"), (host(), "h200-x2")]
)
def test_label(facts: HostFacts, name: str) -> None:
    assert label(facts) == name


@pytest.mark.parametrize(
    ("live", "said"),
    [
        (host(gpus=host().gpus[:1]), ["GPUs: 2 were recorded, 1 are there"]),  # type: ignore[index]
        (host(driver="590.1"), ["driver: 580.1 was recorded, 590.1 is there"]),
        (host(engines=()), ["engine /opt/e: was recorded, is not there"]),
        (
            host(engines=(Engine(venv="/opt/e", packages={"sglang": "0.5.9", "torch": "2.13.0+cu130"}),)),
            ["engine /opt/e: sglang 0.5.23 was recorded, 0.5.9 is there"],
        ),
        (host(gpus=None, gpu_error="no driver"), ["the host tells no GPUs any more: no driver"]),
        (host(host="other", memory_mib=1), []),
    ],
)
def test_drift(live: HostFacts, said: list[str]) -> None:
    assert differences(stable(host()), live) == said


def test_another_card_than_declared_is_grave() -> None:
    """A profile for SM 8.0 must not be applied to a host with SM 9.0."""
    said = differences(declared("h", "a100 x2"), host())
    assert said[0] == "GPU 0 to 1: SM 8.0 (A100) is declared, the host has SM 9.0 (NVIDIA H200)"
    assert grave(said)
    assert differences(declared("h", "h200 x2"), host(interconnect=None)) == []
    assert not grave(["driver: 1 was recorded, 2 is there"])


# --- fit --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("facts", "flag", "outcome", "reason"),
    [
        (
            host(gpus=None, gpu_error="nvidia-smi not found"),
            "gpus",
            Outcome.UNKNOWN,
            "The host tells no GPU facts: nvidia-smi not found.",
        ),
        (host(gpus=()), "gpus", Outcome.FAILS, "The host has no GPU."),
        (host(gpus=host().gpus[:1]), "gpus", Outcome.FAILS, "GPU 1 does not exist: the host has 1 GPU, 0."),  # type: ignore[index]
        (host(engines=()), "engine.venv", Outcome.FAILS, "No Python environment is known at /opt/e."),
        (
            host(engines=(Engine(venv="/opt/e/", packages={"sglang": "0.5.9"}),)),
            "engine.venv",
            Outcome.FAILS,
            "The engine in /opt/e is not the pinned one: sglang is 0.5.9, 0.5.23 is pinned.",
        ),
    ],
)
def test_unfit(facts: HostFacts, flag: str, outcome: Outcome, reason: str) -> None:
    found = [verdict for verdict in fit(service(), facts) if verdict.flag == flag]
    assert [(verdict.outcome, verdict.reason) for verdict in found] == [(outcome, reason)]
    assert all(verdict.todo for verdict in found)


def test_fits() -> None:
    assert fit(service(), host(), pins={"torch": "2.13.0"}) == []
    assert fit(service(), declared("h", "h200 x2")) == []


def test_mig_is_not_guessed() -> None:
    facts = host(gpus=tuple(gpu.model_copy(update={"mig": True}) for gpu in host().gpus or ()))
    assert [verdict.outcome for verdict in fit(service(), facts)] == [Outcome.UNKNOWN]


@pytest.mark.parametrize(
    ("args", "nodes", "fits"),
    [
        ("{tp-size: 2}", 1, True),
        ("{tp-size: 4}", 1, False),
        ("{tp-size: 4}", 2, True),
        ("{tp: 2, pp-size: 2}", 1, False),
        ("{tp-size: 4, nnodes: 2}", 1, True),
        ("{}", 1, True),
    ],
)
def test_size(args: str, nodes: int, fits: bool) -> None:
    one = load(f"service: q\nengine: {{sglang: 0.5.23}}\nmodel: /m\ngpus: [0, 1]\nargs: {args}", "s").service
    assert one is not None
    assert (fit(one, host(), nodes) == []) is fits


# --- what stands against switching -----------------------------------------------------------------------------------


FINE = HostState(
    root=True,
    models=(Model(path="/m", exists=True, bytes=1, unreadable="", config={}),),
    gpu_health=tuple(
        GpuHealth(index=i, persistence=True, ecc_uncorrected=0, remap_failed=False, recovery_action="None")
        for i in range(2)
    ),
    disk={"/var/lib/sglfleet": 10**12},
)
THEIRS = Process(pid=7, name="python", unit="vllm.service")


def state(**other: Any) -> HostState:
    return FINE.model_copy(update=other)


def test_nothing_to_say() -> None:
    ours = Process(pid=9, name="python", unit="sglang-qwen.service", release="x")
    busy = state(ports={30000: (ours,)}, gpu_processes=(GpuProcess(gpu=0, process=ours, memory_mib=70_000),))
    assert inspect(service(), host(), FINE) == []
    assert inspect(service(), host(), busy) == []
    monitor = GpuProcess(gpu=0, process=Process(pid=1, name="dcgm"), memory_mib=400)
    assert inspect(service(), host(), state(gpu_processes=(monitor,))) == []
    elsewhere = GpuProcess(gpu=5, process=THEIRS, memory_mib=70_000)
    assert inspect(service(), host(), state(gpu_processes=(elsewhere,), ports={8000: (THEIRS,)})) == []


@pytest.mark.parametrize(
    ("found", "level", "what"),
    [
        (state(models=(Model(path="/m", exists=False),)), "refuse", "/m is not a folder on the host"),
        (state(models=(Model(path="/m", exists=True, missing=("a.safetensors",)),)), "refuse", "/m is not complete: a.safetensors"),
        (state(models=(Model(path="/m", exists=True, unreadable="/m/a: Permission denied"),)), "refuse", "the service's user cannot read /m/a: Permission denied"),
        (state(disk={"/var/lib/sglfleet": 10**6}), "warn", "0 MiB are free at /var/lib/sglfleet"),
        (state(disk={"/var/lib/sglfleet": 10**9}), "warn", "953 MiB are free at /var/lib/sglfleet"),
        (state(ports={30000: (THEIRS,)}), "refuse", "port 30000 is held by process 7 (python of vllm.service)"),
        (state(gpu_processes=(GpuProcess(gpu=1, process=THEIRS, memory_mib=70_000),)), "warn", "GPU 1 is held by process 7 (python of vllm.service) with 70000 MiB"),
        (state(gpu_health=(GpuHealth(index=0, persistence=True, remap_failed=True),)), "refuse", "GPU 0: row remapping has failed, its memory is worn out"),
        (state(gpu_health=(GpuHealth(index=0, persistence=True, ecc_uncorrected=3),)), "warn", "GPU 0: 3 uncorrected ECC errors since the driver was loaded"),
        (state(gpu_health=(GpuHealth(index=1, persistence=True, recovery_action="Reboot"),)), "refuse", "GPU 1: the driver asks for `Reboot`"),
        (state(gpu_health=(GpuHealth(index=0, persistence=False),)), "warn", "persistence mode is off on GPU 0"),
        (state(xid=("2026-11-29T10:00:00 h kernel: NVRM: Xid (PCI:0000:01:00): 79, pid=1, GPU has fallen off the bus.",)), "warn", "GPU 1: Xid 79, 1 time since boot"),
        (state(fabric=("In Progress", "Completed")), "refuse", "NVSwitch fabric: In Progress, nvidia-fabricmanager is not installed"),
        (state(root=False), "warn", "not root: processes, ports and the model's permissions could not be told"),
    ],
)  # fmt: skip
def test_said_before_the_start(found: HostState, level: str, what: str) -> None:
    said = inspect(service(), host(), found)
    assert [(one.level, one.what) for one in said] == [(level, what)]
    assert said[0].todo


def test_adoption_is_explained() -> None:
    unit = Process(pid=7, name="python", unit="my-sglang.service")
    said = inspect(service(), host(), state(ports={30000: (unit,)}))
    assert "systemctl disable --now my-sglang.service" in said[0].todo


def test_hand_written_units_are_named() -> None:
    units = (
        Unit(name="my-sglang.service", active="active", foreign=True),
        Unit(name="boot.service", active="inactive", enabled="enabled", foreign=True),
        Unit(name="off.service", active="inactive", foreign=True),
        Unit(name="sglang-qwen.service", active="active", file_release="a"),
    )
    assert [one.what for one in foreign(state(units=units))] == [
        "my-sglang.service, not written by sglfleet, runs SGLang here",
        "boot.service, not written by sglfleet, starts SGLang here at boot",
    ]


def test_left_over() -> None:
    found = state(
        own=(Own(service="old", current="a", releases=("a",)), Own(service="qwen", current="b"), Own(service="empty")),
        units=(
            Unit(name="sglang-gone.service", file_release="c"),
            Unit(name="sglang-router-x.service", file_release="d"),
            Unit(name="sglang-hand.service"),
        ),
    )
    assert left_over(["qwen"], found) == ["gone", "old"]
