"""How a host is right now: units, releases, processes, ports, models, disks. Measured, shown, never recorded."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from validators.facts import Fact, HostFacts


class Process(Fact):
    """A process that matters: on a GPU, on a wanted port, or SGLang."""

    pid: int
    name: str = ""
    unit: str = ""  # the systemd unit it belongs to, "" for none
    release: str | None = None  # SGLFLEET_RELEASE in its environment


class GpuProcess(Fact):
    """A process that holds memory on a GPU."""

    gpu: int
    process: Process
    memory_mib: int | None = None


class GpuHealth(Fact):
    """What may go wrong with a GPU by itself."""

    index: int
    persistence: bool | None = None
    ecc_uncorrected: int | None = None  # volatile, since the driver was loaded
    remap_failed: bool | None = None
    remap_pending: bool | None = None
    recovery_action: str = ""  # nvidia-smi's own advice: "None", "Reset", "Reboot", "Drain P2P" …
    memory_used_mib: int | None = None


class Unit(Fact):
    """A systemd unit."""

    name: str
    load: str = ""
    active: str = ""
    sub: str = ""
    result: str = ""
    enabled: str = ""
    file: str = ""
    pid: int = 0
    invocation: str = ""
    restarts: int = 0
    since: str = ""
    release: str | None = None  # of the running process, read from its environment
    file_release: str | None = None  # written in the unit file
    foreign: bool = False  # runs SGLang, but was not written by sglfleet


class Own(Fact):
    """What is on the disk for one service of ours."""

    service: str
    current: str | None = None
    releases: tuple[str, ...] = ()
    lock: str | None = None  # text of the lock file
    edited: bool = False  # the unit in place is not the one that `current` came with
    turn: str | None = None  # a roll's own notes on this node, `key=value` lines

    @property
    def settled(self) -> bool:
        """No turn of a roll was begun here that nobody accepted or undid."""
        phase = next((line[6:] for line in (self.turn or "").splitlines() if line.startswith("phase=")), "")
        return phase.strip() in ("", "accepted", "reverted", "stopped")


class Model(Fact):
    """A checkpoint on the host."""

    path: str
    exists: bool
    missing: tuple[str, ...] = ()
    bytes: int = 0
    unreadable: str | None = None  # "": readable by the service user; None: could not be tried
    config: dict[str, Any] | None = None  # its config.json


class HostState(Fact):
    """Everything about a host that is true only now."""

    root: bool = False  # whether the collector ran as root, else processes and users could not be told
    boot_id: str = ""
    uptime: float = 0.0
    gpu_health: tuple[GpuHealth, ...] = ()
    gpu_processes: tuple[GpuProcess, ...] = ()
    xid: tuple[str, ...] = ()  # Xid lines of the kernel since boot
    fabric_manager: str = ""  # state of its unit, "" where there is none
    fabric: tuple[str, ...] = ()  # fabric state of each GPU, on NVSwitch hosts
    units: tuple[Unit, ...] = ()
    own: tuple[Own, ...] = ()
    ports: dict[int, tuple[Process, ...]] = Field(default={})  # who listens on the ports that are wanted
    sglang: tuple[Process, ...] = ()  # every SGLang process, ours or not
    models: tuple[Model, ...] = ()
    disk: dict[str, int] = Field(default={})  # bytes free
    uv: str | None = None

    def unit(self, name: str) -> Unit | None:
        """A unit by name, None where systemd does not know it."""
        return next((unit for unit in self.units if unit.name == name and unit.load != "not-found"), None)

    def model(self, path: str) -> Model | None:
        """A model by path."""
        return next((model for model in self.models if model.path == path), None)


class Collected(Fact):
    """One round trip's answer."""

    facts: HostFacts
    state: HostState
    error: str = ""  # why nothing could be collected; facts are then empty, which means unknown
