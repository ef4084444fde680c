"""Control groups of lab hosts. The only place that knows where a machine keeps them.

A machine is *pure* (v2 at /sys/fs/cgroup: Debian, Ubuntu today) or *hybrid* (v1 controllers there, v2 at `unified`).
A host owns the v2 group `<lab>/<host>` with three below it, because v2 wants processes in leaves only:
`runner` (what starts systemd-nspawn again after a reboot), `box` (nspawn and the host itself), `exec` (visitors).
On a hybrid machine it owns groups of the same path in each v1 hierarchy that systemd looks at.
"""

from __future__ import annotations

import contextlib
import os
import signal
from dataclasses import dataclass
from pathlib import Path

from lab.settings import LabError
from lab.shell import wait_until

ROOT = Path("/sys/fs/cgroup")
V1_NEEDED = ("systemd", "memory", "pids")
PARTS = ("runner", "box", "exec")
CONTROLLERS = ("cpu", "memory", "pids", "io")


@dataclass(frozen=True)
class Hierarchies:
    """`v2`: where groups are frozen and killed. `v1`: further trees a host must have groups of its own in."""

    v2: Path
    v1: tuple[Path, ...] = ()

    @property
    def all(self) -> tuple[Path, ...]:
        return (self.v2, *self.v1)


def detect(root: Path = ROOT) -> Hierarchies:
    """How this machine keeps its groups. Raises LabError where there is no v2 hierarchy at all."""
    if (root / "cgroup.procs").exists() and (root / "cgroup.controllers").exists():
        return Hierarchies(root)
    unified = root / "unified"
    if (unified / "cgroup.procs").exists():
        return Hierarchies(unified, tuple(root / name for name in V1_NEEDED if (root / name / "cgroup.procs").exists()))
    raise LabError(f"{root}: no cgroup v2 hierarchy: boot with systemd.unified_cgroup_hierarchy=1")


@dataclass(frozen=True)
class HostGroup:
    """The groups of one host."""

    trees: Hierarchies
    lab: str
    host: str

    @property
    def path(self) -> Path:
        return self.trees.v2 / self.lab / self.host

    def create(self) -> None:
        """Make the groups; enable what controllers v2 has, so that limits work inside the host."""
        for tree in self.trees.all:
            for part in PARTS:
                (tree / self.lab / self.host / part).mkdir(parents=True, exist_ok=True)
        for group in (self.trees.v2, self.trees.v2 / self.lab, self.path):
            have = (group / "cgroup.controllers").read_text().split()
            for controller in set(CONTROLLERS).intersection(have):
                # Refused where the machine's own systemd holds it back: limits inside hosts are then not enforced.
                with contextlib.suppress(OSError):
                    (group / "cgroup.subtree_control").write_text(f"+{controller}")

    def files(self, part: str) -> list[Path]:
        """Where a process writes its id to become part of `runner`, `box` or `exec`."""
        return [tree / self.lab / self.host / part / "cgroup.procs" for tree in self.trees.all]

    def enter(self, part: str, pid: int = 0) -> None:
        """Put a process (0: the calling one) into a part."""
        for file in self.files(part):
            file.write_text(str(pid))

    def pids(self, below: str = "") -> list[int]:
        """Processes of the host, or of one group below it, as the machine counts them."""
        found: list[int] = []
        for folder, _, _ in os.walk(self.path / below):
            with contextlib.suppress(OSError):  # a group may vanish while it is read
                found += [int(line) for line in (Path(folder) / "cgroup.procs").read_text().split()]
        return found

    def leader(self) -> int | None:
        """The host's PID 1, as the machine counts; None where the host is not up so far."""
        pids = self.pids("box/payload/init.scope")
        return pids[0] if pids else None

    def populated(self) -> bool:
        """Whether any process lives in the host."""
        try:
            return "populated 1" in (self.path / "cgroup.events").read_text()
        except OSError:
            return False

    def freeze(self, on: bool) -> None:
        """Stop or continue every process: the kernel still accepts connections, nobody answers."""
        (self.path / "cgroup.freeze").write_text("1" if on else "0")

    def frozen(self) -> bool:
        try:
            return (self.path / "cgroup.freeze").read_text().strip() == "1"
        except OSError:
            return False

    def shut_down(self, seconds: float) -> bool:
        """Orderly power-off: nspawn turns SIGTERM into the host's own shutdown. False where it takes longer."""
        for pid in self.pids("box/supervisor"):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        return wait_until(lambda: not self.populated(), seconds)

    def kill(self) -> None:
        """Power cut: the whole subtree at once. A SIGKILL to nspawn alone would leave the host alive."""
        if not self.path.exists():
            return
        (self.path / "cgroup.kill").write_text("1")
        if not wait_until(lambda: not self.populated(), 60):
            raise LabError(f"{self.lab}/{self.host}: processes {self.pids()} outlive a kill: look at them with ps")

    def remove(self) -> None:
        """Take the groups away; the host must have no process any more."""
        for tree in self.trees.all:
            remove_tree(tree / self.lab / self.host)


def remove_tree(group: Path) -> None:
    """Remove a group and all below it. The kernel may hold one for a moment after its last process."""

    def gone() -> bool:
        for folder, _, _ in os.walk(group, topdown=False):
            with contextlib.suppress(OSError):
                Path(folder).rmdir()
        return not group.exists()

    if not wait_until(gone, 30, pause=0.05):
        raise LabError(f"{group}: the control group cannot be removed: look for processes in it")


def remove_lab(trees: Hierarchies, lab: str) -> None:
    """Remove a lab's own, now empty, groups."""
    for tree in trees.all:
        remove_tree(tree / lab)
