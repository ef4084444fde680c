"""What stands around a service on its host and would hurt it, read from the host's state before the start. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sglfleet import paths

if TYPE_CHECKING:
    from validators.facts import HostFacts
    from validators.service import Service
    from validators.state import HostState, Process

UNIT_PREFIX, UNIT_SUFFIX = "sglang-", ".service"


@dataclass(frozen=True, slots=True)
class Remark:
    """One thing about a host. `refused`: the service cannot start there."""

    what: str
    todo: str
    refused: bool = False


def remarks(service: Service, facts: HostFacts, state: HostState) -> list[Remark]:
    """Everything to say about one service's surroundings on one host."""
    return [*_port(service, state), *_gpus(service, state), *_fabric(facts, state), *_model(service, state)]


def leftovers(wanted: set[str], state: HostState) -> list[str]:
    """Services of ours on the host that its configuration does not list any more."""
    there = {unit.name for unit in state.units if unit.file_release and unit.load != "not-found"}
    names = {n.removeprefix(UNIT_PREFIX).removesuffix(UNIT_SUFFIX) for n in there if n.startswith(UNIT_PREFIX)}
    return sorted(name for name in names - wanted if not name.startswith("router-"))


def foreign(state: HostState) -> list[Remark]:
    """SGLang units that somebody else wrote."""
    return [
        Remark(
            f"{unit.name} runs SGLang and was not written by sglfleet ({unit.active or 'not loaded'})",
            f"adopt it: `sglfleet import {unit.file or unit.name}` makes a service file of it; then disable the old unit",
        )
        for unit in state.units
        if unit.foreign
    ]


def _name(process: Process) -> str:
    return f"{process.name or 'process'} {process.pid}" + (f" of {process.unit}" if process.unit else "")


def _ours(process: Process, service: Service) -> bool:
    return process.unit == paths.unit(service.service)


def _port(service: Service, state: HostState) -> Iterator[Remark]:
    holders = [p for p in state.ports.get(service.port, ()) if not _ours(p, service)]
    if holders:
        who = ", ".join(_name(p) for p in holders)
        unit = next((p.unit for p in holders if p.unit), "")
        todo = f"stop it: `systemctl disable --now {unit}`" if unit else "stop it"
        yield Remark(f"port {service.port} is held by {who}", f"{todo}, or give the service another `port`", True)


def _gpus(service: Service, state: HostState) -> Iterator[Remark]:
    for one in state.gpu_processes:
        if one.gpu in service.gpus and not _ours(one.process, service):
            size = f" with {one.memory_mib} MiB" if one.memory_mib else ""
            yield Remark(f"GPU {one.gpu} is used by {_name(one.process)}{size}", "end it, or take another GPU")
    for health in state.gpu_health:
        if health.index not in service.gpus:
            continue
        gpu = f"GPU {health.index}"
        if health.persistence is False:
            yield Remark(f"{gpu}: persistence mode is off", "enable nvidia-persistenced: else every start waits for it")
        if health.ecc_uncorrected:
            yield Remark(f"{gpu}: {health.ecc_uncorrected} uncorrected ECC errors", "drain the host and reset the GPU")
        if health.remap_failed or health.remap_pending:
            yield Remark(f"{gpu}: memory rows wait to be remapped", "reset the GPU, or have it replaced")
        if health.recovery_action not in ("", "None", "N/A"):
            yield Remark(f"{gpu}: nvidia-smi advises {health.recovery_action}", "do that first")
    for line in state.xid[-3:]:
        yield Remark(
            f"the kernel logged {line.strip()[:160]}", "look the Xid up in NVIDIA's list first"
        )


def _fabric(facts: HostFacts, state: HostState) -> Iterator[Remark]:
    if facts.nvswitch and state.fabric_manager != "active":
        word = state.fabric_manager or "not installed"
        yield Remark(f"NVSwitch host, but the fabric manager is {word}", "start nvidia-fabricmanager.service")
    if bad := sorted({word for word in state.fabric if word not in ("Completed", "N/A", "Not Supported", "")}):
        yield Remark(f"GPU fabric state: {', '.join(bad)}", "wait for the fabric manager, or restart it")


def _model(service: Service, state: HostState) -> Iterator[Remark]:
    model = state.model(service.model.path)
    if model is None:
        return
    if not model.exists:
        yield Remark(f"model {model.path} is not there", "put the checkpoint there, or correct `model`", True)
    elif model.missing:
        some = ", ".join(model.missing[:3]) + (" …" if len(model.missing) > 3 else "")
        yield Remark(f"model {model.path}: {some} missing", "finish the download", True)
    elif model.unreadable:
        yield Remark(
            f"model {model.path}: {model.unreadable} cannot be read by the service user", "let it read it", True
        )
