"""Which lab is meant: its name, its network, where its files lie. Several labs stand side by side by these three."""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

STATE = Path("/var/lib/sglfleet-lab")  # one folder a lab; hidden from the hosts themselves
CACHE = Path("/var/cache/sglfleet-lab")  # engine and model, seen read-only by all hosts
FIRST_ADDRESS = 10  # h1 is .11
MAX_HOSTS = 200
NAME = re.compile(r"[A-Za-z][A-Za-z0-9]{0,8}")  # the bridge "<name>br0" and the link "<name>-h200" have 15 characters


class LabError(Exception):
    """What is wrong and what to do, in the form `where: what: what to do`."""


@dataclass(frozen=True)
class Settings:
    """Name and network of one lab."""

    name: str
    network: ipaddress.IPv4Network
    disk_mib: int | None = None  # limit of all hosts' written files together; None: half of the memory
    state_root: Path = STATE
    cache: Path = CACHE

    @property
    def state(self) -> Path:
        """Folder of this lab's keys, configuration and disks."""
        return self.state_root / self.name

    @property
    def bridge(self) -> str:
        """Network interface on the machine that all hosts hang on."""
        return f"{self.name}br0"

    @property
    def gateway(self) -> str:
        """The machine's own address in the lab."""
        return str(self.network[1])

    def address(self, host: str) -> str:
        """Address of `h1`, `h2`, …"""
        return str(self.network[FIRST_ADDRESS + number(host)])

    def link(self, host: str) -> str:
        """The machine's end of a host's cable."""
        return f"{self.name}-{host}"


def number(host: str) -> int:
    """1 for `h1`. Raises LabError for anything that is no host's name."""
    match = re.fullmatch(r"h([1-9]\d*)", host)
    if not match or int(match[1]) > MAX_HOSTS:
        raise LabError(f"{host}: not a lab host: hosts are called h1, h2, … h{MAX_HOSTS}")
    return int(match[1])


def settings(name: str | None = None, network: str | None = None, environ: Mapping[str, str] | None = None) -> Settings:
    """Settings from arguments, then LAB_NAME, LAB_NET, LAB_DISK_MIB and SGLFLEET_LAB_CACHE, then defaults.

    A network is written `10.77.0.0/24` or, short, `10.77.0`. Raises LabError for all that is wrong at once.
    """
    env = os.environ if environ is None else environ
    name = name or env.get("LAB_NAME") or "lab"
    text = network or env.get("LAB_NET") or "10.77.0.0/24"
    wrong = []
    if not NAME.fullmatch(name):
        wrong.append(f"LAB_NAME: {name!r} is no lab's name: use one letter and up to 8 more letters or digits")
    net = None
    try:
        net = ipaddress.IPv4Network(f"{text}.0/24" if text.count(".") == 2 else text)
    except ValueError as error:
        wrong.append(f"LAB_NET: {error}: write a private network as 10.77.0.0/24")
    if net is not None and (net.prefixlen > 24 or not net.is_private):
        wrong.append(f"LAB_NET: {net} is not a private /24 or larger: write a private network as 10.77.0.0/24")
    disk = env.get("LAB_DISK_MIB", "")
    if disk and not re.fullmatch(r"[1-9]\d*", disk):
        wrong.append(f"LAB_DISK_MIB: {disk!r} is no number of MiB: write for example 4096")
    if wrong or net is None:
        raise LabError("\n".join(wrong))
    cache = Path(env.get("SGLFLEET_LAB_CACHE") or CACHE)
    return Settings(name, net, int(disk) if disk else None, cache=cache.absolute())
