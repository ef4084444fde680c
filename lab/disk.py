"""Disks of lab hosts: overlays on the machine's own `/`, so no root file system has to be built.

All that hosts write lies on one tmpfs of the lab, because an overlay's upper folder must not lie in its lower one.
Between them comes a small layer, `base`, that makes a plain server of the machine: its own services masked, sshd on,
a user `deploy` with sudo.
"""

from __future__ import annotations

import os
import shutil
import stat
import uuid
from pathlib import Path

from lab import keys, machine
from lab.settings import Settings
from lab.shell import run, succeeds, wait_until

USER, USER_ID = "deploy", 1999  # the user for deploys that do not log in as root
KEPT = {"ssh.service", "dbus.service", "dbus.socket", "dbus-broker.service", "remote-fs.target"}
FLEET_FOLDERS = ("etc/sglfleet", "var/lib/sglfleet", "var/cache/sglfleet", "opt/sglfleet")
SSHD = """\
# A lab host: keys only, many sessions at once.
PermitRootLogin prohibit-password
PasswordAuthentication no
AllowTcpForwarding yes
UseDNS no
MaxStartups 100:30:200
MaxSessions 100
LogLevel VERBOSE
HostKey /etc/ssh/ssh_host_ed25519_key
"""


class Layer:
    """A folder that becomes a layer of a root file system: what it holds hides what the machine has there."""

    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir(parents=True, exist_ok=True)
        root.chmod(0o755)

    def folder(self, path: str, mode: int | None = None, owner: int | None = None) -> Path:
        """Make a folder as the machine has it, parents too, because a layer's folder brings its own mode and owner."""
        here, there = self.root, Path("/")
        for part in Path(path).parts:
            here, there = here / part, there / part
            if not here.is_dir():
                here.mkdir()
                if there.is_dir():
                    like = there.stat()
                    os.chown(here, like.st_uid, like.st_gid)
                    here.chmod(stat.S_IMODE(like.st_mode))
        if mode is not None:
            here.chmod(mode)
        if owner is not None:
            os.chown(here, owner, owner)
        return here

    def file(self, path: str, text: str, mode: int = 0o644, owner: int = 0) -> None:
        """Write a file."""
        target = self.folder(str(Path(path).parent)) / Path(path).name
        target.write_text(text)
        target.chmod(mode)
        os.chown(target, owner, owner)

    def link(self, path: str, to: str) -> None:
        """Make a symbolic link, instead of what is there."""
        target = self.folder(str(Path(path).parent)) / Path(path).name
        target.unlink(missing_ok=True)
        target.symlink_to(to)

    def hide(self, path: str) -> None:
        """Let hosts not see what the machine has there."""
        target = self.folder(str(Path(path).parent)) / Path(path).name
        os.mknod(target, stat.S_IFCHR, os.makedev(0, 0))  # how overlayfs writes "nothing here"


def mount(lab: Settings) -> None:
    """Mount the tmpfs that holds what hosts write."""
    folder = lab.state / "disks"
    folder.mkdir(parents=True, exist_ok=True)
    if not os.path.ismount(folder):
        size = f"{lab.disk_mib}m" if lab.disk_mib else "50%"
        run(["mount", "-t", "tmpfs", "-o", f"mode=755,size={size}", f"sglfleet-lab-{lab.name}", str(folder)])


def unmount(lab: Settings) -> None:
    """Forget everything that hosts wrote. A namespace that is just ending may hold the mount for a moment."""
    folder = lab.state / "disks"
    if os.path.ismount(folder) and not wait_until(lambda: succeeds(["umount", str(folder)]), 30, pause=0.1):
        run(["umount", str(folder)])


def base(lab: Settings) -> None:
    """Write the layer that all hosts of a lab share."""
    layer = Layer(lab.state / "disks" / "base")
    public = keys.client_public(lab)
    for unit in sorted(machine.enabled_units() - KEPT):
        layer.link(f"etc/systemd/system/{unit}", "/dev/null")
    layer.link("etc/systemd/system/default.target", "/lib/systemd/system/multi-user.target")
    layer.link("etc/systemd/system/multi-user.target.wants/ssh.service", "/lib/systemd/system/ssh.service")
    layer.file("etc/ssh/sshd_config.d/00-lab.conf", SSHD)  # sshd takes the first value it reads
    layer.file("etc/fstab", "")
    layer.file("etc/resolv.conf", "")
    for database, line in {
        "passwd": f"{USER}:x:{USER_ID}:{USER_ID}:lab user:/home/{USER}:/bin/bash",
        "shadow": f"{USER}:*:19000:0:99999:7:::",
        "group": f"{USER}:x:{USER_ID}:",
        "gshadow": f"{USER}:!::",
    }.items():
        path = Path("/etc") / database
        lines = [one for one in path.read_text().splitlines() if not one.startswith(f"{USER}:")]
        layer.file(f"etc/{database}", "\n".join([*lines, line]) + "\n")
        copied = layer.root / "etc" / database
        copied.chmod(stat.S_IMODE(path.stat().st_mode))
        os.chown(copied, path.stat().st_uid, path.stat().st_gid)
    layer.file(f"etc/sudoers.d/{USER}", f"{USER} ALL=(ALL:ALL) NOPASSWD: ALL\n", 0o440)
    layer.folder("root", 0o711)  # so that a Python below /root can be run by a service's own user
    layer.folder("root/.ssh", 0o700)
    layer.file("root/.ssh/authorized_keys", public, 0o600)
    for start in (".bashrc", ".bash_profile", ".bash_login", ".profile"):
        layer.file(f"root/{start}", "")  # read for every ssh command; the machine's own can take seconds
    layer.folder(f"home/{USER}", 0o755, USER_ID)
    layer.folder(f"home/{USER}/.ssh", 0o700, USER_ID)
    layer.file(f"home/{USER}/.ssh/authorized_keys", public, 0o600, USER_ID)
    layer.folder("var/log/journal")  # a journal that survives a reboot
    layer.hide(str(lab.state_root.relative_to("/")))  # keys and disks of labs
    for path in (Path("/") / name for name in FLEET_FOLDERS):  # where the machine is itself a GPU node of a fleet
        if path.exists():
            layer.hide(str(path.relative_to("/")))


def create(lab: Settings, host: str) -> None:
    """Give a host an empty disk and what is its own: name, machine id, host key."""
    disk = lab.state / "disks" / host
    for part in ("work", "root"):
        (disk / part).mkdir(parents=True, exist_ok=True)
    layer = Layer(disk / "upper")
    layer.file("etc/hostname", f"{host}\n")
    layer.file("etc/hosts", f"127.0.0.1 localhost\n{lab.address(host)} {host}\n{lab.gateway} machine\n")
    layer.file("etc/machine-id", uuid.uuid4().hex + "\n", 0o444)
    private, public = keys.host_key(lab, host)
    layer.file("etc/ssh/ssh_host_ed25519_key", private, 0o600)
    layer.file("etc/ssh/ssh_host_ed25519_key.pub", public)


def overlay_options(lab: Settings, host: str) -> str:
    """Mount options of a host's root file system."""
    disks = lab.state / "disks"
    return f"lowerdir={disks / 'base'}:/,upperdir={disks / host / 'upper'},workdir={disks / host / 'work'}"


def remove(lab: Settings) -> None:
    """Remove all files of a lab."""
    unmount(lab)
    shutil.rmtree(lab.state, ignore_errors=True)
