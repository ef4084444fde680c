"""A project whose one service is measured: the real engine on a lab host, and `sglfleet` in a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lab.engine import Engine
from lab.fleet import Lab
from tests.lab import word_model
from tests.lab.deploying import ROOT, Project, shown

# Two of 32 prompts begin alike in 1.5 % of runs, and such a run is not valid: the tests need two valid ones of three.
BENCHMARK: dict[str, Any] = {"input_len": 32, "output_len": 32, "concurrency": [16], "repeats": 3, "prompts": 32}
DATA = """
lab = True
launch_override = {"*": {
    "args": {"device": "cpu", "attention-backend": "torch_native", "max-total-tokens": 16384, "sleep-on-idle": True},
    "pins": {"torch": "any", "flashinfer": "any", "kernel": "any"},
    "env": {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "OMP_NUM_THREADS": "1"},
}}
"""


def service(engine: Engine, args: dict[str, Any] | None = None, **benchmark: Any) -> dict[str, Any]:
    """A service file of the word model with more `args`; `benchmark` changes what is measured."""
    return {
        "service": "demo",
        "engine": {"sglang": engine.sglang, "venv": str(engine.venv)},
        "model": word_model.FOLDER,
        "gpus": [0],
        "args": {"port": 30000, "host": "0.0.0.0", "enable-metrics": True, **word_model.ARGS, **(args or {})},
        "rollout": {"soak": "1s", "start_timeout": "20m", "drain_timeout": "60s"},
        "verify": {"profile": False, "correctness": False, "benchmark": {**BENCHMARK, **benchmark}},
    }


def project(folder: Path, lab: Lab, engine: Engine) -> Project:
    """The folder, with the model on the lab's first host."""
    word_model.place(lab.host("h1"))
    return Project(folder, lab, service=service(engine), data=DATA)


def start(project: Project, *words: str) -> subprocess.Popen[str]:
    """`sglfleet WORDS`, not waited for, as a group of its own."""
    network = {"LAB_NAME": project.lab.settings.name, "LAB_NET": str(project.lab.settings.network)}
    return subprocess.Popen(
        [sys.executable, "-m", "sglfleet", *words],
        cwd=project.folder, env={**os.environ, "PYTHONPATH": str(ROOT), **network}, text=True, start_new_session=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def sglfleet(project: Project, *words: str, timeout: float = 1800) -> tuple[int, str, str]:
    """(exit code, standard output, standard error) of `sglfleet WORDS`."""
    process = start(project, *words)
    try:
        out, err = process.communicate(timeout=timeout)
    finally:
        end(process)
    return process.returncode, out, err


def end(process: subprocess.Popen[str]) -> None:
    """SIGKILL to the process and all that it started; nothing where it has ended."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def wait_until(condition: Callable[[], bool], what: str, seconds: float = 1200) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not in {seconds} s: {what}"
        time.sleep(0.5)


def left_behind(lab: Lab) -> str:
    """Units and files of benchmarks that are still on the host."""
    return shown(
        lab, "h1", "systemctl list-units --all --plain --no-legend 'sglfleet-bench-*'; ls /var/lib/sglfleet/demo/bench"
    )
