"""A project of one's own that deploys to lab hosts, run by pyinfra's own command line in a process of its own."""

from __future__ import annotations

import base64
import json
import os
import re
import struct
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lab.fleet import Lab
from sglfleet.engine import CORE
from tests.lab.standin_wheels import SGLANG, archive, wheels
from validators.knowledge import load_sglang

ROOT = Path(__file__).parents[2]
WHEELS, MODEL = "/srv/wheels", "/srv/model"

INVENTORY = """\
from lab.fleet import Lab
lab = Lab()
gpu_hosts = [
    (host.name, {"ssh_hostname": host.ip, "ssh_user": USER, "ssh_key": lab.key, "ssh_config_file": lab.ssh_config,
                 "ssh_known_hosts_file": lab.known_hosts, "ssh_strict_host_key_checking": "yes",
                 "service_address": host.ip,
                 "ssh_paramiko_connect_kwargs": {"channel_timeout": 6, "banner_timeout": 6}})
    for host in lab.hosts()
]
"""

SERVICE: dict[str, Any] = {
    "service": "demo",
    "engine": {"sglang": SGLANG, "venv": "managed", "wheelhouse": WHEELS},
    "model": MODEL,
    "gpus": [0],
    "args": {"port": 30000, "host": "0.0.0.0"},
    "rollout": {"soak": "0s", "start_timeout": "60s", "drain_timeout": "20s", "max_unavailable": 3},
    "verify": {"profile": False, "correctness": False},
}


@dataclass
class Run:
    """One call of pyinfra."""

    code: int
    text: str  # everything it printed
    report: dict[str, Any]

    @property
    def last(self) -> str:
        return [line for line in self.text.splitlines() if line.strip()][-1]


@dataclass
class Project:
    """The folder, and what is in it."""

    folder: Path
    lab: Lab
    user: str = "root"
    env: dict[str, str] = field(default_factory=dict)
    service: Mapping[str, Any] = field(default_factory=lambda: SERVICE)
    data: str = ""  # more group data

    def __post_init__(self) -> None:
        (self.folder / "group_data" / "services").mkdir(parents=True)
        (self.folder / "inventory.py").write_text(INVENTORY.replace("USER", repr(self.user)))
        (self.folder / "group_data" / "gpu_hosts.py").write_text(
            f'services = ["demo"]\nask_engine = False\n{self.data}'
        )
        for name in ("deploy.py", "config.py"):
            (self.folder / name).write_text((ROOT / name).read_text())
        self.write(self.service)

    def write(self, service: Mapping[str, Any], name: str = "demo") -> None:
        """A service file; JSON is YAML."""
        (self.folder / "group_data" / "services" / f"{name}.yaml").write_text(json.dumps(service, indent=1))

    def environment(self) -> dict[str, str]:
        """For commands in the project's folder."""
        return {
            **os.environ,
            **self.env,
            "PYTHONPATH": str(ROOT),
            "LAB_NAME": self.lab.settings.name,
            "LAB_NET": str(self.lab.settings.network),
        }

    def start(self, *words: str, **env: str) -> subprocess.Popen[str]:
        """pyinfra, not waited for."""
        environment = {**self.environment(), **env}
        command = [sys.executable, "-m", "pyinfra_cli.main"]
        program = Path(sys.executable).with_name("pyinfra")
        command = [str(program)] if program.exists() else command
        return subprocess.Popen(
            [*command, "-y", "inventory.py", "deploy.py", *words],
            cwd=self.folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def deploy(self, *words: str, timeout: float = 900, **env: str) -> Run:
        """pyinfra, and its report."""
        before = set(self.folder.glob("reports/deploy-*.json"))
        process = self.start(*words, **env)
        try:
            text, _ = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            text = f"{process.communicate()[0]}\nno end within {timeout} s"
        new = sorted(set(self.folder.glob("reports/deploy-*.json")) - before)
        report = json.loads(new[-1].read_text()) if new else {}
        return Run(process.returncode, text, report)


def provision(lab: Lab) -> None:
    """Wheels of the stand-in engine and a small complete model on every host."""
    known = load_sglang(SGLANG)
    pins = {name: version for name in CORE if name != "sglang" and (version := known.pin(name))}
    header = json.dumps({"w": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}}).encode()
    config = {"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2"}
    model = {
        "config.json": json.dumps(config).encode(),
        "model.safetensors": struct.pack("<Q", len(header)) + header + bytes(16),
        "tokenizer.json": b"{}",
    }
    for folder, files in ((WHEELS, wheels(pins)), (MODEL, model)):
        text = base64.encodebytes(archive(files)).decode()
        for host in lab.hosts():
            script = f"mkdir -p {folder} && base64 -d | tar -x -C {folder} --no-same-owner && chmod -R a+rX {folder}"
            done = host.exec("sh", "-c", script, stdin=text)
            assert done.returncode == 0, done.stderr


def clean(lab: Lab) -> None:
    """Nothing of ours is left on any host."""
    script = """
    for unit in $(ls /etc/systemd/system | grep '^sglang-'); do
      systemctl disable --now $unit 2>/dev/null; rm -f /etc/systemd/system/$unit
    done
    systemctl daemon-reload; systemctl reset-failed
    rm -rf /etc/sglfleet /var/lib/sglfleet
    """
    for host in lab.hosts():
        host.exec("sh", "-c", script, timeout=120)


def shown(lab: Lab, host: str, script: str) -> str:
    """Output of a script, past the network."""
    return lab.host(host).exec("sh", "-c", script).stdout.strip()


def pid(lab: Lab, host: str, service: str = "demo") -> str:
    return shown(lab, host, f"systemctl show -P MainPID sglang-{service}.service")


def serves(lab: Lab, host: str, port: int = 30000) -> str:
    """Text of an answer, "" where there is none."""
    body = '{"text": "hi", "sampling_params": {"max_new_tokens": 4}}'
    answer = shown(
        lab, host, f"curl -s -m 10 127.0.0.1:{port}/generate -H 'Content-Type: application/json' -d '{body}'"
    )
    try:
        return str(json.loads(answer).get("text", ""))
    except ValueError:
        return ""


def commands(lab: Lab, host: str) -> int:
    """Commands that sshd started so far, subsystems too."""
    return len(re.findall(r"Starting session:", shown(lab, host, "journalctl -t sshd --no-pager -o cat")))
