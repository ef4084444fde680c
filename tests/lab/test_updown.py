"""A lab comes and goes: nothing of it stays, whatever became of the one before."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab import cgroups, machine
from lab.fleet import Lab
from lab.settings import LabError, Settings
from lab.shell import wait_until
from tests.conftest import lab_settings

pytestmark = pytest.mark.lab
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def other(lab_machine: None) -> Iterator[Settings]:
    """Settings of a lab beside the session's."""
    chosen = lab_settings(9)
    yield chosen
    Lab(chosen).down()


def traces(lab: Settings) -> list[str]:
    """Everything on the machine that belongs to a lab."""
    found = [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if f"/{lab.name}/" in line]
    found += [
        link.name
        for link in Path("/sys/class/net").iterdir()
        if link.name.startswith((f"{lab.name}-", f"{lab.name}br"))
    ]
    found += [str(path) for path in Path("/run/netns").glob(f"*{lab.name}*")] if Path("/run/netns").is_dir() else []
    found += [str(path) for one in cgroups.detect().all for path in one.glob(lab.name)]
    found += [str(lab.state)] if lab.state.exists() else []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            groups = (process / "cgroup").read_text()
            command = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if f":/{lab.name}/" in groups or f"{lab.state}/" in command:
            found.append(f"process {process.name}: {command}")
    return found


def nothing_left(lab: Settings) -> bool:
    """No trace, a moment later at the latest: the machine's init collects dead processes when it gets to it."""
    return wait_until(lambda: not traces(lab), 60, pause=0.2) or pytest.fail("\n".join(traces(lab)))


def machine_state() -> dict[str, object]:
    """What a lab might change for good, and labs beside this one do not change meanwhile."""
    return {
        "forwarding": Path("/proc/sys/net/ipv4/ip_forward").read_text(),
        "run": sorted(path.name for path in Path("/run").iterdir()),
        "routes": subprocess.run(["ip", "route", "show", "default"], capture_output=True, text=True, check=True).stdout,
    }


def command_line(lab: Settings, *arguments: str) -> subprocess.Popen[str]:
    env = os.environ | {"LAB_NAME": lab.name, "LAB_NET": str(lab.network)}
    return subprocess.Popen(
        [sys.executable, "-m", "sglfleet", "lab", *arguments],
        cwd=ROOT, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def test_down_leaves_nothing(other: Settings) -> None:
    before = machine_state()
    lab = Lab(other)
    lab.up(3)
    assert len(traces(other)) > 10
    lab.host("h1").exec("sh", "-c", "sleep 1000 >/dev/null 2>&1 &")
    lab.host("h2").crash()
    lab.host("h3").freeze()
    lab.down()
    assert nothing_left(other)
    assert machine_state() == before
    lab.down()  # of a lab that is not there: nothing to do


def test_limits_are_restored_when_the_last_lab_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    setting = tmp_path / "max_user_instances"
    setting.write_text("128\n")
    monkeypatch.setattr(machine, "INOTIFY", setting)
    first = Settings("one", lab_settings(0).network, state_root=tmp_path / "labs")
    second = Settings("two", lab_settings(0).network, state_root=tmp_path / "labs")
    for lab in (first, second):
        machine.enter(lab)
        assert setting.read_text() == "8192"
    first.state.rmdir()
    machine.leave(first)
    assert setting.read_text() == "8192"
    second.state.rmdir()
    machine.leave(second)
    assert setting.read_text() == "128"
    assert not (tmp_path / "labs").exists()


@pytest.mark.parametrize("seconds", [0.4, 0.9, 1.6])
def test_up_after_a_crash_of_its_own_cleans_up_first(other: Settings, seconds: float) -> None:
    crashing = command_line(other, "up", "4")
    time.sleep(seconds)
    crashing.send_signal(signal.SIGKILL)
    crashing.communicate(timeout=60)
    lab = Lab(other)
    hosts = lab.up(2)
    assert [host.greets() for host in hosts] == [True, True]
    assert [row.state for row in lab.status()] == ["up", "up"]
    lab.down()
    assert nothing_left(other)


def test_two_labs_stand_side_by_side(lab: Lab, other: Settings) -> None:
    beside = Lab(other)
    beside.up(1)
    assert beside.host("h1").ssh("hostname").stdout == lab.host("h1").ssh("hostname").stdout == "h1\n"
    assert beside.host("h1").ip != lab.host("h1").ip
    reached = lab.host("h1").exec("bash", "-c", f"exec 3<>/dev/tcp/{beside.host('h1').ip}/22")
    assert "unreachable" in reached.stderr
    beside.down()
    assert all(host.greets() for host in lab.hosts())


def test_a_machine_with_v2_groups_only(other: Settings) -> None:
    """The same on a pure v2 tree, which a mount namespace of its own shows to everything that runs in it."""
    script = f"""
        set -e
        mount -t cgroup2 none /sys/fs/cgroup
        lab="{sys.executable} -m sglfleet lab --name {other.name} --net {other.network}"
        trap '$lab down' EXIT
        $lab up 2
        test -d /sys/fs/cgroup/{other.name}/h1/box/payload
        $lab ssh h1 'systemctl is-system-running; stat -f -c %T /sys/fs/cgroup'
        $lab crash h1; $lab boot h1; $lab freeze h2; $lab status; $lab thaw h2
        $lab down
        test ! -e /sys/fs/cgroup/{other.name}
    """
    done = subprocess.run(
        ["unshare", "--mount", "bash", "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "running\ncgroup2fs\n" in done.stdout
    assert f"h2  {other.address('h2')}  frozen" in done.stdout
    assert nothing_left(other)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["up", "2", "--profile", "h300"], "there is no 'h300': choose one of"),
        (["up", "2", "--profile", "h3=l40s-x2"], "h3: no such host: the lab has h1 to h2"),
        (["ssh", "h1", "true"], "h1: no such host in lab"),
        (["--net", "8.8.8.0/24", "status"], "is not a private /24"),
    ],
)
def test_bad_input_ends_with_2_and_one_clear_line(other: Settings, arguments: list[str], said: str) -> None:
    ended = command_line(other, *arguments)
    _, error = ended.communicate(timeout=120)
    assert ended.returncode == 2
    assert said in error
    assert "Traceback" not in error


def test_a_host_that_cannot_boot_is_told_and_nothing_stays(other: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    from lab import disk

    monkeypatch.setattr(
        disk, "overlay_options", lambda lab, host: "lowerdir=/nowhere,upperdir=/nowhere,workdir=/nowhere"
    )
    with pytest.raises(LabError, match="h1: went off while it booted"):
        Lab(other).up(1)
    assert nothing_left(other)


@pytest.mark.full
def test_twenty_hosts_that_are_not_the_same(other: Settings) -> None:
    """How long they take is measured in benchmarks/lab_up.py."""
    hosts = Lab(other).up(20)
    assert len({host.ssh("cat /etc/machine-id").stdout for host in hosts}) == 20
    assert len({host.ssh("nvidia-smi -L").stdout for host in hosts}) == 20
