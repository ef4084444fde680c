"""Where a machine keeps its control groups is known in one place; here with trees of plain files."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab import cgroups
from lab.settings import LabError


def tree(root: Path, *groups: str) -> Path:
    for group in groups:
        (root / group).mkdir(parents=True, exist_ok=True)
        (root / group / "cgroup.procs").touch()
    return root


def test_a_pure_machine(tmp_path: Path) -> None:
    root = tree(tmp_path, ".")
    (root / "cgroup.controllers").write_text("cpu memory pids\n")
    found = cgroups.detect(root)
    assert found == cgroups.Hierarchies(root)
    host = cgroups.HostGroup(found, "lab", "h1")
    assert host.path == root / "lab" / "h1"
    assert host.files("box") == [root / "lab" / "h1" / "box" / "cgroup.procs"]


def test_a_hybrid_machine(tmp_path: Path) -> None:
    root = tree(tmp_path, "unified", "systemd", "memory", "pids", "cpu")
    found = cgroups.detect(root)
    assert found.v2 == root / "unified"
    assert found.v1 == (root / "systemd", root / "memory", root / "pids")
    assert [str(file.relative_to(root)) for file in cgroups.HostGroup(found, "lab", "h2").files("exec")] == [
        f"{one}/lab/h2/exec/cgroup.procs" for one in ("unified", "systemd", "memory", "pids")
    ]


def test_a_hybrid_machine_without_some_controllers(tmp_path: Path) -> None:
    assert cgroups.detect(tree(tmp_path, "unified", "systemd")).v1 == (tmp_path / "systemd",)


def test_a_machine_with_v1_only_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LabError, match="no cgroup v2 hierarchy: boot with"):
        cgroups.detect(tree(tmp_path, "systemd", "memory"))


def test_controllers_are_enabled_down_to_the_host(tmp_path: Path) -> None:
    root = tree(tmp_path, ".", "lab/h1")
    for group in (".", "lab", "lab/h1"):
        (root / group / "cgroup.controllers").write_text("cpu memory hugetlb\n")
    host = cgroups.HostGroup(cgroups.detect(root), "lab", "h1")
    host.create()
    for group in (".", "lab", "lab/h1"):
        assert (root / group / "cgroup.subtree_control").read_text() in ("+cpu", "+memory")
    assert not (root / "lab" / "h1" / "box" / "cgroup.subtree_control").exists()


def test_who_lives_there(tmp_path: Path) -> None:
    root = tree(tmp_path, ".", "lab/h1/box/payload/init.scope", "lab/h1/exec")
    (root / "cgroup.controllers").touch()
    (root / "lab/h1/box/payload/init.scope/cgroup.procs").write_text("41\n")
    (root / "lab/h1/exec/cgroup.procs").write_text("42\n43\n")
    host = cgroups.HostGroup(cgroups.detect(root), "lab", "h1")
    assert sorted(host.pids()) == [41, 42, 43]
    assert host.leader() == 41
    assert cgroups.HostGroup(cgroups.detect(root), "lab", "h9").leader() is None
    assert not host.populated()
