"""Profiles: which GPUs a lab host plays. Each is a data file in `profiles/`; its form is in docs/lab.md."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lab.settings import LabError, number

if TYPE_CHECKING:
    from lab.disk import Layer
    from lab.host import Host

HERE = Path(__file__).parent
FOLDER = HERE / "profiles"
CARDS = HERE / "cards"
ETC = "etc/sglfleet-lab"
SMI = "usr/local/bin/nvidia-smi"
NVCC = "usr/local/bin/nvcc"
ALL_FILES = (f"{ETC}/gpus.json", f"{ETC}/gpu.xml", SMI, NVCC)
ADDRESSES = (0x1B, 0x43, 0x52, 0x61, 0x9D, 0xC3, 0xD1, 0xDF)  # PCI buses of the cards of an eight-card server


def names() -> list[str]:
    """All profiles."""
    return sorted(path.stem for path in FOLDER.glob("*.json"))


def load(name: str, host: int = 0) -> dict[str, Any]:
    """A profile as host number `host` has it, every card's values spelled out. LabError tells the names there are."""
    if name not in names():
        raise LabError(f"--profile: there is no {name!r}: choose one of {', '.join(names())}")
    profile: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text())
    nodes, cards = profile.pop("nodes"), profile["gpus"]
    instances = profile.pop("mig", [])
    profile["gpus"] = []
    for index, card in enumerate(cards):
        node = index * len(nodes) // len(cards)
        gpu = gpu_values(json.loads((CARDS / f"{card}.json").read_text()), index, host, profile["fabric"])
        gpu |= {"numa": node, "cpus": nodes[node]}
        if instances:
            gpu |= {"mig.mode.current": "Enabled", "mig.mode.pending": "Enabled"}
            gpu["mig_instances"] = [
                one | {"uuid": f"MIG-{identity(index, host, n + 1)}"} for n, one in enumerate(instances)
            ]
        profile["gpus"].append(gpu)
    return profile


def identity(index: int, host: int, instance: int = 0) -> str:
    """An id that no real card has: one for each card of each host, the same in every run."""
    return f"{index + 1:08x}-0000-4000-8{instance:03x}-{host:012x}"


def gpu_values(card: dict[str, str], index: int, host: int, fabric: str) -> dict[str, Any]:
    """What nvidia-smi knows of one card, by its own field names: the card's values, and those of an idle card."""
    bus = f"{ADDRESSES[index % 8]:02X}"
    idle = {
        "pstate": "P0", "compute_mode": "Default", "temperature.gpu": "34", "temperature.memory": "36",
        "utilization.gpu": "0", "utilization.memory": "0", "power.draw": "77.30", "power.memory": "32.02",
        "clocks.current.graphics": "345", "clocks.current.sm": "345", "clocks.current.video": "765",
        "clocks_event_reasons.active": "0x0000000000000001", "pcie.link.width.current": "16",
        "pcie.link.width.max": "16", "display_mode": "Requested functionality has been deprecated",
        "display_active": "Disabled", "accounting.mode": "Disabled", "addressing_mode": "None", "bar1.used": "1",
        "virtualization_mode": "None", "gpu_recovery_action": "None", "fan.speed": "N/A", "board_part_number": "N/A",
        "gpu_part_number": "N/A", "remapped_row_pending": "No", "remapped_row_failure": "No",
        "remapped_rows.pending": "0", "remapped_rows.failure": "0", "remapped_rows.correctable": "0",
        "remapped_rows.uncorrectable": "0",
    }  # fmt: skip
    for kind in ("corrected", "uncorrected"):
        for span in ("volatile", "aggregate"):
            idle |= {f"ecc.errors.{kind}.{span}.{part}": "0" for part in ("dram", "sram", "total")}
    own: dict[str, Any] = {
        "index": index, "uuid": f"GPU-{identity(index, host)}", "serial": f"1650{host:05d}{index:04d}",
        "module_id": str(index + 1),
        "pci.bus_id": f"00000000:{bus}:00.0", "pci.bus": bus, "pci.device": "00", "pci.domain": "0000",
        "board_id": f"0x{bus.lower()}00", "pdi": f"0x{index + 1:016x}",
        "fabric.state": fabric, "fabric.status": "Success" if fabric == "Completed" else "N/A",
        "fabric.clique_id": "0" if fabric == "Completed" else "N/A",
        "fabric.cluster_uuid": "00000000-0000-0000-0000-000000000000" if fabric == "Completed" else "N/A",
    }  # fmt: skip
    values: dict[str, Any] = idle | card | own
    del values["source"]
    same_as = {
        "power.default_limit": "power.limit", "power.max_limit": "power.limit", "enforced.power.limit": "power.limit",
        "power.draw.instant": "power.draw", "power.draw.average": "power.draw", "clocks.max.graphics": "clocks.max.sm",
        "clocks.current.memory": "clocks.max.memory", "clocks.applications.graphics": "clocks.max.sm",
        "clocks.applications.memory": "clocks.max.memory", "ecc.mode.pending": "ecc.mode.current",
        "mig.mode.pending": "mig.mode.current", "pcie.link.gen.current": "pcie.link.gen.max",
    }  # fmt: skip
    values |= {new: values[old] for new, old in same_as.items()}
    return values | {"bar1.free": str(int(values["bar1.total"]) - 1)}


def files(profile: dict[str, Any]) -> dict[str, str]:
    """Path -> text of the programs and data a host needs to play a profile; what is not listed must not be there."""
    wanted = {}
    if profile["smi"] != "absent":
        wanted[SMI] = (HERE / "smi" / "nvidia-smi").read_text()
        wanted[f"{ETC}/gpus.json"] = json.dumps(profile, indent=1)
        wanted[f"{ETC}/gpu.xml"] = (HERE / "smi" / "gpu.xml").read_text()
    if profile["nvcc"]:
        wanted[NVCC] = (HERE / "smi" / "nvcc").read_text().replace("@VERSION@", profile["nvcc"])
    return wanted


def mode(path: str) -> int:
    """Programs can be run."""
    return 0o755 if path in (SMI, NVCC) else 0o644


def install(layer: Layer, name: str, host: int) -> None:
    """Write a profile's files onto a host's disk before it boots."""
    for path, text in files(load(name, host)).items():
        layer.file(path, text, mode(path))
    for tool in ("nvidia-smi", "nvcc"):  # the machine's own, if it has a GPU
        if (Path("/usr/bin") / tool).exists():
            layer.hide(f"usr/bin/{tool}")


def change(host: Host, name: str) -> None:
    """Let a running host play another profile from now on, as if cards had been changed; earlier faults are gone."""
    wanted = files(load(name, number(host.name)))
    remove(host, *(path for path in ALL_FILES if path not in wanted), f"{ETC}/changes.json")
    for path, text in wanted.items():
        write(host, path, text, mode(path))


def fault(host: Host, changes: dict[str, Any]) -> None:
    """Lay values over a running host's profile; `{}` takes all of them back. Form: docs/lab.md."""
    write(host, f"{ETC}/changes.json", json.dumps(changes), 0o644)


def write(host: Host, path: str, text: str, mode: int) -> None:
    """Write a file in a running host, at once or not at all."""
    script = 'mkdir -p "${0%/*}" && cat > "$0.new" && chmod "$1" "$0.new" && mv "$0.new" "$0"'
    done = host.exec("sh", "-c", script, f"/{path}", f"{mode:o}", stdin=text)
    if done.returncode:
        raise LabError(f"{host.name}: cannot write /{path}: {done.stderr.strip()}")


def remove(host: Host, *paths: str) -> None:
    """Remove files in a running host, where they are there."""
    done = host.exec("rm", "-f", "--", *(f"/{path}" for path in paths))
    if done.returncode:
        raise LabError(f"{host.name}: cannot remove {' '.join(paths)}: {done.stderr.strip()}")
