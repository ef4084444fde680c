"""Rolling stand-ins over lab hosts: staging them, driving a roll in a process of its own, and reading what was served.

What a node served and when is read from its journal and from its processes, never from the program under test.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lab.fleet import Lab

ROOT = Path(__file__).parents[2]
SERVICE = "standin"
UNIT = f"sglang-{SERVICE}.service"
PORT = 30000
SERVER = (Path(__file__).parent / "standin_server.py").read_text(encoding="utf-8")
# limits for a machine on which everything takes twenty times as long; tests of what happens *at* a limit name their own
POLICY = {"max_unavailable": 2, "soak": 1.0, "drain": 5.0, "gate_deadline": 120.0, "lost_after": 60.0, "margin": 5.0}
START = 120  # s
KEY = "only-for-tests"


@dataclass(frozen=True)
class Kind:
    """How a stand-in of one release behaves. Times in seconds."""

    mode: str = "ok"
    cut: float = 2.0  # crash: after so long
    start: int = START  # the unit's start time-out
    delay: float = 0.0  # before the server is started
    moody: bool = False  # its next start fails once where /run/moody exists
    port: int = PORT
    role: str = "null"  # "prefill", "decode": half of a pair
    key: str = ""  # the API key that requests must bring
    engine: bool = False  # no stand-in: the real SGLang on the CPU


ENGINE = Path("/var/cache/sglfleet-lab/engine-0.5.23")
ENGINE_ARGS = (
    "--model-path /var/cache/sglfleet-lab/tiny-gpt2 --device cpu --attention-backend torch_native"
    " --max-total-tokens 16384 --max-running-requests 16 --enable-metrics --sleep-on-idle --host 0.0.0.0"
)


def unit_text(release: str, kind: Kind) -> str:
    home = f"/var/lib/sglfleet/{SERVICE}/releases/{release}"
    server = f"/usr/bin/python3 {home}/server.py"
    own = f"--role {kind.role}" + (f" --key {kind.key}" if kind.key else "")
    serve = f"{server} --port {kind.port} --mode {kind.mode} --cut {kind.cut} {own}"
    if kind.engine:
        serve = f"{ENGINE}/bin/python -m sglang.launch_server {ENGINE_ARGS} --port {kind.port}"
    return f"""[Unit]
Description=stand-in for an SGLang server
StartLimitIntervalSec=600
StartLimitBurst=3
[Service]
Type=exec
Environment=SGLFLEET_RELEASE={release}
ExecStartPre=/bin/sleep {kind.delay}
{"ExecStartPre=/bin/sh -c '! rm /run/moody 2>/dev/null'" if kind.moody else ""}
Environment=SGLANG_USE_CPU_ENGINE=0 HF_HUB_OFFLINE=1 TRANSFORMERS_OFFLINE=1 OMP_NUM_THREADS=1 HOME=/root
ExecStart={serve}
ExecStartPost={server} --wait {kind.port} {own}
Restart=on-failure
RestartSec=1
TimeoutStartSec={kind.start}
TimeoutStopSec=120
KillMode=mixed
[Install]
WantedBy=multi-user.target
"""


def on_all(lab: Lab, hosts: Sequence[str], script: str, stdin: str | None = None) -> None:
    """A script on several hosts at the same time, past network and sshd."""

    def one(name: str) -> None:
        done = lab.host(name).exec("sh", "-c", script, stdin=stdin)
        assert done.returncode == 0, (name, done.stderr)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(one, hosts))


def stage(lab: Lab, hosts: Sequence[str], release: str, kind: Kind | None = None) -> None:
    """A release of the stand-in in place, nothing restarted."""
    home = f"/var/lib/sglfleet/{SERVICE}/releases/{release}"
    unit = shlex.quote(unit_text(release, kind or Kind()))
    script = f"mkdir -p {home}; cat > {home}/server.py; printf %s {unit} > {home}/{UNIT}; touch {home}/.complete"
    on_all(lab, hosts, script, SERVER)


placed: dict[str, float] = {}  # lab -> when its hosts were last brought to a release past the program under test


def place(lab: Lab, hosts: Sequence[str], release: str) -> None:
    """Every host serves a staged release, and nothing of a former roll is left."""
    base = f"/var/lib/sglfleet/{SERVICE}"
    on_all(
        lab,
        hosts,
        f"""systemctl stop 'sglfleet-*.timer' 'sglfleet-*.service' {UNIT} 2>/dev/null
umount {base}/.roll 2>/dev/null
rm -rf {base}/.roll {base}/lock* {base}/history.jsonl /usr/local/bin/date
set -e
cp {base}/releases/{release}/{UNIT} /etc/systemd/system/{UNIT}
ln -sfn releases/{release} {base}/current
systemctl daemon-reload
systemctl reset-failed {UNIT} 2>/dev/null || true
systemctl enable -q {UNIT}
systemctl start --no-block {UNIT}""",
    )
    end = time.monotonic() + 900
    while any(now != release for now in all_serve(lab, hosts).values()):
        assert time.monotonic() < end, f"{release} does not serve on all of {hosts}"
        time.sleep(0.5)
    placed[lab.settings.name] = time.time()


def host_rows(lab: Lab, hosts: Sequence[str]) -> list[list[Any]]:
    """Inventory rows for pyinfra."""
    return [
        [
            name,
            {
                "ssh_hostname": str(lab.host(name).ip),
                "ssh_user": "root",
                "ssh_key": str(lab.key),
                "ssh_known_hosts_file": str(lab.known_hosts),
            },
        ]
        for name in hosts
    ]


@dataclass
class Run:
    """A roll in its own process; `lines` fill while it runs."""

    process: subprocess.Popen[str]
    lines: list[str] = field(default_factory=list)
    report: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("REPORT "):
                self.report = json.loads(line.removeprefix("REPORT "))
            else:
                self.lines.append(line.rstrip("\n"))

    def wait_for(self, pattern: str, timeout: float = 600.0) -> str:
        """The first line that matches; fails where none comes."""
        end = time.monotonic() + timeout
        while time.monotonic() < end:
            for line in list(self.lines):
                if re.search(pattern, line):
                    return line
            if self.process.poll() is not None and not self._reader.is_alive():
                break
            time.sleep(0.02)
        raise AssertionError(f"no line like {pattern!r} in {self.lines}")

    def kill(self) -> None:
        """SIGKILL, as a power cut of the controller."""
        self.process.kill()
        self.process.wait()

    def done(self, timeout: float = 1800.0) -> dict[str, Any]:
        """The report, after the end."""
        self.process.wait(timeout)
        self._reader.join(60)
        assert self.report, self.lines
        return self.report


def all_serve(lab: Lab, hosts: Sequence[str]) -> dict[str, str]:
    """host -> release whose process answers there now."""
    with ThreadPoolExecutor(8) as pool:
        return dict(zip(hosts, pool.map(lambda host: serves(lab, host), hosts), strict=True))


def start(
    lab: Lab,
    targets: dict[str, str],
    policy: dict[str, Any] | None = None,
    router: dict[str, Any] | None = None,
    own: dict[str, dict[str, Any]] | None = None,
    slow: dict[str, tuple[str, bool]] | None = None,
    beyond: Sequence[str] = (),
    **more: Any,
) -> Run:
    """Begin a roll: host -> release, in inventory order. `more`: fields of every target, `own`: of single ones.

    `slow`: host -> (why the roll must not go on once it serves, whether it goes back).
    `beyond`: hosts of the service outside of --limit.
    """
    spec = {
        "service": SERVICE,
        "hosts": host_rows(lab, list(dict.fromkeys([*targets, *beyond, *([router["host"]] if router else [])]))),
        "targets": {
            host: {
                "port": PORT,
                "release": release,
                "public_url": f"http://{lab.host(host).ip}:{PORT}",
                "start_timeout": float(START),
                "stop_timeout": 120.0,
                "kept": 50,  # the tests stage many and roll to few
                **more,
                **(own or {}).get(host, {}),
            }
            for host, release in targets.items()
        },
        "beyond": list(beyond),
        "policy": {**POLICY, **(policy or {})},
        **({"router": router} if router else {}),
        **({"slow": slow} if slow else {}),
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.lab.roll_driver"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    assert process.stdin is not None
    process.stdin.write(json.dumps(spec))
    process.stdin.close()
    return Run(process)


def roll(
    lab: Lab,
    targets: dict[str, str],
    policy: dict[str, Any] | None = None,
    router: dict[str, Any] | None = None,
    **more: Any,
) -> dict[str, Any]:
    """A roll from beginning to end."""
    return start(lab, targets, policy, router, **more).done()


def serves(lab: Lab, host: str) -> str:
    """The release whose process answers on the host now, empty where none generates or systemd has not started it.

    A server answers before its ExecStartPost ends; only then does systemd say "Started", where an outage ends.
    """
    script = f"""systemctl -q is-active {UNIT} || exit 1
pid=$(systemctl show -P MainPID {UNIT}); [ $pid -gt 0 ] || exit 1
set -- -H 'Content-Type: application/json' -H 'Authorization: Bearer {KEY}' http://127.0.0.1:{PORT}/generate
ask() {{ body=$1; shift; curl -sf -m 60 -o /dev/null -d "$body" "$@"; }}
ask '{{"text": "x"}}' "$@" || ask '{{"text": "x", "bootstrap_room": 0}}' "$@" || exit 1
tr '\\0' '\\n' < /proc/$pid/environ | sed -n s/^SGLFLEET_RELEASE=//p"""
    return lab.host(host).exec("sh", "-c", script).stdout.strip()


def main_pid(lab: Lab, host: str) -> str:
    return lab.host(host).exec("systemctl", "show", "-P", "MainPID", UNIT).stdout.strip()


def forget(lab: Lab, host: str) -> None:
    """As if the lease of whoever holds the host's lock had run out already: a minute that no test has to wait."""
    lab.host(host).exec("sed", "-i", "s/^lease=.*/lease=0/", f"/var/lib/sglfleet/{SERVICE}/lock")


def project(lab: Lab, hosts: Sequence[str], folder: Path) -> Path:
    """A project of one's own whose inventory has the stand-in on these hosts; the path of the inventory."""
    rows = [(name, {**data, "services": [SERVICE]}) for name, data in host_rows(lab, hosts)]
    services = folder / "group_data" / "services"
    services.mkdir(parents=True)
    (services / f"{SERVICE}.yaml").write_text(
        f"service: {SERVICE}\nengine: {{sglang: 0.5.23}}\nmodel: /models/none\nargs: {{port: {PORT}}}\n"
        "rollout: {max_unavailable: 2, soak: 1s, drain_timeout: 5s}\n",
        encoding="utf-8",
    )
    inventory = folder / "inventory" / "own.py"
    inventory.parent.mkdir()
    inventory.write_text(f"hosts = {rows!r}\n", encoding="utf-8")
    return inventory


def sglfleet(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """A command as people call it."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, "-m", "sglfleet", *words],
        capture_output=True,
        text=True,
        cwd=cwd,
        env=environment,
        timeout=1200,
    )
