"""A whole lab: up, down, status."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from lab import cgroups, disk, keys, machine, network, profiles
from lab.host import Host
from lab.settings import MAX_HOSTS, LabError, Settings, number, settings
from lab.shell import run

DEFAULT_PROFILE = "h200-x1"


@dataclass(frozen=True)
class Status:
    """How one host is."""

    host: str
    ip: str
    state: str  # up | off | frozen | cut
    profile: str


class Lab:
    """One lab on this machine, whether it is up or not. `Lab()` is the one that LAB_NAME and LAB_NET mean."""

    def __init__(self, lab: Settings | None = None) -> None:
        self.settings = lab or settings()

    @property
    def name(self) -> str:
        return self.settings.name

    @property
    def ssh_config(self) -> str:
        """Path of the client configuration: `ssh -F`, or pyinfra's `ssh_config_file`."""
        return str(self.settings.state / "ssh_config")

    @property
    def known_hosts(self) -> str:
        """Path of the host keys' file."""
        return str(self.settings.state / "known_hosts")

    @property
    def key(self) -> str:
        """Path of the client's private key."""
        return str(self.settings.state / "id")

    def profiles(self) -> dict[str, str]:
        """Host name -> profile, of the lab that is up; empty where none is."""
        file = self.settings.state / "hosts.json"
        return dict(json.loads(file.read_text())) if file.exists() else {}

    def hosts(self) -> list[Host]:
        """The hosts of the lab that is up, h1 first."""
        return [Host(self.settings, name) for name in sorted(self.profiles(), key=number)]

    def host(self, name: str) -> Host:
        """One host by name."""
        if name not in self.profiles():
            have = ", ".join(host.name for host in self.hosts()) or "none"
            raise LabError(f"{name}: no such host in lab {self.name}: there is {have}")
        return Host(self.settings, name)

    def up(self, count: int, chosen: Mapping[str, str] | None = None, default: str = DEFAULT_PROFILE) -> list[Host]:
        """Bring up `count` hosts; returns when all answer on SSH. What an earlier lab of this name left is removed.

        `chosen` gives single hosts a profile of their own. Raises LabError where the machine cannot hold a lab,
        a profile is unknown, or a host does not come up; then nothing is left behind.
        """
        if not 1 <= count <= MAX_HOSTS:
            raise LabError(f"{count}: a lab has 1 to {MAX_HOSTS} hosts")
        names = [f"h{index}" for index in range(1, count + 1)]
        wanted = {name: (chosen or {}).get(name, default) for name in names}
        wrong = [str(machine_error) for machine_error in machine.cannot_hold_a_lab()]
        wrong += [f"{name}: no such host: the lab has h1 to h{count}" for name in chosen or {} if name not in wanted]
        for name in sorted(set(wanted.values())):
            try:
                profiles.load(name)
            except LabError as error:
                wrong.append(str(error))
        if wrong:
            raise LabError("\n".join(wrong))
        with machine.alone(self.settings):
            self._down()
            try:
                return self._up(wanted)
            except BaseException:
                self._down()
                machine.leave(self.settings)
                raise

    def _up(self, wanted: dict[str, str]) -> list[Host]:
        lab = self.settings
        machine.enter(lab)
        disk.mount(lab)
        disk.base(lab)
        network.bridge_up(lab)
        (lab.state / "hosts.json").write_text(json.dumps(wanted))
        hosts = self.hosts()

        def start(host: Host) -> None:
            disk.create(lab, host.name)
            profiles.install(
                disk.Layer(lab.state / "disks" / host.name / "upper"), wanted[host.name], number(host.name)
            )
            host.boot()

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(start, hosts))
        keys.write_client_files(lab, wanted)
        with ThreadPoolExecutor(len(hosts)) as pool:
            list(pool.map(lambda host: host.wait(60 + 2 * len(hosts)), hosts))
        return hosts

    def down(self) -> None:
        """Remove the lab: processes, control groups, links, mounts, files, and the changed setting."""
        with machine.alone(self.settings):
            self._down()
            machine.leave(self.settings)

    def _down(self) -> None:
        trees = cgroups.detect()
        left = {path.name for path in (trees.v2 / self.name).glob("h*")} | set(self._links()) | set(self.profiles())
        groups = [cgroups.HostGroup(trees, self.name, name) for name in sorted(left)]
        with ThreadPoolExecutor(max(1, len(groups))) as pool:
            list(pool.map(cgroups.HostGroup.kill, groups))
        for group in groups:
            group.remove()
        cgroups.remove_lab(trees, self.name)
        network.bridge_down(self.settings, left)
        disk.remove(self.settings)

    def _links(self) -> Iterable[str]:
        """Hosts that still have a cable."""
        prefix = f"{self.name}-h"
        for line in run(["ip", "-brief", "link"]).splitlines():
            name = line.split()[0].split("@")[0] if line.strip() else ""
            if name.startswith(prefix) and name[len(prefix) :].isdigit():
                yield f"h{name[len(prefix) :]}"

    def status(self) -> list[Status]:
        """How each host is."""
        chosen = self.profiles()

        def state(host: Host) -> str:
            if not host.is_up():
                return "off"
            if host.group.frozen():
                return "frozen"
            return "cut" if network.is_cut(self.settings, host.name) else "up"

        return [Status(host.name, host.ip, state(host), chosen[host.name]) for host in self.hosts()]

    def set_profile(self, name: str, profile: str) -> None:
        """Let a running host play other GPUs from now on."""
        host = self.host(name)
        profiles.change(host, profile)
        chosen = self.profiles() | {name: profile}
        (self.settings.state / "hosts.json").write_text(json.dumps(chosen))

    def set_fault(self, name: str, changes: dict[str, Any]) -> None:
        """Lay faults over a running host's GPUs: `{"gpus": {"0": {"persistence_mode": "Disabled"}}, "lost": [1]}`."""
        profiles.fault(self.host(name), changes)
