"""What a host says before anything is switched on it: the model, the disk, the GPUs' health, who holds them. Pure.

`refuse` stops the service on this host, `warn` is said and goes on. Driver 580, systemd 252; Xid numbers are NVIDIA's.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from validators.facts import HostFacts
from validators.service import Service
from validators.state import GpuProcess, HostState, Process

GIB = 1024**3
# Xid after which a GPU cannot be trusted before a reset or a repair (NVIDIA, "XID errors"): ECC, bus, NVLink, GSP
_FATAL_XID = {48, 62, 63, 64, 74, 79, 92, 94, 95, 119, 120, 136, 140, 143}
_MIN_FREE = 2 * GIB  # a release, its logs and kernel caches of a few modules


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing about a host that matters to one service."""

    level: str  # refuse | warn
    where: str  # key of the service file that it touches, dotted
    what: str
    todo: str


def inspect(service: Service, facts: HostFacts, state: HostState) -> list[Finding]:
    """Everything a person would want to know before this service is switched on this host, the grave first."""
    found = [
        *_model(service, state),
        *_disk(state),
        *_port(service, state),
        *_processes(service, facts, state),
        *_health(service, facts, state),
        *_fabric(facts, state),
    ]
    if not state.root:
        todo = "allow `sudo -n` for the SSH user, or connect as root"
        found.append(
            Finding("warn", "", "not root: processes, ports and the model's permissions could not be told", todo)
        )
    return sorted(found, key=lambda one: (one.level != "refuse", one.where, one.what))


def _model(service: Service, state: HostState) -> Iterator[Finding]:
    model = state.model(service.model.path)
    if model is None:
        return
    if not model.exists:
        yield Finding(
            "refuse", "model", f"{model.path} is not a folder on the host", "copy the model there, or correct the path"
        )
        return
    if model.missing:
        shown = ", ".join(model.missing[:3]) + (f" and {len(model.missing) - 3} more" if len(model.missing) > 3 else "")
        yield Finding("refuse", "model", f"{model.path} is not complete: {shown}", "copy the missing files")
    if model.unreadable:
        todo = "let the service's user read it (chmod -R a+rX)"
        yield Finding("refuse", "model", f"the service's user cannot read {model.unreadable}", todo)


def _disk(state: HostState) -> Iterator[Finding]:
    """Said only: a host whose disk is full fails while files are staged, and drops out alone."""
    for path, free in sorted(state.disk.items()):
        if free < _MIN_FREE:
            yield Finding(
                "warn", "", f"{free // 1024**2} MiB are free at {path}", "make room, old releases and engines first"
            )


def _ours(process: Process, service: Service) -> bool:
    return process.unit == service.unit


def _who(process: Process) -> str:
    unit = f" of {process.unit}" if process.unit else ""
    return f"process {process.pid} ({process.name or 'unknown'}{unit})"


def _adopt(process: Process, what: str) -> str:
    if process.unit.endswith(".service"):
        return (
            f"to take it over, put its flags into a service file (`sglfleet import`), then "
            f"`systemctl disable --now {process.unit}`"
        )
    return f"stop it, or give the service another {what}"


def _port(service: Service, state: HostState) -> Iterator[Finding]:
    for process in state.ports.get(service.port, ()):
        if not _ours(process, service):
            yield Finding(
                "refuse", "args.port", f"port {service.port} is held by {_who(process)}", _adopt(process, "port")
            )
            return


def _processes(service: Service, facts: HostFacts, state: HostState) -> Iterator[Finding]:
    by_gpu: dict[int, list[GpuProcess]] = {}
    for one in state.gpu_processes:
        if one.gpu in service.gpus and not _ours(one.process, service) and not _small(one):
            by_gpu.setdefault(one.gpu, []).append(one)
    for gpu, group in sorted(by_gpu.items()):
        first = group[0]
        memory = f" with {first.memory_mib} MiB" if first.memory_mib else ""
        more = f" and {len(group) - 1} more" if len(group) > 1 else ""
        what = f"GPU {gpu} is held by {_who(first.process)}{memory}{more}"
        yield Finding("warn", "gpus", what, _adopt(first.process, "GPU"))


def _small(one: GpuProcess) -> bool:
    """Monitoring agents hold a few hundred MiB at most and do no harm."""
    return one.memory_mib is not None and one.memory_mib < 600


def _health(service: Service, facts: HostFacts, state: HostState) -> Iterator[Finding]:
    for gpu in state.gpu_health:
        if gpu.index not in service.gpus:
            continue
        name = f"GPU {gpu.index}"
        if gpu.remap_failed:
            yield Finding(
                "refuse", "gpus", f"{name}: row remapping has failed, its memory is worn out", "replace the card"
            )
        if gpu.remap_pending:
            yield Finding(
                "warn", "gpus", f"{name}: a row remapping waits for a reset", "reset the GPU (`nvidia-smi -r`)"
            )
        if gpu.ecc_uncorrected:
            what = f"{name}: {gpu.ecc_uncorrected} uncorrected ECC errors since the driver was loaded"
            yield Finding("warn", "gpus", what, "reset the GPU, replace the card if they come back")
        if gpu.recovery_action not in ("", "None", "N/A"):
            what = f"{name}: the driver asks for `{gpu.recovery_action}`"
            yield Finding("refuse", "gpus", what, "do that first: until then the GPU may fail any start")
    idle = [str(gpu.index) for gpu in state.gpu_health if gpu.index in service.gpus and gpu.persistence is False]
    if idle:
        todo = "enable it (`nvidia-smi -pm 1`, or nvidia-persistenced): every start pays for it"
        yield Finding("warn", "gpus", f"persistence mode is off on GPU {', '.join(idle)}", todo)
    yield from _xid(service, facts, state)


def _xid(service: Service, facts: HostFacts, state: HostState) -> Iterator[Finding]:
    # the kernel writes PCI:0000:06:00 or PCI:0000:06:00.0, nvidia-smi 00000000:06:00.0: bus and device are the same
    wanted = {_slot(gpu.pci_bus_id): gpu.index for gpu in facts.gpus or () if gpu.index in service.gpus}
    seen: dict[tuple[int, int], int] = {}
    for line in state.xid:
        hit = re.search(r"Xid \(PCI:([0-9A-Fa-f:.]+)\): (\d+)", line)
        index = wanted.get(_slot(hit[1])) if hit else None
        if hit and index is not None:
            seen[index, int(hit[2])] = seen.get((index, int(hit[2])), 0) + 1
    for (index, number), count in sorted(seen.items()):
        what = f"GPU {index}: Xid {number}, {count} time{'s' * (count > 1)} since boot"
        todo = "reset or drain the GPU first" if number in _FATAL_XID else "look into `journalctl -k`"
        yield Finding("warn", "gpus", what, todo)


def _slot(bus_id: str) -> str:
    """Domain, bus and device of a PCI address, as it is written anywhere."""
    parts = bus_id.lower().split(".")[0].split(":")
    domain = parts[0].lstrip("0") if len(parts) == 3 else ""
    return ":".join((domain or "0", *parts[-2:]))


def _fabric(facts: HostFacts, state: HostState) -> Iterator[Finding]:
    pending = sorted(set(state.fabric) - {"Completed"})
    if pending:
        what = f"NVSwitch fabric: {', '.join(pending)}"
        if state.fabric_manager != "active":
            what += f", nvidia-fabricmanager is {state.fabric_manager or 'not installed'}"
        todo = "start nvidia-fabricmanager in the driver's own version: without it CUDA does not start"
        yield Finding("refuse", "gpus", what, todo)


def foreign(state: HostState) -> list[Finding]:
    """Hand-written SGLang units: named even where they hold nothing at the moment, as they would after a reboot."""
    found = []
    for unit in state.units:
        enabled = unit.enabled in ("enabled", "enabled-runtime")
        if unit.foreign and (unit.active == "active" or enabled):
            how = "runs SGLang here" if unit.active == "active" else "starts SGLang here at boot"
            todo = (
                f"`sglfleet import {unit.file or unit.name}` makes a service file of it; then "
                f"`systemctl disable --now {unit.name}`, or keep its GPUs and port out of the services here"
            )
            found.append(Finding("warn", "", f"{unit.name}, not written by sglfleet, {how}", todo))
    return found


def left_over(asked: Iterable[str], state: HostState) -> list[str]:
    """Services of ours that are on the host and not asked for any more."""
    names = {own.service for own in state.own if own.releases or own.current}
    names |= {
        unit.name.removeprefix("sglang-").removesuffix(".service")
        for unit in state.units
        if unit.file_release and unit.name.startswith("sglang-") and not unit.name.startswith("sglang-router-")
    }
    return sorted(names - set(asked))
