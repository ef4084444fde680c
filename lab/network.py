"""The lab's network: one bridge on the machine, one cable a host. No route leads outside: a host sees the lab only."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from lab.settings import Settings
from lab.shell import run, succeeds, wait_until


def bridge_up(lab: Settings) -> None:
    """Make the bridge, with the machine's own address in the lab."""
    if exists(lab.bridge):
        return
    batch = [
        f"link add {lab.bridge} type bridge forward_delay 0",
        f"addr add {lab.gateway}/{lab.network.prefixlen} dev {lab.bridge}",
        f"link set {lab.bridge} up",
    ]
    run(["ip", "-batch", "-"], "\n".join(batch))


def plug_in(lab: Settings, host: str, pid: int) -> None:
    """Lay the cable between the bridge and the network namespace of a process. Inside it is called `host0`."""
    unplug(lab, host)  # the kernel takes a dead host's cable away late
    cable = ["ip", "link", "add", lab.link(host), "type", "veth", "peer", "name", "host0"]
    run([*cable, "address", hardware_address(lab.address(host)), "netns", str(pid)])
    run(["ip", "link", "set", lab.link(host), "master", lab.bridge, "up"])
    inside = ["link set lo up", f"addr add {lab.address(host)}/{lab.network.prefixlen} dev host0", "link set host0 up"]
    run(["nsenter", f"--net=/proc/{pid}/ns/net", "ip", "-batch", "-"], "\n".join(inside))


def hardware_address(ip: str) -> str:
    """The same after every boot: others keep it for half a minute and would not find a host with a new one."""
    return "02:4c:" + ":".join(f"{int(part):02x}" for part in ip.split("."))


def unplug(lab: Settings, host: str) -> None:
    """Take the cable away, if it is there."""
    if exists(lab.link(host)):
        succeeds(["ip", "link", "del", lab.link(host)])
        wait_until(lambda: not exists(lab.link(host)), 30)


def switch(lab: Settings, host: str, up: bool) -> None:
    """Cut the cable, or heal it. Nothing is told to either side: packets are lost, as with a pulled plug."""
    run(["ip", "link", "set", lab.link(host), "up" if up else "down"])


def is_cut(lab: Settings, host: str) -> bool:
    """Whether the machine's end is switched off."""
    try:
        flags = int((Path("/sys/class/net") / lab.link(host) / "flags").read_text(), 16)
    except OSError:
        return False
    return not flags & 1


def bridge_down(lab: Settings, hosts: Iterable[str]) -> None:
    """Remove every link of the lab."""
    for host in hosts:
        unplug(lab, host)
    if exists(lab.bridge):
        run(["ip", "link", "del", lab.bridge])


def exists(link: str) -> bool:
    """Whether the machine has a network interface of that name."""
    return (Path("/sys/class/net") / link).exists()
