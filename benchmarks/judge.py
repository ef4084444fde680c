"""Ten thousand cases through `sglfleet judge`, start included, against reading and writing the same lines with json.

    python -m benchmarks.judge [CASES]

Once all different, once 240 of them over and over, as a fleet asks them. Prints processor seconds of both, their ratio,
and cases a second.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RELEASES = ("0.4.9.post6", "0.5.3.post3", "0.5.9", "0.5.12", "0.5.16", "0.5.23")
SMS = ("8.0", "8.9", "9.0", "10.0", "10.3", "11.0", "12.0", "12.1")
BACK_ENDS = ("triton", "flashinfer", "fa3", "trtllm_mha")
COPY = "import json, sys\nfor line in open(sys.argv[1]): print(json.dumps(json.loads(line)))"


def write(path: Path, count: int, different: bool = True) -> None:
    """Cases over releases, SMs, topologies and flags, which begin again after 240 unless they must be different."""
    with path.open("w", encoding="utf-8") as out:
        for n in range(count):
            args: dict[str, object] = {"tp-size": (1, 2, 4, 8)[n % 4], "attention-backend": BACK_ENDS[n // 4 % 4]}
            if n % 3:
                args["enable-flashinfer-allreduce-fusion"] = True
            if n % 5 == 0:
                args["kv-cache-dtype"] = "fp8_e4m3"
            if different:
                args["max-running-requests"] = n + 1
            case = {"id": str(n), "sglang": RELEASES[n % 6], "sm": SMS[n // 6 % 8], "gpus": 8, "args": args}
            out.write(json.dumps({**case, "model_arch": "Qwen3MoeForCausalLM"}) + "\n")


def seconds(*command: str) -> float:
    """Processor seconds of a command that must succeed."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=ROOT)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    for different in (True, False):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "cases.jsonl"
            write(path, count, different)
            ours = seconds(sys.executable, "-m", "sglfleet", "judge", "--cases", str(path))
            copied = seconds(sys.executable, "-c", COPY, str(path))
        name = "all different" if different else "repeated"
        print(f"{name}: {ours:.2f} s, json alone {copied:.2f} s, ratio {ours / copied:.1f}, {count / ours:.0f} cases/s")


if __name__ == "__main__":
    main()
