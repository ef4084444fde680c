"""`make demo`: the main job for real, on three hosts of this machine; on a simulated fleet where it can hold none."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

from lab import engine, machine
from lab.fleet import Lab
from lab.settings import LabError, settings

ROOT = Path(__file__).resolve().parent.parent
HOSTS = {"h1": "h200-x1", "h2": "rtx-pro-6000-x4", "h3": "l40s-x2"}  # three SM versions, three verdicts
MEMORY_GB = 7  # three servers of some 2 GB
PORT = 30000


def main() -> int:
    """0 when three servers answer, or the simulated deploy went through."""
    why = machine.cannot_hold_a_lab()
    if not why and (free := available_memory()) < MEMORY_GB:
        why.append(f"memory: {free:.1f} GB available, {MEMORY_GB} needed for three servers")
    if why:
        return simulated(why)
    try:
        engine.ensure(settings().cache)
        lab = ready_lab()
    except LabError as error:
        print(error, file=sys.stderr)
        return 2
    say("deploying: pyinfra -y inventory/lab.py deploy.py")
    code = deploy("-y", "inventory/lab.py")
    if code:
        say("the deploy failed; the hosts stay up: look with LAB_NAME=demo sglfleet lab ssh h1; end with make demo-end")
        return code
    return show(lab)


def available_memory() -> float:
    """GB that programs can still have."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) / 1e6
    return 0.0


def say(text: str) -> None:
    print(f"demo: {text}", flush=True)


def ready_lab() -> Lab:
    """The demo's lab: the one that is up and well, else a fresh one."""
    lab = Lab()
    if lab.profiles() == HOSTS and all(row.state == "up" for row in lab.status()):
        say("the three hosts of the last time are up")
        return lab
    start = time.monotonic()
    for host in lab.up(len(HOSTS), HOSTS):
        say(f"{host.name} is up at {host.ip} and plays {HOSTS[host.name]}")
    say(f"three hosts in {time.monotonic() - start:.0f} s")
    return lab


def deploy(*arguments: str) -> int:
    """Run the deploy as people do; its exit code."""
    argv = [sys.executable, "-m", "pyinfra", *arguments, "deploy.py"]
    return subprocess.run(argv, cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)}, check=False).returncode


def simulated(why: list[str]) -> int:
    """The same deploy on hosts that exist in a file only."""
    say("this machine cannot hold lab hosts:")
    for reason in why:
        say(f"  {reason}")
    say("so this is a simulated fleet: verdicts, plan and units are real, nothing is started anywhere")
    return deploy("--dry", "--diff", "inventory/demo.py")


def ask(address: str) -> str:
    """What a server answers to a prompt. Raises OSError or ValueError where it does not answer."""
    body = {"text": "the server answers", "sampling_params": {"max_new_tokens": 12, "temperature": 0}}
    request = urllib.request.Request(
        f"http://{address}:{PORT}/generate", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # lab hosts are not behind a proxy
    with opener.open(request, timeout=60) as reply:
        return str(json.load(reply)["text"])


def show(lab: Lab) -> int:
    """Ask each server once, and say where they are and how to end it."""
    failed = 0
    for host in lab.hosts():
        try:
            said = ask(host.ip)
            say(f"http://{host.ip}:{PORT}  ({HOSTS[host.name]})  answers: {said[:60]!r}")
        except (OSError, ValueError, KeyError) as error:
            failed += 1
            say(f"http://{host.ip}:{PORT}  ({HOSTS[host.name]})  does not answer: {error}")
    say("the weights are random, so the text has no sense; the server is the real one")
    say(f"log in: ssh -F {lab.ssh_config} h1      end it: make demo-end")
    return 4 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
