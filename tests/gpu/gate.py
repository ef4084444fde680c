"""What this engine really does on this card with a flag: loads, prefills, decodes, or stops, and with which words.

Cases are lines {"model", "args"}.

`gate.py arguments CASES OUT`: each case's arguments resolved by the engine on this card, all in one process.
`gate.py load CASES OUT SECONDS PARALLEL CARD`: each case gets a process of its own that goes the scheduler's way
without a scheduler (the engine's `benchmark.one_batch`): arguments, model with dummy weights, memory pools, attention
back end, CUDA graphs, one prefill, three decodes. Rows say how far it came.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from queue import Empty, Queue
from typing import Any

MODELS = Path(os.environ.get("MODELS", "/tmp/model"))
BASE: dict[str, Any] = {
    "load-format": "dummy", "max-total-tokens": 8192, "mem-fraction-static": 0.6, "max-running-requests": 8,
    "cuda-graph-max-bs-decode": 4, "random-seed": 1,
}  # fmt: skip
LIMIT = 200.0  # s for one case; kernels that are compiled for longer are not waited for


def words(args: dict[str, Any]) -> list[str]:
    out: list[str] = []
    for flag, value in args.items():
        out += [f"--{flag}"] if value is True else [f"--{flag}", str(value)]
    return out


def resolved(model: str, args: dict[str, Any]) -> Any:
    """The engine's own arguments, changed and checked as a server's are."""
    from sglang.srt.server_args import prepare_server_args

    found = prepare_server_args(["--model-path", str(MODELS / model), *words(args)])
    if hasattr(found, "resolve_once"):  # before, they are resolved when they are made
        found.resolve_once()
    found.check_server_args()
    return found


def child(case: dict[str, Any]) -> None:
    """One case in this process; each step that is reached is printed."""

    def step(name: str, **more: Any) -> None:
        print("STEP " + json.dumps({"step": name, **more}), flush=True)

    step("imports")
    from sglang.benchmark import one_batch
    from sglang.srt.server_args import PortArgs

    step("arguments")
    server_args = resolved(case["model"], {**BASE, **case["args"]})
    kept = {f: repr(getattr(server_args, f.replace("-", "_"), "no such field")) for f in case["args"]}
    step("load", resolved=kept)
    one_batch._set_envs_and_config(server_args)
    one_batch.initialize_moe_config(server_args)
    one_batch.initialize_fp8_gemm_config(server_args)
    one_batch.initialize_fp4_gemm_config(server_args)
    from sglang.srt.layers.quantization.unquant import initialize_bf16_gemm_config

    initialize_bf16_gemm_config(server_args)
    runner, _ = one_batch.load_model(server_args, PortArgs.init_new(server_args), 0, 0)
    step("prefill")
    import numpy as np

    inputs = np.random.default_rng(1).integers(10, 900, (4, 96), dtype=np.int32)
    tokens, _, batch = runner.extend(one_batch.prepare_synthetic_inputs_for_latency_test(4, 96, list(inputs)))
    step("decode")
    for _ in range(3):
        tokens, _ = runner.decode(tokens, batch)
    runner.synchronize()
    step("done")
    os._exit(0)  # without what libraries do at the end


def arguments(cases: Path, out: Path) -> None:
    """Every case's arguments, one after the other; the environment is put back after each."""
    import io
    import logging
    import traceback

    logging.disable(logging.CRITICAL)
    environment = dict(os.environ)
    with out.open("w") as file:
        for line in cases.read_text().splitlines():
            case = json.loads(line)
            said, printed = "taken", io.StringIO()
            try:
                with contextlib.redirect_stderr(printed), contextlib.redirect_stdout(io.StringIO()):
                    args = resolved(case["model"], case["args"])
            except SystemExit:
                said = "parser: " + printed.getvalue()[-300:]
            except BaseException as error:
                place = traceback.extract_tb(error.__traceback__)[-1]
                said = f"{type(error).__name__}: {str(error)[:300]} @ {Path(place.filename).name}:{place.lineno}"
            else:
                case["resolved"] = {f: repr(getattr(args, f.replace("-", "_"), None)) for f in case["args"]}
            os.environ.clear()
            os.environ.update(environment)
            file.write(json.dumps({**case, "said": said}) + "\n")


def ask(case: dict[str, Any], card: str, limit: float) -> dict[str, Any]:
    """The case in a process group of its own: its last step, exit code, resolved values and last words."""
    began = time.monotonic()
    with tempfile.TemporaryFile("w+") as out:
        process = subprocess.Popen(
            [sys.executable, __file__, "one", json.dumps(case)], stdout=out, stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL, start_new_session=True, env={**os.environ, "CUDA_VISIBLE_DEVICES": card},
        )  # fmt: skip
        try:
            code: int | None = process.wait(limit)
        except subprocess.TimeoutExpired:
            code = None
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        out.seek(0)
        lines = out.read().splitlines()
    steps = [json.loads(line[5:]) for line in lines if line.startswith("STEP ")]
    text = [line for line in lines if not line.startswith("STEP ")]
    return {
        **case, "step": steps[-1]["step"] if steps else "", "code": code, "seconds": round(time.monotonic() - began, 1),
        "resolved": next((s["resolved"] for s in steps if "resolved" in s), {}),
        "warnings": [line[-300:] for line in text if "WARNING" in line or " W " in line[:30]][:8],
        "tail": [] if steps and steps[-1]["step"] == "done" else [line[-400:] for line in text[-14:]],
    }  # fmt: skip


def main() -> None:
    _, cases, out, seconds, parallel, card = sys.argv[1:]
    end = time.monotonic() + float(seconds)
    queue: Queue[dict[str, Any]] = Queue()
    for line in Path(cases).read_text().splitlines():
        queue.put(json.loads(line))
    lock = threading.Lock()

    def work() -> None:
        while end - time.monotonic() > 30:
            try:
                case = queue.get_nowait()
            except Empty:
                return
            row = ask(case, card, min(LIMIT, end - time.monotonic()))
            with lock, Path(out).open("a") as file:
                file.write(json.dumps(row) + "\n")
                print(row["step"], row["code"], row["seconds"], row["model"], row["args"], row["tail"][-1:], flush=True)

    threads = [threading.Thread(target=work) for _ in range(int(parallel))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print("left undone:", queue.qsize())


if __name__ == "__main__":
    if sys.argv[1] == "one":
        child(json.loads(sys.argv[2]))
    elif sys.argv[1] == "arguments":
        arguments(Path(sys.argv[2]), Path(sys.argv[3]))
    else:
        main()
