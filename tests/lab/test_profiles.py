"""The nvidia-smi stand-in prints what the real one prints: same lines, same tags, same exit codes."""

from __future__ import annotations

import json
import re
import subprocess
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from lab import profiles
from lab.settings import LabError

RECORDED = Path(__file__).parent / "recorded"
FIELDS = (
    "index,uuid,name,compute_cap,driver_version,memory.total,power.limit,power.draw,clocks.sm,pci.bus_id,"
    "mig.mode.current"
)
MORE = (
    "index,persistence_mode,power.default_limit,power.min_limit,power.max_limit,clocks.max.sm,clocks.mem,clocks.max.mem,"
    "clocks.applications.graphics,clocks_event_reasons.active,temperature.gpu,utilization.gpu,ecc.mode.current,pstate,"
    "compute_mode,vbios_version,pcie.link.gen.current,pcie.link.width.current"
)


def smi(folder: Path, profile: str, *arguments: str, changes: dict[str, object] | None = None) -> tuple[int, str]:
    """Exit code and output of the stand-in with a profile."""
    for path, text in profiles.files(profiles.load(profile, 1)).items():
        (folder / Path(path).name).write_text(text)
    if changes is not None:
        (folder / "changes.json").write_text(json.dumps(changes))
    argv = ["/usr/bin/env", "python3", "-IS", str(folder / "nvidia-smi"), *arguments]
    done = subprocess.run(
        argv,
        capture_output=True,
        text=True,
        env={"SGLFLEET_LAB_GPUS": str(folder), "PATH": "/usr/bin:/bin"},
        check=False,
    )
    assert not done.stderr
    return done.returncode, done.stdout


def shape(text: str) -> str:
    """Text without what differs from card to card: ids, bus addresses, measured numbers."""
    text = re.sub(r"GPU-[0-9a-f-]{36}", "GPU-ID", text)
    text = re.sub(r"[0-9A-F]{8}:[0-9A-F]{2}:[0-9A-F]{2}\.0", "BUS", text)
    return re.sub(r"\d+(\.\d+)? W", "# W", text)


@pytest.mark.parametrize(
    ("arguments", "file"),
    [
        (["topo", "-m"], "topo-m.txt"),
        (["topo", "-p2p", "r"], "topo-p2p-r.txt"),
        (["nvlink", "-s"], "nvlink-s.txt"),
        ([f"--query-gpu={FIELDS}", "--format=csv"], "query-gpu.csv"),
        (["--version"], "version.txt"),
        (["--query-compute-apps=pid,process_name,used_memory", "--format=csv"], "apps-idle.csv"),
    ],
)
def test_same_form_as_the_real_tool(tmp_path: Path, arguments: list[str], file: str) -> None:
    code, text = smi(tmp_path, "h200-x2", *arguments)
    assert code == 0
    assert shape(text) == shape((RECORDED / file).read_text())


def test_same_fields_as_the_real_tool(tmp_path: Path) -> None:
    code, text = smi(tmp_path, "h200-x1", f"--query-gpu={MORE}", "--format=csv")
    recorded = (RECORDED / "query-gpu-more.csv").read_text().splitlines()
    assert code == 0
    assert text.splitlines()[0] == recorded[0]
    same = [(ours, real) for ours, real in zip(text.splitlines()[1].split(", "), recorded[1].split(", "), strict=True)]
    assert [pair for pair in same if pair[0] != pair[1]] == [("34", "41")]  # the temperature


def test_same_xml_tags_and_values_as_the_real_tool(tmp_path: Path) -> None:
    code, text = smi(tmp_path, "h200-x2", "-q", "-x")
    assert code == 0
    ours, real = ElementTree.fromstring(text), ElementTree.parse(RECORDED / "q.xml").getroot()
    assert [node.tag for node in ours.iter()] == [node.tag for node in real.iter()]
    pairs = zip(ours.iter(), real.iter(), strict=True)
    differ = {node.tag for node, other in pairs if (node.text or "").strip() != (other.text or "").strip()}
    assert differ <= {
        "timestamp", "serial", "uuid", "pdi", "board_id", "board_part_number", "gpu_part_number", "module_id",
        "pci_bus", "pci_device", "pci_bus_id", "virtualization_mode", "replay_counter", "tx_util", "rx_util",
        "gpu_temp", "memory_temp", "average_power_draw", "instant_power_draw", "free", "used",
    }, differ  # fmt: skip
    assert ours.findtext("gpu/fb_memory_usage/total") == real.findtext("gpu/fb_memory_usage/total") == "143771 MiB"


def test_nounits_and_noheader(tmp_path: Path) -> None:
    asked = ["--query-gpu=index,memory.total,compute_cap", "--format=csv,noheader,nounits"]
    assert smi(tmp_path, "rtx-pro-6000-x4", *asked)[1] == "".join(f"{index}, 97887, 12.0\n" for index in range(4))


def test_an_unknown_field_is_refused_as_by_the_real_tool(tmp_path: Path) -> None:
    code, text = smi(tmp_path, "h200-x1", "--query-gpu=index,nosuchfield", "--format=csv")
    assert (code, text) == (2, (RECORDED / "bad-field.txt").read_text())


@pytest.mark.parametrize(
    ("profile", "code", "text"),
    [("no-driver", 9, "couldn't communicate with the NVIDIA driver"), ("no-device", 6, "No devices were found")],
)
@pytest.mark.parametrize("arguments", [["-L"], ["-q", "-x"], ["topo", "-m"], ["--query-gpu=index", "--format=csv"]])
def test_hosts_without_a_working_gpu(tmp_path: Path, profile: str, code: int, text: str, arguments: list[str]) -> None:
    seen, said = smi(tmp_path, profile, *arguments)
    assert seen == code
    assert text in said


def test_no_nvidia_smi_at_all() -> None:
    assert not profiles.files(profiles.load("no-smi"))


@pytest.mark.parametrize("name", profiles.names())
def test_every_profile_is_complete(tmp_path: Path, name: str) -> None:
    profile = profiles.load(name)
    if profile["smi"] != "ok" or not profile["gpus"]:
        return
    code, text = smi(tmp_path, name, "-q", "-x")
    gpus = ElementTree.fromstring(text).findall("gpu")
    assert code == 0
    assert "{{" not in text
    assert len(gpus) == len(profile["gpus"])
    assert len({gpu.findtext("uuid") for gpu in gpus}) == len(gpus)
    for gpu in gpus:
        for path in (
            "product_name",
            "fb_memory_usage/total",
            "pci/pci_bus_id",
            "persistence_mode",
            "ecc_mode/current_ecc",
        ):
            assert gpu.findtext(path) not in (None, "", "N/A"), path


def test_mig_devices_are_listed(tmp_path: Path) -> None:
    assert smi(tmp_path, "mig", "-L")[1].count("  MIG 3g.40gb") == 2
    root = ElementTree.fromstring(smi(tmp_path, "mig", "-q", "-x")[1])
    assert root.findtext("gpu/mig_mode/current_mig") == "Enabled"
    assert len(root.findall("gpu/mig_devices/mig_device")) == 2


def test_faults_lie_over_the_profile(tmp_path: Path) -> None:
    process = {"gpu": 0, "pid": 4242, "process_name": "python3 <x>", "used_gpu_memory": "1000"}
    changes = {"gpus": {"0": {"persistence_mode": "Disabled"}, "all": {"fabric.state": "In Progress"}},
               "lost": [7], "processes": [process]}  # fmt: skip
    root = ElementTree.fromstring(smi(tmp_path, "h100-x8", "-q", "-x", changes=changes)[1])
    gpus = root.findall("gpu")
    assert [gpu.findtext("persistence_mode") for gpu in gpus] == ["Disabled"] + ["Enabled"] * 6
    assert {gpu.findtext("fabric/state") for gpu in gpus} == {"In Progress"}
    assert root.findtext("gpu/processes/process_info/process_name") == "python3 <x>"
    assert root.findtext("gpu/fb_memory_usage/used") == "1000 MiB"


def test_a_profile_that_is_not_there_names_those_that_are() -> None:
    with pytest.raises(LabError, match=r"'h300'.*choose one of .*h200-x1"):
        profiles.load("h300")


def test_it_says_that_it_is_a_stand_in() -> None:
    assert "STAND-IN" in profiles.files(profiles.load("h200-x1"))[profiles.SMI]
