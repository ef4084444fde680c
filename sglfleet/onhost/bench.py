"""Runs on the host, in the engine's own Python: the engine's own benchmark, once per asked run, one JSON line each.

Sent over SSH as text, so it uses the standard library only and imports nothing of sglfleet. The benchmark is called
inside this process: its imports (10 to 40 s) are paid once, and an API key handed to it shows in no process list.

    python bench.py SPEC.json > rows.jsonl

SPEC: {"url", "model", "key_file", "unit", "gpus": [0], "sampler": [argv], "runs": [{"input_len", "output_len",
"concurrency", "prompts", "seed", "warmup": true, …}]}. Every line: {"run": …, "row": …, "cached_tokens", "invocation",
"foreign", "samples", "started", "wall_s"} or {"run": …, "error": …}. The last line is {"done": true}.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import os
import re
import runpy
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import urllib.request
from pathlib import Path
from typing import Any

Spec = dict[str, Any]
WARMUP = 2  # rounds of the concurrency; kernels that compile on the first request of a shape do it here
CACHED = re.compile(r"^sglang:cached_tokens_total(?:\{[^}]*\})?\s+([0-9.e+]+)", re.MULTILINE)
COUNTED = re.compile(r"^sglang:prompt_tokens_total", re.MULTILINE)


def module() -> str:
    """The benchmark's module in this release: `sglang.bench_serving` up to 0.5.14, `sglang.benchmark.serving` later."""
    found = importlib.util.find_spec("sglang")
    if found is None or not found.submodule_search_locations:
        raise RuntimeError("this Python has no sglang: give the interpreter of the service's engine")
    root = Path(found.submodule_search_locations[0])
    return "sglang.benchmark.serving" if (root / "benchmark/serving.py").exists() else "sglang.bench_serving"


def request(spec: Spec, path: str, method: str = "GET", timeout: float = 30) -> str:
    """Body of an answer, or an exception. The key is read from its file at every call and kept nowhere."""
    headers = {}
    if spec.get("key_file"):
        headers["Authorization"] = "Bearer " + Path(os.path.expandvars(spec["key_file"])).read_text().strip()
    asked = urllib.request.Request(spec["url"] + path, headers=headers, method=method)
    with urllib.request.urlopen(asked, timeout=timeout) as answer:
        body: bytes = answer.read()
    return body.decode(errors="replace")


def flush(spec: Spec) -> None:
    """An empty prefix cache. The server refuses while it still works, so it is asked until it agrees."""
    for attempt in range(60):
        try:
            request(spec, "/flush_cache", "POST")
            return
        except OSError:
            if attempt == 59:
                raise
            time.sleep(1)


def cached_tokens(spec: Spec) -> float | None:
    """Prompt tokens served from the prefix cache since the start, or None where the server does not count."""
    try:
        text = request(spec, "/metrics")
    except OSError:
        return None
    if not COUNTED.search(text):
        return None
    return sum(float(value) for value in CACHED.findall(text))


def tell(*argv: str) -> str:
    """Standard output of a program, or nothing where it is missing or fails."""
    try:
        return subprocess.run(argv, capture_output=True, text=True, timeout=30, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return ""


def invocation(spec: Spec) -> str:
    return tell("systemctl", "show", "-p", "InvocationID", "--value", spec["unit"]).strip() if spec.get("unit") else ""


def foreign(spec: Spec) -> list[int]:
    """Processes on the service's GPUs that are not of its unit."""
    own: set[str] = set()
    if spec.get("unit"):
        group = tell("systemctl", "show", "-p", "ControlGroup", "--value", spec["unit"]).strip()
        for root in ("/sys/fs/cgroup", "/sys/fs/cgroup/unified", "/sys/fs/cgroup/systemd"):
            for procs in Path(root + group).glob("**/cgroup.procs") if group else ():
                own.update(procs.read_text().split())
    pids: set[str] = set()
    for gpu in spec.get("gpus", ()):
        found = tell("nvidia-smi", "-i", str(gpu), "--query-compute-apps=pid", "--format=csv,noheader")
        pids.update(pid for pid in found.split() if pid.isdigit())
    return sorted(int(pid) for pid in pids - own) if own else []


class Sampler:
    """GPU samples while a run is measured; without nvidia-smi there are none."""

    def __init__(self, argv: list[str]) -> None:
        self.text: list[str] = []
        self.process: subprocess.Popen[str] | None = None
        if argv:
            with contextlib.suppress(OSError):
                self.process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
                threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        if self.process and self.process.stdout:
            self.text.extend(self.process.stdout)

    def stop(self) -> str:
        if self.process:
            self.process.terminate()
            self.process.wait(10)
        return "".join(self.text)


def bench(spec: Spec, run: Spec, seed: int, prompts: int, output: str) -> Spec:
    """One call of the engine's benchmark; returns its result row. Raises RuntimeError with what it printed."""
    host, port = spec["url"].split("//")[1].split(":")
    argv = [
        *("--backend", "sglang", "--host", host, "--port", port, "--model", spec["model"]),
        *("--tokenizer", spec["model"], "--dataset-name", run.get("dataset", "random-ids"), "--seed", str(seed)),
        *("--random-input-len", str(run["input_len"]), "--random-output-len", str(run["output_len"])),
        *("--random-range-ratio", "1.0", "--num-prompts", str(prompts), "--max-concurrency", str(run["concurrency"])),
        *("--warmup-requests", "0", "--disable-tqdm", "--output-details", "--output-file", output),
        *run.get("extra", ()),
    ]
    printed = io.StringIO()
    before, sys.argv = sys.argv, [module(), *argv]
    try:
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            runpy.run_module(module(), run_name="__main__", alter_sys=True)
    except SystemExit as end:
        if end.code:
            raise RuntimeError(printed.getvalue()[-2000:]) from None
    finally:
        sys.argv = before
    lines = Path(output).read_text().splitlines()
    if not lines:
        raise RuntimeError("the benchmark wrote no result: " + printed.getvalue()[-2000:])
    row: Spec = json.loads(lines[-1])
    return row


def keep(row: Spec) -> Spec:
    """The row without its per-request texts, which are prompts of nobody and megabytes."""
    short = {k: v for k, v in row.items() if not isinstance(v, list | dict)}
    short["output_lens"] = [int(n) for n in row.get("output_lens") or []]
    return short


def measure(spec: Spec, run: Spec, folder: Path) -> Spec:
    if run.get("warmup", True):
        bench(spec, run, run["seed"] + 1_000_003, WARMUP * run["concurrency"], str(folder / "warmup.jsonl"))
    flush(spec)
    before, counted, sampler = invocation(spec), cached_tokens(spec), Sampler(spec.get("sampler") or [])
    started = time.time()
    try:
        row = bench(spec, run, run["seed"], run["prompts"], str(folder / f"{time.monotonic_ns()}.jsonl"))
    finally:
        samples = sampler.stop()
    after = cached_tokens(spec)
    return {
        "run": run,
        "row": keep(row),
        "started": started,
        "wall_s": time.time() - started,
        "cached_tokens": None if counted is None or after is None else int(after - counted),
        "invocation": [before, invocation(spec)],
        "foreign": foreign(spec),
        "samples": samples,
    }


def main() -> None:
    sys.path[:1] = []  # the script's own folder: what lies there must not stand in for the engine's modules
    spec = json.loads(Path(sys.argv[1]).read_text())
    if spec.get("key_file"):
        os.environ["OPENAI_API_KEY"] = Path(os.path.expandvars(spec["key_file"])).read_text().strip()
    with tempfile.TemporaryDirectory(prefix="sglfleet-bench-") as folder:
        for run in spec["runs"]:
            try:
                line = measure(spec, run, Path(folder))
            except Exception as error:  # whatever it is, the next run and the person must hear of it
                where = traceback.format_exc()[-2000:]
                line = {"run": run, "error": f"{type(error).__name__}: {error}"[-2000:], "where": where}
            print(json.dumps(line), flush=True)
    print(json.dumps({"done": True}), flush=True)


if __name__ == "__main__":
    main()
