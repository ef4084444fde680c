"""Reading a profiler trace: our stream reader against `json.load` of the whole file, on the same trace in one run.

    python benchmarks/trace_reader.py [MB]

Prints seconds and peak memory of both, and the ratios. The trace is written in torch's own layout, nine Python frames
to each kernel, as profiles with stacks are.
"""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MEASURE = (
    "import resource, sys, time; t = time.monotonic(); {work}; "
    "print(time.monotonic() - t, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)"
)
READERS = {
    "sglfleet": "from sglfleet.verify.trace import read; read(sys.argv[1])",
    "json.load": "import gzip, json; json.load(gzip.open(sys.argv[1]))",
}


def write(path: Path, size: int) -> None:
    """A trace of about `size` bytes of JSON, gzipped."""

    def event(category: str, name: str, **arguments: object) -> str:
        inner = ", ".join(f'"{key}": {json.dumps(value)}' for key, value in arguments.items())
        head = f'"ph": "X", "cat": "{category}", "name": "{name}", "pid": 1, "tid": 1'
        return f'  {{\n    {head},\n    "ts": 1.5, "dur": 2,\n    "args": {{\n      {inner}\n    }}\n  }}'

    frame = event("python_function", "sglang/srt/layers/communicator.py(311): f", **{"Python id": 3})
    block = ",\n".join([frame] * 9 + [event("kernel", "k" * 120, grid=[2, 1, 1], block=[128, 1, 1])])
    with gzip.open(path, "wt", compresslevel=1) as out:
        out.write('{"schemaVersion": 1, "traceEvents": [\n' + block)
        for _ in range(size // len(block)):
            out.write(",\n" + block)
        out.write("\n  ]\n}")


def main() -> None:
    size = int(sys.argv[1]) if len(sys.argv) > 1 else 300
    told: dict[str, tuple[float, float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "big-TP-0.trace.json.gz"
        write(path, size * 1_000_000)
        for name, work in READERS.items():
            code = [sys.executable, "-c", MEASURE.format(work=work), str(path)]
            out = subprocess.run(code, capture_output=True, text=True, check=True, cwd=ROOT).stdout.split()
            told[name] = float(out[0]), float(out[1])
            print(f"{name:10} {told[name][0]:6.1f} s {told[name][1]:8.0f} MiB")
    ours, theirs = told["sglfleet"], told["json.load"]
    print(f"ratio      {ours[0] / theirs[0]:6.2f}   {ours[1] / theirs[1]:8.3f}   ({size} MB of JSON)")


if __name__ == "__main__":
    main()
