# ruff: noqa: E501 - messages are compared whole
"""Host facts: what nvidia-smi prints is read right, and what cannot be told is unknown, never "no constraint"."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglfleet import nvidia, simulate
from sglfleet.facts import MARKER, command, parse

FIXTURES = Path(__file__).parents[1] / "fixtures" / "nvidia"
NO_DRIVER = (
    "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest NVIDIA "
    "driver is installed and running.\n\n"
)
CAP = [0, "0, GPU-00000002-0000-4000-8000-000000000002, 9.0\n1, GPU-00000003-0000-4000-8000-000000000003, 9.0\n"]


def told(name: str = "h200-x2", **other: Any) -> dict[str, Any]:
    """What the collector hands over for a recorded host."""
    smi = {
        "path": "/usr/bin/nvidia-smi",
        "xml": [0, (FIXTURES / f"{name}.xml").read_text()],
        "cap": CAP if name == "h200-x2" else [0, "0, GPU-00000001-0000-4000-8000-000000000001, 9.0"],
        "topo": [0, (FIXTURES / f"{name}.topo.txt").read_text()],
        "p2p": [0, (FIXTURES / "h200-x2.p2p.txt").read_text()],
    }
    return {**smi, **other}


def edited(old: str, new: str, name: str = "h200-x2") -> dict[str, Any]:
    xml = told(name)["xml"][1]
    assert old in xml
    return told(name, xml=[0, xml.replace(old, new)])


def test_two_h200() -> None:
    found = nvidia.read(told(), nvswitch=0)
    assert found.gpus is not None
    assert [(g.index, g.name, g.sm, g.memory_mib, g.mig) for g in found.gpus] == [
        (0, "NVIDIA H200", "9.0", 143771, False),
        (1, "NVIDIA H200", "9.0", 143771, False),
    ]
    assert (found.driver, found.cuda, found.interconnect, found.p2p) == ("580.159.04", "13.0", "nvswitch", True)
    assert found.health[0].persistence is True
    assert found.health[0].ecc_uncorrected == 0
    assert found.health[0].recovery_action == "None"


def test_one_h200_has_no_interconnect() -> None:
    found = nvidia.read(told("h200-x1"))
    assert found.gpus is not None
    assert len(found.gpus) == 1
    assert (found.interconnect, found.p2p) == (None, None)


@pytest.mark.parametrize(
    ("said", "gpus", "error"),
    [
        ({"path": None}, None, "nvidia-smi not found"),
        (told(xml=[9, NO_DRIVER]), None, NO_DRIVER.splitlines()[0]),
        (told(xml=[6, "No devices were found\n"]), (), ""),
        (told(xml=[124, "no answer within 30 s"]), None, "nvidia-smi hangs: no answer within 30 s"),
        (told(xml=[255, ""]), None, "nvidia-smi ended with 255 and no word"),
        (told(xml=[0, "garbage"]), None, "nvidia-smi -q -x: not XML: substring not found"),
        (told(xml=[0, "<nvidia_smi_log><gpu>"]), None, "nvidia-smi -q -x: not XML: no element found: line 1, column 21"),
        (told(cap=[2, 'Field "compute_cap" is not a valid field to query.\n']), None,
         'nvidia-smi does not tell the compute capability: Field "compute_cap" is not a valid field to query.'),
        (told(cap=[0, "0, GPU-other, 9.0"]), None,
         "nvidia-smi does not tell the compute capability: no line for GPU-00000002-0000-4000-8000-000000000002"),
        (told(cap=[0, CAP[1].replace("9.0", "[N/A]")]), None, "nvidia-smi does not tell the compute capability: [N/A]"),
    ],
)  # fmt: skip
def test_what_cannot_be_told_is_told_apart(said: dict[str, Any], gpus: object, error: str) -> None:
    found = nvidia.read(said)
    assert (found.gpus, found.error) == (gpus, error)


def test_mig_two_kinds_and_order() -> None:
    found = nvidia.read(edited("<current_mig>Disabled</current_mig>", "<current_mig>Enabled</current_mig>"))
    assert found.gpus is not None
    assert all(gpu.mig for gpu in found.gpus)
    swapped = CAP[1].replace("0, GPU", "7, GPU").replace("1, GPU", "3, GPU").replace("3, 9.0", "3, 12.0")
    found = nvidia.read(told(cap=[0, swapped]))
    assert found.gpus is not None
    assert [(gpu.index, gpu.sm, gpu.uuid[-1]) for gpu in found.gpus] == [(3, "12.0", "3"), (7, "9.0", "2")]


def test_health_and_processes() -> None:
    assert (
        nvidia.read(edited("Enabled</persistence_mode>", "Disabled</persistence_mode>")).health[0].persistence is False
    )
    found = nvidia.read(edited("<remapped_row_failure>No", "<remapped_row_failure>Yes")).health[0]
    assert (found.remap_failed, found.remap_pending) == (True, False)
    process = (
        "<process_info><pid>77</pid><type>C</type><process_name>python</process_name>"
        "<used_memory>700 MiB</used_memory></process_info></processes>"
    )
    assert nvidia.read(edited("</processes>", process)).processes[0] == (0, 77, "python", 700)


@pytest.mark.parametrize(
    ("matrix", "switch", "link"),
    [
        ("GPU0 X NV18\nGPU1 NV18 X", True, "nvswitch"),
        ("GPU0 X NV4\nGPU1 NV4 X", False, "nvlink"),
        ("GPU0 X PHB\nGPU1 PHB X", False, "pcie"),
        ("GPU0 X SYS\nGPU1 SYS X", True, "pcie"),
        ("GPU0 X", False, None),
        ("", False, None),
    ],
)
def test_interconnect(matrix: str, switch: bool, link: str | None) -> None:
    assert nvidia.interconnect([0, matrix], 2, switch) == link
    assert nvidia.interconnect([1, matrix], 2, switch) is None


def test_half_linked_is_neither() -> None:
    matrix = "GPU0 X NV4 SYS SYS\nGPU1 NV4 X SYS SYS\nGPU2 SYS SYS X NV4\nGPU3 SYS SYS NV4 X"
    assert nvidia.interconnect([0, matrix], 4, False) == "partial"
    assert nvidia.peer_access([0, "GPU0 X OK\nGPU1 NS X"], 2) is False


@pytest.mark.parametrize("lines", [[], [""], ["sudo: a password is required"], ["{}"], ['{"schema_version": 1}'], ["[1]"],
                                   ['{"schema_version": 9}'], ['{"failed": "the collector ended with 137"}'], ["@@ -q -x"]])  # fmt: skip
def test_no_answer_is_unknown(lines: list[str]) -> None:
    found = parse("h", lines)
    assert found.facts.gpus is None
    assert found.facts.host == "h"
    assert found.error
    assert found.facts.gpu_error == found.error


@given(st.lists(st.text(max_size=40), max_size=4))
def test_any_answer_is_read_or_unknown(lines: list[str]) -> None:
    found = parse("h", lines)
    assert found.facts.gpus is None
    assert found.error


def test_banner_before_the_answer() -> None:
    found = parse("h", ["Welcome to gpu-1", simulate.answer("h100 x8")])
    assert found.error == ""
    assert found.facts.gpus is not None
    assert (len(found.facts.gpus), found.facts.gpus[0].sm, found.facts.interconnect) == (8, "9.0", "nvswitch")


def test_collector_speaks_the_oldest_python_that_hosts_have() -> None:
    source = (Path(__file__).parents[2] / "sglfleet" / "collector.py").read_text()
    tree = ast.parse(source, feature_version=(3, 6))
    imported = {n.names[0].name for n in ast.walk(tree) if isinstance(n, ast.Import)}
    imported |= {n.module for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) and n.module}
    assert imported <= {"glob", "json", "os", "platform", "pwd", "re", "shutil", "subprocess", "sys", "typing"}
    assert len(source) < 100_000  # one argument of a command line holds 128 KiB


def run(spec: dict[str, Any], **env: str) -> list[str]:
    done = subprocess.run(["sh", "-c", command(spec)], capture_output=True, text=True, check=True, env=env)
    return done.stdout.splitlines()


def test_the_command_itself_on_this_machine(tmp_path: Path) -> None:
    """The real collector in the real shell: this machine, a venv, a model with a missing file."""
    venv = tmp_path / "venv" / "lib" / "python3.11" / "site-packages"
    for name, version in (("sglang", "0.5.23"), ("Flashinfer_Python", "0.7.2"), ("unrelated", "1")):
        meta = venv / f"{name}-{version}.dist-info"
        meta.mkdir(parents=True)
        (meta / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n\nName: no")
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text('{"architectures": ["LlamaForCausalLM"]}')
    (model / "model.safetensors.index.json").write_text(
        '{"weight_map": {"a": "one.safetensors", "b": "two.safetensors"}}'
    )
    (model / "one.safetensors").write_bytes(b"x")
    spec = {
        "services": ["x"],
        "ports": [1],
        "venvs": [str(tmp_path / "venv"), "/nowhere"],
        "models": [{"path": str(model), "user": "nobody"}, {"path": "/nowhere", "user": "nobody"}],
    }
    found = parse("h", run(spec, PATH="/usr/local/bin:/usr/bin:/bin"))
    assert found.error == ""
    assert found.facts.machine
    assert [(e.venv, e.packages) for e in found.facts.engines] == [
        (str(tmp_path / "venv"), {"sglang": "0.5.23", "flashinfer-python": "0.7.2"})
    ]
    one = found.state.model(str(model))
    assert one is not None
    assert one.missing == ("two.safetensors",)
    assert one.config == {"architectures": ["LlamaForCausalLM"]}
    gone = found.state.model("/nowhere")
    assert gone is not None
    assert gone.exists is False


def fake_smi(folder: Path) -> Path:
    """A PATH with sh's own tools and a recorded nvidia-smi, without Python."""
    bin_ = folder / "bin"
    bin_.mkdir()
    for tool in ("sh", "id", "cat"):
        (bin_ / tool).symlink_to(f"/usr/bin/{tool}" if Path(f"/usr/bin/{tool}").exists() else f"/bin/{tool}")
    script = bin_ / "nvidia-smi"
    cases = {
        "-q -x": f"cat {FIXTURES}/h200-x2.xml",
        "topo -m": f"cat {FIXTURES}/h200-x2.topo.txt",
        "topo -p2p r": f"cat {FIXTURES}/h200-x2.p2p.txt",
        "--query-gpu=*": "echo '" + CAP[1].strip() + "'",
    }
    body = "\n".join(
        f'"{words}") {what} ;;' if "*" not in words else f"{words}) {what} ;;" for words, what in cases.items()
    )
    script.write_text(f'#!/bin/sh\ncase "$*" in\n{body}\n*) echo unexpected "$*"; exit 1 ;;\nesac\n')
    script.chmod(0o755)
    return bin_


def test_host_without_python_still_tells_its_gpus(tmp_path: Path) -> None:
    bin_ = fake_smi(tmp_path)
    text = command({}).replace("PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin:/usr/local/bin; export PATH; ", "")
    done = subprocess.run(
        [str(bin_ / "sh"), "-c", text], capture_output=True, text=True, check=True, env={"PATH": str(bin_)}
    )
    found = parse("h", done.stdout.splitlines())
    assert found.error == ""
    assert found.facts.gpus is not None
    assert (len(found.facts.gpus), found.facts.interconnect) == (2, "nvswitch")
    assert found.state.root is False


def test_host_without_python_and_without_nvidia_smi(tmp_path: Path) -> None:
    bin_ = fake_smi(tmp_path)
    (bin_ / "nvidia-smi").unlink()
    text = command({}).replace("PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin:/usr/local/bin; export PATH; ", "")
    done = subprocess.run(
        [str(bin_ / "sh"), "-c", text], capture_output=True, text=True, check=True, env={"PATH": str(bin_)}
    )
    found = parse("h", done.stdout.splitlines())
    assert (found.facts.gpus, found.facts.gpu_error) == (None, "nvidia-smi not found")


def test_fact_on_a_simulated_host_and_on_one_that_says_nothing() -> None:
    """A fact whose command tells nothing must not come back as a default that looks like an answer."""
    from pyinfra.api.config import Config
    from pyinfra.api.connect import connect_all
    from pyinfra.api.inventory import Inventory
    from pyinfra.api.state import State

    from sglfleet.hostreport import HostReport

    quick = {"fake_delay": 0, "fake_delay_jitter": 0}
    hosts = [
        ("@fake/good", {"fake_responses": {MARKER: simulate.answer("rtx-pro-6000 x4")}, **quick}),
        ("@fake/mute", quick),
    ]
    state = State(Inventory((hosts, {})), Config())
    connect_all(state)
    answers = {host.name: host.get_fact(HostReport, host=host.name, spec={}) for host in state.inventory}
    assert [gpu.sm for gpu in answers["@fake/good"].facts.gpus or ()] == ["12.0"] * 4
    assert answers["@fake/mute"].facts.gpus is None
    assert answers["@fake/mute"].error


def test_the_answer_holds_no_foreign_arguments() -> None:
    """A key on another process' command line stays on the host."""
    secret = "sk-do-not-tell-4711"
    words = [sys.executable, "-c", "import time; time.sleep(60)", "sglang.launch_server", f"--api-key={secret}"]
    child = subprocess.Popen(words)
    try:
        lines = run({"ports": [22, 30000]}, PATH="/usr/local/bin:/usr/bin:/bin")
    finally:
        child.kill()
        child.wait()
    assert child.pid in {process.pid for process in parse("h", lines).state.sglang}
    assert secret not in "\n".join(lines)
