"""The machine below the labs: whether it can hold one, and the one setting that is changed on it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import platform
import shutil
from collections.abc import Iterator
from pathlib import Path

from lab import cgroups
from lab.settings import LabError, Settings
from lab.shell import run

INOTIFY = Path("/proc/sys/fs/inotify/max_user_instances")
INOTIFY_WANTED = 8192  # with the usual 128, about the 22nd host never reaches sshd, without a word
PROGRAMS = {  # program: the Debian package that brings it
    "systemd-nspawn": "systemd-container",
    "systemctl": "systemd",
    "ip": "iproute2",
    "ssh": "openssh-client",
    "sshd": "openssh-server",
    "ssh-keygen": "openssh-client",
    "nsenter": "util-linux",
    "unshare": "util-linux",
    "sudo": "sudo",
    "dbus-daemon": "dbus",
}
ALWAYS_MASKED = {
    "console-getty.service",
    "getty@tty1.service",
    "packagekit.service",
    "polkit.service",
    "ssh.socket",
    "systemd-networkd-wait-online.service",
    "systemd-networkd.service",
    "systemd-networkd.socket",
    "systemd-resolved.service",
    "systemd-timesyncd.service",
    "systemd-udevd.service",
}
SEARCH = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])


def cannot_hold_a_lab() -> list[str]:
    """Why this machine cannot hold a lab, each with what to do; empty where it can."""
    if platform.system() != "Linux":
        return [f"{platform.system()}: the lab needs Linux: use a Linux machine or a virtual one"]
    why = []
    if os.geteuid() != 0:
        why.append("user: not root: mounts, network links and control groups need it: use sudo")
    elif not _has_capability(21):
        why.append("user: root without CAP_SYS_ADMIN: run outside the container, or in one that is privileged")
    missing = sorted({package for program, package in PROGRAMS.items() if not shutil.which(program, path=SEARCH)})
    if missing:
        why.append(f"programs: missing: apt-get install {' '.join(missing)} (`make setup` does it)")
    if not Path("/lib/systemd/systemd").exists():
        why.append("systemd: not installed: hosts boot the machine's own: apt-get install systemd-sysv")
    try:
        cgroups.detect()
    except LabError as error:
        why.append(str(error))
    if "overlay" not in Path("/proc/filesystems").read_text():
        why.append("overlay: the kernel has no overlay file system: modprobe overlay")
    return why


def _has_capability(bit: int) -> bool:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("CapEff:"):
            return bool(int(line.split()[1], 16) >> bit & 1)
    return False


def enabled_units() -> set[str]:
    """Units that the machine starts at boot, and what must not run in a lab host: a second database, a clock setter."""
    listed = run(
        ["systemctl", "list-unit-files", "--root=/", "--state=enabled,enabled-runtime", "--no-legend", "--no-pager"]
    )
    units = {line.split()[0] for line in listed.splitlines() if line.strip()}
    scripts = {f"{path.name}.service" for path in Path("/etc/init.d").glob("*")}
    plain = {unit for unit in units if not unit.startswith(("getty@.", "systemd-journal"))}
    return (plain | scripts | ALWAYS_MASKED) - {"sudo.service", "procps.service", "machines.target"}


@contextlib.contextmanager
def held(file: Path) -> Iterator[None]:
    """Hold a lock file, and take it away afterwards; whoever waited for it then makes it anew."""
    while True:
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            try:
                mine = os.fstat(lock.fileno()).st_ino == file.stat().st_ino
            except FileNotFoundError:
                mine = False
            if mine:
                try:
                    yield
                finally:
                    file.unlink(missing_ok=True)
                    with contextlib.suppress(OSError):
                        file.parent.rmdir()
                return


def alone(lab: Settings) -> contextlib.AbstractContextManager[None]:
    """One `up` or `down` of a lab at a time; other labs don't wait."""
    return held(lab.state_root / f".{lab.name}.lock")


def enter(lab: Settings) -> None:
    """Make the lab's folder; allow more inotify instances. The first lab writes down what was there."""
    with held(lab.state_root / ".lock"):
        lab.state.mkdir(mode=0o755, parents=True, exist_ok=True)
        was = INOTIFY.read_text().strip()
        if int(was) < INOTIFY_WANTED:
            note = lab.state_root / ".inotify_was"
            if not note.exists():
                note.write_text(was)
            INOTIFY.write_text(str(INOTIFY_WANTED))


def leave(lab: Settings) -> None:
    """When the last lab is gone: put the setting back."""
    with held(lab.state_root / ".lock"):
        note = lab.state_root / ".inotify_was"
        if not labs(lab.state_root) and note.exists():
            INOTIFY.write_text(note.read_text())
            note.unlink()


def labs(root: Path) -> list[str]:
    """Names of the labs that have files on this machine."""
    return sorted(path.name for path in root.iterdir() if path.is_dir()) if root.is_dir() else []
