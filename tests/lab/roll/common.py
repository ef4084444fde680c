"""Releases, hosts and questions that the tests of rolls share."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

from lab.fleet import Lab
from tests.lab import rolling
from tests.lab.rolling import Kind

OLD, NEW = "old000000000", "new000000000"
HOSTS = ["h1", "h2", "h3", "h4", "h5", "h6"]
THREE = HOSTS[:3]
KINDS = {
    OLD: Kind(),
    NEW: Kind(),
    "badflag00000": Kind(mode="bad-flag"),
    "crash0000000": Kind(mode="crash", cut=3.0),
    "never0000000": Kind(mode="never", start=6),
    "wrong0000000": Kind(mode="wrong"),
    "empty0000000": Kind(mode="empty"),
    "porttaken000": Kind(port=30777),
    "slow00000000": Kind(delay=5.0),
}


def to(release: str, hosts: list[str] = THREE) -> dict[str, str]:
    return dict.fromkeys(hosts, release)


def results(report: dict[str, Any]) -> dict[str, str]:
    print(json.dumps(report, indent=1))  # pytest shows it where the test fails
    return {host: row["result"] for host, row in report["hosts"].items()}


def turn(lab: Lab, host: str) -> dict[str, str]:
    text = lab.host(host).exec("cat", f"/var/lib/sglfleet/{rolling.SERVICE}/.roll/turn").stdout
    return dict(line.partition("=")[::2] for line in text.splitlines())


def until(what: Callable[[], bool], timeout: float = 300.0) -> None:
    end = time.monotonic() + timeout
    while not what():
        assert time.monotonic() < end, "did not happen in time"
        time.sleep(0.2)


ROUTER: dict[str, Any] = {
    "host": "h6",
    "data": {"service": rolling.SERVICE, "port": 30100, "policy": "round_robin", "stop_timeout": 20},
}


def listed(six: Lab) -> set[str]:
    out = six.host("h6").exec("curl", "-s", "http://127.0.0.1:30100/workers").stdout
    return {row["url"].split("//")[1].split(":")[0] for row in json.loads(out)["workers"] if row["is_healthy"]}
