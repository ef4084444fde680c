"""One lab host: boot it, cut its power, run something in it."""

from __future__ import annotations

import functools
import os
import socket
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

from lab import cgroups, disk, network
from lab.settings import LabError, Settings, number
from lab.shell import wait_until

# Lives as long as the host, in mount and network namespaces of its own, so that all mounts vanish with it. It waits
# for a word before it starts: the cable must be plugged in first, and when `up` dies the word never comes.
# 133 is how nspawn says that the host asked for a reboot.
RUNNER = """
state=$1; host=$2; options=$3; shift 3
for file in $RUNNER_GROUPS; do echo $$ > "$file" || exit 1; done
read -r go || exit 1
exec < /dev/null
for other in "${state%/*}"/*/disks; do [ "$other" = "$state/disks" ] || umount -l "$other" 2>/dev/null; done
mount -t tmpfs -o mode=755,size=16m run /run || exit 1
mkdir -p /run/systemd
mount -t overlay "$host" -o "$options" "$state/disks/$host/root" || exit 1
while :; do
  # A group whose children have controllers takes no process itself: leave nothing of the last boot.
  find "$BOX" -mindepth 1 -depth -type d -exec rmdir {} + 2>/dev/null
  for one in $(cat "$BOX/cgroup.subtree_control"); do echo "-$one" > "$BOX/cgroup.subtree_control"; done
  sh -c 'for file in $BOX_GROUPS; do echo $$ > "$file" || exit 1; done; exec "$@"' box "$@"
  code=$?
  echo "systemd-nspawn ended with $code"
  [ $code = 133 ] || exit $code
done
"""


@dataclass(frozen=True)
class Host:
    """A host of a lab, up or not."""

    lab: Settings
    name: str

    def __post_init__(self) -> None:
        number(self.name)

    @property
    def ip(self) -> str:
        return self.lab.address(self.name)

    @functools.cached_property
    def group(self) -> cgroups.HostGroup:
        return cgroups.HostGroup(cgroups.detect(), self.lab.name, self.name)

    def is_up(self) -> bool:
        """Whether it has power; not whether it answers."""
        return self.group.populated()

    def boot(self) -> None:
        """Switch it on, if it is off; does not wait for sshd. Its disk is as the last power cut left it."""
        if self.is_up():
            return
        self.group.create()
        log = self.lab.state / f"{self.name}.console.log"
        nspawn = [
            "systemd-nspawn", "--quiet", "--boot", "--register=no", "--keep-unit", "--settings=no",
            f"--directory={self.lab.state}/disks/{self.name}/root",
            f"--machine={self.lab.name}-{self.name}", f"--hostname={self.name}",
            "--network-namespace-path=/proc/self/ns/net",
            "--resolv-conf=off", "--timezone=off", "--link-journal=no", "--console=read-only",
            f"--bind-ro={self.lab.cache}",
            "--kill-signal=SIGRTMIN+3",
        ]  # fmt: skip
        self.lab.cache.mkdir(parents=True, exist_ok=True)
        options = disk.overlay_options(self.lab, self.name)
        argv = ["setsid", "--fork", "unshare", "--mount", "--net", "sh", "-c", RUNNER, f"lab-{self.name}"]
        env = {
            "PATH": os.environ.get("PATH", "") + ":/usr/sbin:/sbin",
            "UNIFIED_CGROUP_HIERARCHY": "1",
            "SYSTEMD_NSPAWN_UNIFIED_HIERARCHY": "1",
            "RUNNER_GROUPS": " ".join(map(str, self.group.files("runner"))),
            "BOX": str(self.group.path / "box"),
            "BOX_GROUPS": " ".join(map(str, self.group.files("box"))),
        }
        with log.open("ab") as console:
            starter = subprocess.Popen(
                [*argv, str(self.lab.state), self.name, options, *nspawn],
                stdin=subprocess.PIPE, stdout=console, stderr=console, env=env, cwd="/",
            )  # fmt: skip
        starter.wait(timeout=60)  # setsid has forked
        if not wait_until(lambda: bool(self.group.pids("runner")), 60):
            raise LabError(f"{self.name}: did not start: {self.console(5)}")
        network.plug_in(self.lab, self.name, self.group.pids("runner")[0])
        assert starter.stdin is not None
        with starter.stdin as word:
            word.write(b"go\n")

    def wait(self, seconds: float = 60) -> None:
        """Wait until its sshd answers. Raises LabError with the console's last lines."""

        def answers() -> bool:
            if not self.is_up():
                raise LabError(f"{self.name}: went off while it booted: {self.console(8)}")
            return self.greets()

        if not wait_until(answers, seconds, pause=0.1):
            raise LabError(f"{self.name}: no sshd after {seconds:g} s: {self.console(8)}")

    def boot_id(self) -> str:
        """systemd's journal id of the boot that runs; the kernel's own is the machine's. Empty while it boots."""
        try:
            listed = self.exec("journalctl", "--list-boots", "--no-pager", "--quiet").stdout.split("\n")
        except LabError:
            return ""
        return listed[-2].split()[1] if len(listed) > 1 else ""

    def greets(self) -> bool:
        """Whether sshd says its name."""
        try:
            with socket.create_connection((self.ip, 22), timeout=1) as connection:
                connection.settimeout(2)
                return connection.recv(4) == b"SSH-"
        except OSError:
            return False

    def crash(self) -> None:
        """Cut its power: no process runs one more instruction."""
        self.group.kill()

    def halt(self, seconds: float = 90) -> None:
        """Shut it down in order; cut its power when it takes longer. LabError says so."""
        if self.is_up() and not self.group.shut_down(seconds):
            self.group.kill()
            raise LabError(f"{self.name}: did not halt within {seconds:g} s: its power was cut")

    def cut(self) -> None:
        """Pull the network plug."""
        network.switch(self.lab, self.name, up=False)

    def heal(self) -> None:
        """Put the network plug back."""
        network.switch(self.lab, self.name, up=True)

    def freeze(self) -> None:
        """Let it hang: connections are accepted, nothing answers."""
        self.group.freeze(True)

    def thaw(self) -> None:
        """Let it go on."""
        self.group.freeze(False)

    def console(self, lines: int = 20) -> str:
        """Last lines of its console."""
        log = self.lab.state / f"{self.name}.console.log"
        return "\n".join(log.read_text(errors="replace").splitlines()[-lines:]) if log.exists() else "no console log"

    def exec_argv(self, argv: Sequence[str]) -> list[str]:
        """Command that runs `argv` inside as root, not over the network."""
        leader = self.group.leader()
        if leader is None:
            raise LabError(f"{self.name}: is off: sglfleet lab boot {self.name}")
        join = ["nsenter", "-t", str(leader), "-m", "-u", "-i", "-n", "-p", "-C", "--root", "--wd", "--no-fork", "--"]
        # A host that shuts down stops all its processes for a moment. nsenter's own fork would stop with its child,
        # stay so, and keep the host from ending; a shell without job control waits on.
        wait = ["sh", "-c", '"$@"; exit $?', "wait"]
        enter = "for file in $0; do echo $$ > $file; done; "
        groups = " ".join(map(str, self.group.files("exec")))
        return ["sh", "-c", enter + 'exec "$@"', groups, *join, *wait, *argv]

    def exec(self, *argv: str, stdin: str = "", timeout: float = 60) -> subprocess.CompletedProcess[str]:
        """Run a program inside as root, past sshd. Does not raise when it fails; look at `returncode`."""
        return subprocess.run(
            self.exec_argv(argv), input=stdin, capture_output=True, text=True, timeout=timeout, check=False
        )

    def ssh_argv(self, *command: str, user: str = "root") -> list[str]:
        """Command that logs in over the network."""
        return ["ssh", "-F", str(self.lab.state / "ssh_config"), "-o", f"User={user}", self.name, *command]

    def ssh(self, *command: str, user: str = "root", timeout: float = 60) -> subprocess.CompletedProcess[str]:
        """Run a shell command over SSH. Does not raise when it fails; look at `returncode`."""
        return subprocess.run(
            self.ssh_argv(*command, user=user), capture_output=True, text=True, timeout=timeout, check=False
        )
