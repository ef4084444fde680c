"""The deploy over SSH to real hosts, with a stand-in engine out of a wheelhouse: quick, and every fault at hand."""

from __future__ import annotations

import copy
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lab.fleet import Lab
from tests.lab.deploying import SERVICE, Project, clean, commands, pid, provision, serves, shown

pytestmark = pytest.mark.lab
HOSTS = ("h1", "h2", "h3")
SECRET = "s3cr3t-of-the-t3st"


def changed(**changes: Any) -> dict[str, Any]:
    """The service with some keys replaced."""
    found = copy.deepcopy(SERVICE)
    for key, value in changes.items():
        found[key] = {**found[key], **value} if isinstance(found.get(key), dict) else value
    return found


@pytest.fixture(scope="module")
def fleet(make_lab: Callable[..., Lab]) -> Lab:
    lab = make_lab(3)
    provision(lab)
    return lab


@pytest.fixture(scope="module")
def project(fleet: Lab, tmp_path_factory: pytest.TempPathFactory) -> Project:
    return Project(tmp_path_factory.mktemp("own") / "project", fleet)


@pytest.fixture(scope="module")
def deployed(project: Project, fleet: Lab) -> Project:
    """Deployed once; the tests below change it and leave it serving."""
    run = project.deploy()
    assert run.code == 0, run.text[-4000:]
    assert run.last.startswith("sglfleet: exit 0: "), run.last
    return project


@pytest.fixture
def mended(fleet: Lab) -> Iterator[Lab]:
    yield fleet
    for host in fleet.hosts():
        if host.group.frozen():
            host.thaw()
        host.heal() if host.is_up() else host.boot()
    for host in fleet.hosts():
        host.wait()


class TestDeploy:
    def test_every_host_serves_the_pinned_engine(self, deployed: Project, fleet: Lab) -> None:
        for host in HOSTS:
            assert serves(fleet, host)
            unit = shown(fleet, host, "systemctl cat sglang-demo.service")
            assert "/opt/sglfleet/engines/0.5.23-" in unit
            assert shown(fleet, host, "systemctl is-enabled sglang-demo") == "enabled"
            assert shown(fleet, host, "systemctl show -P User sglang-demo") == "sglang-demo"
            compiled = "ls -d /opt/sglfleet/engines/0.5.23-*/lib/python3*/site-packages/sglang/__pycache__/*.pyc"
            assert shown(fleet, host, compiled)

    def test_a_second_run_changes_nothing_in_six_commands(self, deployed: Project, fleet: Lab) -> None:
        before = {host: (pid(fleet, host), commands(fleet, host)) for host in HOSTS}
        run = deployed.deploy()
        assert run.code == 0, run.text[-4000:]
        for host, (main, count) in before.items():
            assert pid(fleet, host) == main
            assert commands(fleet, host) - count <= 6
        assert all(row["result"] == "unchanged" for row in run.report["releases"])

    def test_one_flag_on_one_host_restarts_that_host(self, deployed: Project, fleet: Lab) -> None:
        before = {host: pid(fleet, host) for host in HOSTS}
        data = deployed.folder / "inventory.py"
        text = data.read_text()
        override = '{"demo": {"args": {"max-running-requests": 7}}}'
        data.write_text(f'{text}\ngpu_hosts[1][1]["service_overrides"] = {override}\n')
        run = deployed.deploy("--diff")
        assert run.code == 0, run.text[-4000:]
        assert "+    --max-running-requests 7 \\" in run.text
        assert [host for host in HOSTS if pid(fleet, host) != before[host]] == ["h2"]
        assert "--max-running-requests 7" in shown(fleet, "h2", f"tr '\\0' ' ' < /proc/{pid(fleet, 'h2')}/cmdline")
        data.write_text(text)
        assert deployed.deploy().code == 0

    def test_dry_changes_nothing(self, deployed: Project, fleet: Lab) -> None:
        before = [pid(fleet, host) for host in HOSTS]
        deployed.write(changed(args={"max-running-requests": 9}))
        run = deployed.deploy("--dry", "--diff")
        deployed.write(SERVICE)
        assert (run.code, [pid(fleet, host) for host in HOSTS]) == (0, before), run.text
        assert "+    --max-running-requests 9 \\" in run.text
        assert "canary    h1" in run.text

    def test_as_another_user_with_sudo(self, deployed: Project, fleet: Lab, tmp_path: Path) -> None:
        """And one host is reached through another one, by `ProxyJump` of the SSH configuration."""
        before = {host: pid(fleet, host) for host in HOSTS}
        project = Project(tmp_path / "project", fleet, user="deploy")
        assert project.deploy().code == 0
        assert {host: pid(fleet, host) for host in HOSTS} == before
        data = project.folder / "inventory.py"
        override = '{"demo": {"args": {"max-running-requests": 8}}}'
        more = f'gpu_hosts[1][1]["service_overrides"] = {override}\ngpu_hosts[1][1]["ssh_hostname"] = "h2-via-h1"\n'
        data.write_text(f"{data.read_text()}\n{more}")
        run = project.deploy()
        assert run.code == 0, run.text[-4000:]
        assert [host for host in HOSTS if pid(fleet, host) != before[host]] == ["h2"]
        assert "--max-running-requests 8" in shown(fleet, "h2", f"tr '\\0' ' ' < /proc/{pid(fleet, 'h2')}/cmdline")
        assert deployed.deploy().code == 0

    @pytest.mark.parametrize(
        ("edit", "said"),
        [
            ("s/SGLFLEET_RELEASE=[0-9a-f]*/SGLFLEET_RELEASE=000000000000/", "but the files are of 000000000000"),
            ("s/^LimitCORE=0/LimitCORE=infinity/", "but its unit was changed by hand"),
        ],
    )
    def test_a_unit_changed_by_hand_is_put_right(self, deployed: Project, fleet: Lab, edit: str, said: str) -> None:
        before, unit = pid(fleet, "h3"), shown(fleet, "h3", "cat /etc/systemd/system/sglang-demo.service")
        shown(fleet, "h3", f"sed -i '{edit}' /etc/systemd/system/sglang-demo.service")
        run = deployed.deploy()
        assert run.code == 0, run.text[-4000:]
        assert said in run.text
        assert shown(fleet, "h3", "cat /etc/systemd/system/sglang-demo.service") == unit
        assert pid(fleet, "h3") == before


class TestSecrets:
    def test_nowhere(self, deployed: Project, fleet: Lab) -> None:
        deployed.write(changed(secrets={"HF_TOKEN": {"env": "DEMO_TOKEN"}}))
        run = deployed.deploy("-vvv", "--diff", DEMO_TOKEN=SECRET)
        assert run.code == 0, run.text[-4000:]
        assert SECRET not in run.text
        for file in deployed.folder.rglob("*"):
            assert not file.is_file() or SECRET.encode() not in file.read_bytes(), file
        places = "grep -rl s3cr3t-of-the-t3s[t] /etc /var/lib /run/systemd/system /proc/[0-9]*/cmdline 2>/dev/null"
        for host in HOSTS:
            found = shown(fleet, host, places).splitlines()
            assert [f for f in found if not f.startswith("/etc/sglfleet/demo/")] == []
            assert len(found) == 1
            assert shown(fleet, host, f"stat -c '%U %a' {found[0]}") == "root 600"
            assert SECRET not in shown(fleet, host, "journalctl --no-pager -o verbose")
            environment = shown(fleet, host, f"tr '\\0' '\\n' < /proc/{pid(fleet, host)}/environ")
            assert f"HF_TOKEN={SECRET}" in environment.splitlines()
        deployed.write(SERVICE)
        assert deployed.deploy().code == 0

    def test_missing_stops_everything(self, deployed: Project) -> None:
        deployed.write(changed(secrets={"HF_TOKEN": {"env": "NOBODY_SET_THIS"}}))
        run = deployed.deploy()
        deployed.write(SERVICE)
        assert run.code == 2
        assert "demo: secret HF_TOKEN: the environment variable NOBODY_SET_THIS is not set: export it" in run.text


class TestBadInput:
    @pytest.mark.parametrize(
        ("text", "part"),
        [
            ("service: demo\n  bad: indent\n", "services/demo.yaml:2:"),
            ("", "services/demo.yaml:1:1: "),
            ("a: &a [x]\nb: [*a, *a]\nservice: 1\n", "services/demo.yaml:"),
            ("service: demo\nservice: demo\n", "services/demo.yaml:2:1: "),
            ("service: d\xe4mo".encode("latin-1"), "services/demo.yaml:"),
        ],
    )
    def test_located_and_no_host_is_changed(self, deployed: Project, fleet: Lab, text: str | bytes, part: str) -> None:
        file = deployed.folder / "group_data/services/demo.yaml"
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
        run = deployed.deploy()
        deployed.write(SERVICE)
        assert run.code == 2, run.text
        assert part in run.text
        assert "Traceback" not in run.text
        assert run.last.startswith("sglfleet: exit 2: ")

    def test_refused_before_any_host(self, deployed: Project, fleet: Lab) -> None:
        before = [pid(fleet, host) for host in HOSTS]
        deployed.write(changed(gpus=[0, 5], args={"tp-size": 4, "no-such-flag": True}))
        run = deployed.deploy()
        deployed.write(SERVICE)
        assert (run.code, [pid(fleet, host) for host in HOSTS]) == (1, before), run.text
        for part in ("GPU 5 does not exist", "needs 4 GPUs", "no-such-flag"):
            assert part in run.text
        assert run.report["exit"] == 1


class TestHosts:
    def test_one_that_is_down_drops_out(self, deployed: Project, mended: Lab) -> None:
        mended.host("h2").cut()
        deployed.write(changed(args={"max-running-requests": 11}))
        run = deployed.deploy()
        assert run.code != 0
        assert run.report["exit"] == 4
        assert list(run.report["failed"]) == ["h2"]
        assert "exit 4: h2: " in run.last
        for host in ("h1", "h3"):
            assert "--max-running-requests 11" in shown(mended, host, "systemctl cat sglang-demo")
        mended.host("h2").heal()
        assert deployed.deploy().code == 0
        assert "--max-running-requests 11" in shown(mended, "h2", "systemctl cat sglang-demo")
        deployed.write(SERVICE)

    def test_one_that_hangs_drops_out(self, deployed: Project, mended: Lab) -> None:
        mended.host("h3").freeze()
        run = deployed.deploy("--dry")
        assert list(run.report["failed"]) == ["h3"]

    def test_one_with_a_full_disk_keeps_what_it_has(self, deployed: Project, fleet: Lab) -> None:
        before = pid(fleet, "h1")
        shown(
            fleet,
            "h1",
            "mkdir -p /mnt/old && cp -a /var/lib/sglfleet/. /mnt/old"
            " && mount -t tmpfs -o size=300k,mode=755 full /var/lib/sglfleet && cp -a /mnt/old/. /var/lib/sglfleet",
        )
        deployed.write(changed(args={"max-running-requests": 13}))
        run = deployed.deploy()
        shown(fleet, "h1", "umount /var/lib/sglfleet; rm -rf /mnt/old")
        assert (run.report["exit"], list(run.report["failed"])) == (4, ["h1"]), run.text
        assert re.search(r"h1: only \d+ MiB free in /var/lib/sglfleet/demo, 64 are needed: make room", run.last)
        assert "--max-running-requests 13" in shown(fleet, "h2", "systemctl cat sglang-demo")
        assert pid(fleet, "h1") == before
        deployed.write(SERVICE)
        assert deployed.deploy().code == 0


@pytest.mark.full
class TestLimit:
    def test_others_are_counted_and_not_changed(self, deployed: Project, fleet: Lab) -> None:
        """h3 is down: with one node allowed out, h1 may not change; h3 itself may, and then h1."""
        before = {host: pid(fleet, host) for host in HOSTS}
        deployed.write(changed(args={"max-running-requests": 5}, rollout={"max_unavailable": 1}))
        shown(fleet, "h3", "systemctl stop sglang-demo")
        dry = deployed.deploy("--limit", "h1", "--dry")
        assert "demo: 3 hosts, 1 may be out at a time" in dry.text
        refused = deployed.deploy("--limit", "h1")
        assert refused.code != 0
        assert "too many nodes are out already" in refused.text, refused.text[-3000:]
        assert {host: pid(fleet, host) for host in HOSTS} == {**before, "h3": "0"}
        assert deployed.deploy("--limit", "h3").code == 0
        done = deployed.deploy("--limit", "h1")
        assert done.code == 0, done.text[-3000:]
        now = {host: pid(fleet, host) for host in HOSTS}
        assert (now["h1"] != before["h1"], now["h2"]) == (True, before["h2"])
        assert not shown(fleet, "h2", "cat /var/lib/sglfleet/demo/lock"), "its lock was given back"
        deployed.write(SERVICE)
        assert deployed.deploy().code == 0
        assert all(serves(fleet, host) for host in HOSTS)


class TestLeftovers:
    def test_named_and_removed_on_request(self, deployed: Project, fleet: Lab) -> None:
        other = {**changed(args={"port": 30001}), "service": "other"}
        deployed.write(other, "other")
        data = deployed.folder / "inventory.py"
        text = data.read_text()
        data.write_text(f'{text}\ngpu_hosts[0][1]["services"] = ["other"]\n')
        try:
            run = deployed.deploy("--dry")
            assert "h1: sglang-demo.service left the configuration and is still there" in run.text
            assert pid(fleet, "h1") != "0"
        finally:
            data.write_text(text)
            (deployed.folder / "group_data/services/other.yaml").unlink()


class TestKilled:
    @pytest.mark.parametrize("after", [0.6, 1.2, 2.5])
    def test_the_controller_leaves_old_or_new(self, deployed: Project, fleet: Lab, after: float) -> None:
        deployed.write(changed(args={"max-running-requests": int(after * 100)}))
        process = deployed.start()
        lines = iter(process.stdout or ())
        for line in lines:
            if "Beginning operation run" in line:
                break
        time.sleep(after)
        process.kill()
        process.wait()
        for host in HOSTS:
            unit = shown(fleet, host, "sed -n 's/^Environment=SGLFLEET_RELEASE=\\(\\w*\\).*/\\1/p' "
                                      "/etc/systemd/system/sglang-demo.service")  # fmt: skip
            complete = shown(fleet, host, f"cd /var/lib/sglfleet/demo/releases/{unit} && ls -A")
            assert set(complete.split()) >= {".complete", "preflight.py", "readiness.py", "release.json"}
        deadline = time.monotonic() + 300
        run = deployed.deploy()
        while run.code != 0 and time.monotonic() < deadline:  # the killed run's lock is held for its lease
            time.sleep(5)
            run = deployed.deploy()
        assert run.code == 0, run.text[-4000:]
        for host in HOSTS:
            assert f"--max-running-requests {int(after * 100)} " in shown(
                fleet, host, f"tr '\\0' ' ' < /proc/{pid(fleet, host)}/cmdline"
            )
        deployed.write(SERVICE)


def test_cleans_up(deployed: Project, fleet: Lab) -> None:
    clean(fleet)
    for host in HOSTS:
        assert shown(fleet, host, "ls /etc/systemd/system | grep -c ^sglang-") == "0"
