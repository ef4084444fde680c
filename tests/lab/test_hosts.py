"""Hosts are real: systemd, sshd, users, power and network."""

from __future__ import annotations

import subprocess

import pytest

from lab.fleet import Lab
from lab.shell import wait_until

pytestmark = pytest.mark.lab


def test_hosts_are_systemd_machines_that_can_be_logged_into(lab: Lab) -> None:
    for host in lab.hosts():
        seen = host.ssh("cat /proc/1/comm; systemctl is-system-running; hostname; id -un").stdout.split()
        assert seen == ["systemd", "running", host.name, "root"]


def test_user_without_root_has_sudo(lab: Lab) -> None:
    assert lab.host("h1").ssh("id -un; sudo id -un", user="deploy").stdout.split() == ["deploy", "root"]


def test_a_host_behind_a_jump_host(lab: Lab) -> None:
    command = ["ssh", "-F", lab.ssh_config, "h2-via-h1", "echo $SSH_CONNECTION; hostname"]
    seen = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout
    assert seen.startswith(lab.host("h1").ip)
    assert seen.split()[-1] == "h2"


def test_hosts_do_not_see_the_outside(lab: Lab) -> None:
    tried = lab.host("h1").exec("bash", "-c", "exec 3<>/dev/tcp/192.0.2.1/443")
    assert tried.returncode != 0
    assert "Network is unreachable" in tried.stderr


def test_hosts_do_not_see_the_keys_of_the_lab(lab: Lab) -> None:
    assert lab.host("h1").exec("ls", str(lab.settings.state_root)).returncode != 0


def test_a_power_cut_keeps_the_disk_and_a_boot_brings_it_back(healed: Lab) -> None:
    host = healed.host("h1")
    before = host.ssh("cat /proc/sys/kernel/random/boot_id; echo kept > /root/kept; sleep 600 >/dev/null 2>&1 & disown")
    assert before.returncode == 0
    host.crash()
    assert [row.state for row in healed.status()] == ["off", "up", "up"]
    assert not host.greets()
    host.boot()
    host.wait()
    assert host.ssh("cat /root/kept; rm /root/kept; pgrep -x sleep").stdout.split() == ["kept"]
    assert host.ssh("journalctl --list-boots --no-pager | wc -l").stdout.strip() >= "3"


def test_a_reboot_from_inside(healed: Lab) -> None:
    host = healed.host("h1")
    before = host.boot_id()
    host.ssh("systemctl reboot")
    assert wait_until(lambda: host.boot_id() not in ("", before) and host.greets(), 120, pause=0.5)


def test_a_cut_host_is_silent_and_heals(healed: Lab) -> None:
    host = healed.host("h2")
    host.cut()
    assert healed.status()[1].state == "cut"
    assert not host.greets()
    host.heal()
    host.wait()


def test_a_frozen_host_accepts_and_never_answers(healed: Lab) -> None:
    host = healed.host("h3")
    host.freeze()
    assert healed.status()[2].state == "frozen"
    assert not host.greets()
    assert wait_until(healed.host("h2").greets, 60)
    host.thaw()
    assert wait_until(host.greets, 60)


def test_an_orderly_halt(healed: Lab) -> None:
    host = healed.host("h3")
    host.halt()
    assert not host.is_up()
    assert "ended with 0" in host.console()
