"""What nvidia-smi prints, read into facts. Pure; the formats are those of driver 580 on H200 (tests/fixtures/h200)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from xml.etree import ElementTree

from validators.facts import Gpu
from validators.state import GpuHealth

# driver 570 and older do not know query field compute_cap on some cards; nothing else tells the SM version for sure
_NO_CAP = "nvidia-smi does not tell the compute capability"


@dataclass(frozen=True)
class Told:
    """GPUs and their health; `error` says why there are none to tell of."""

    gpus: tuple[Gpu, ...] | None = None
    error: str = ""
    driver: str | None = None
    cuda: str | None = None
    health: tuple[GpuHealth, ...] = ()
    fabric: tuple[str, ...] = ()  # state per GPU, "N/A" left out
    processes: tuple[tuple[int, int, str, int | None], ...] = ()  # gpu, pid, name, MiB
    interconnect: str | None = None
    p2p: bool | None = None


def read(said: Mapping[str, Any], nvswitch: int = 0) -> Told:
    """Everything out of the collector's `smi` part."""
    if not said.get("path"):
        return Told(error="nvidia-smi not found")
    code, xml = said["xml"]
    if code != 0:
        return _failed(code, xml)
    try:
        # the answer of nvidia-smi on our own host, entity expansion is off in expat ≥ 2.4.1
        log = ElementTree.fromstring(xml[xml.index("<nvidia_smi_log") :])  # noqa: S314
    except (ElementTree.ParseError, ValueError) as error:
        return Told(error=f"nvidia-smi -q -x: not XML: {error}")
    caps, why = _capabilities(said.get("cap", [127, ""]))
    nodes = log.findall("gpu")
    if not nodes:
        return Told(gpus=(), driver=_text(log, "driver_version"), cuda=_text(log, "cuda_version"))
    gpus = []
    for i, node in enumerate(nodes):
        uuid = _text(node, "uuid") or ""
        index, sm = caps.get(uuid, (i, ""))
        if not re.fullmatch(r"\d+\.\d+", sm):
            return Told(error=f"{_NO_CAP}: {why or sm or 'no line for ' + uuid}")
        gpus.append(_gpu(node, index, uuid, sm))
    order = sorted(range(len(gpus)), key=lambda i: gpus[i].index)
    fabric = [_text(node, "fabric/state") or "" for node in nodes]
    fabric = [state for state in fabric if state not in ("", "N/A")]
    return Told(
        gpus=tuple(gpus[i] for i in order),
        driver=_text(log, "driver_version"),
        cuda=_text(log, "cuda_version"),
        health=tuple(_health(nodes[i], gpus[i].index) for i in order),
        fabric=tuple(fabric),
        processes=tuple(p for i in order for p in _processes(nodes[i], gpus[i].index)),
        interconnect=interconnect(said.get("topo", [127, ""]), len(gpus), bool(nvswitch or fabric)),
        p2p=peer_access(said.get("p2p", [127, ""]), len(gpus)),
    )


def _failed(code: int, output: str) -> Told:
    line = next((line.strip() for line in output.splitlines() if line.strip()), "")
    if "No devices were found" in output:
        return Told(gpus=())
    if code == 124:
        return Told(error=f"nvidia-smi hangs: {line}")
    return Told(error=line or f"nvidia-smi ended with {code} and no word")


def _capabilities(answer: list[Any]) -> tuple[dict[str, tuple[int, str]], str]:
    """uuid -> (index, compute capability), and why there are none."""
    code, out = answer
    if code != 0:
        return {}, next((line.strip() for line in out.splitlines() if line.strip()), f"exit {code}")
    found = {}
    for line in out.splitlines():
        parts = [part.strip() for part in line.split(",")]
        if len(parts) == 3 and parts[0].isdigit():
            found[parts[1]] = (int(parts[0]), parts[2])
    return found, ""


def _text(node: ElementTree.Element, path: str) -> str | None:
    found = node.findtext(path)
    return found.strip() if found else None


def _number(node: ElementTree.Element, path: str) -> int | None:
    hit = re.match(r"\d+", _text(node, path) or "")
    return int(hit[0]) if hit else None


def _yes(node: ElementTree.Element, path: str, words: tuple[str, ...]) -> bool | None:
    """True or false by the two words for it, None for anything else (N/A, a field that is not there)."""
    value = (_text(node, path) or "").lower()
    return {words[0]: True, words[1]: False}.get(value)


def _gpu(node: ElementTree.Element, index: int, uuid: str, sm: str) -> Gpu:
    return Gpu(
        index=index,
        uuid=uuid,
        name=_text(node, "product_name") or "",
        sm=sm,
        memory_mib=_number(node, "fb_memory_usage/total"),
        mig=_text(node, "mig_mode/current_mig") == "Enabled",
        pci_bus_id=_text(node, "pci/pci_bus_id") or node.get("id") or "",
    )


def _health(node: ElementTree.Element, index: int) -> GpuHealth:
    uncorrected = [
        number
        for name in (
            "sram_uncorrectable",
            "sram_uncorrectable_parity",
            "sram_uncorrectable_secded",
            "dram_uncorrectable",
        )
        if (number := _number(node, f"ecc_errors/volatile/{name}")) is not None
    ]
    return GpuHealth(
        index=index,
        persistence=_yes(node, "persistence_mode", ("enabled", "disabled")),
        ecc_uncorrected=sum(uncorrected) if uncorrected else None,
        remap_failed=_yes(node, "remapped_rows/remapped_row_failure", ("yes", "no")),
        remap_pending=_yes(node, "remapped_rows/remapped_row_pending", ("yes", "no")),
        recovery_action=_text(node, "gpu_recovery_action") or "",
        memory_used_mib=_number(node, "fb_memory_usage/used"),
    )


def _processes(node: ElementTree.Element, gpu: int) -> list[tuple[int, int, str, int | None]]:
    found = []
    for process in node.findall("processes/process_info"):
        pid = _number(process, "pid")
        if pid:
            found.append((gpu, pid, _text(process, "process_name") or "", _number(process, "used_memory")))
    return found


def _matrix(text: str, count: int) -> list[list[str]] | None:
    """The square of `topo -m` or `topo -p2p`: one row per GPU. None where it is not there whole."""
    clean = re.sub(r"\x1b\[[0-9;]*m", "", text)
    rows = {}
    for line in clean.splitlines():
        cells = line.split()
        hit = re.fullmatch(r"GPU(\d+)", cells[0]) if cells else None
        if hit and len(cells) > count and "X" in cells[1 : count + 1]:
            rows[int(hit[1])] = cells[1 : count + 1]
    return [rows[i] for i in sorted(rows)] if len(rows) == count else None


def interconnect(answer: list[Any], count: int, nvswitch: bool) -> str | None:
    """nvswitch | nvlink | pcie by the links between all pairs; `partial` where only some pairs have NVLink."""
    matrix = _matrix(answer[1], count) if answer[0] == 0 and count > 1 else None
    if matrix is None:
        return None
    links = [matrix[i][j] for i in range(count) for j in range(count) if i != j]
    linked = sum(bool(re.fullmatch(r"NV\d+", link)) for link in links)
    if linked == len(links):
        return "nvswitch" if nvswitch else "nvlink"
    return "partial" if linked else "pcie"


def peer_access(answer: list[Any], count: int) -> bool | None:
    """Whether every pair of GPUs can read each other's memory."""
    matrix = _matrix(answer[1], count) if answer[0] == 0 and count > 1 else None
    if matrix is None:
        return None
    return all(matrix[i][j] == "OK" for i in range(count) for j in range(count) if i != j)
