"""Speed of `sglfleet check`: a fleet of 1,000 and of 10,000 hosts with three services each, start included.

    python benchmarks/check.py [HOSTS…]

Asked for: 1,000 hosts under 2 s of wall time, 10,000 under 15 s, peak memory under 300 MB. Exits 1 where it is not so.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HOME = Path(__file__).resolve().parent.parent
LIMITS = {1_000: 2.0, 10_000: 15.0}  # s
MEMORY = 300  # MB

INVENTORY = """\
kinds = ("h100", "h200", "b200", "rtx_pro_6000")
for _kind in range(4):
    globals()[kinds[_kind]] = [(f"{{kinds[_kind]}}-{{i}}", {{"rack": i // 16}}) for i in range(_kind, {hosts}, 4)]
del kinds
"""
GROUP = """\
gpu = "{gpu} x8"
services = ["one", "two", "three"]
service_overrides = {{"two": {{"args": {{"mem-fraction-static": {fraction}}}}}}}
"""
SERVICE = """\
service: {name}
engine: {{sglang: 0.5.23}}
model: {{path: /models/{name}, arch: Qwen3MoeForCausalLM}}
gpus: {gpus}
on_unsupported: downgrade
args:
  port: {port}
  tp-size: 2
  mem-fraction-static: 0.9
  enable-metrics: true
  kv-cache-dtype: fp8_e4m3
  attention-backend: flashinfer
  flashinfer-allreduce-fusion-backend: auto
  enable-fused-moe-sum-all-reduce: true
"""


def fleet(folder: Path, hosts: int) -> None:
    """Write a project with four kinds of host."""
    services = folder / "group_data" / "services"
    services.mkdir(parents=True)
    (folder / "inventory").mkdir()
    (folder / "inventory" / "prod.py").write_text(INVENTORY.format(hosts=hosts))
    for i, gpu in enumerate(("h100", "h200", "b200", "rtx-pro-6000")):
        text = GROUP.format(gpu=gpu, fraction=0.80 + i / 100)
        (folder / "group_data" / f"{gpu.replace('-', '_')}.py").write_text(text)
    for i, name in enumerate(("one", "two", "three")):
        text = SERVICE.format(name=name, gpus=[2 * i, 2 * i + 1], port=30000 + i)
        (services / f"{name}.yaml").write_text(text)


def run(hosts: int, form: str = "text") -> tuple[float, float, float, str]:
    """Wall time and processor time in s, peak memory in MB, and the last line of one check."""
    with tempfile.TemporaryDirectory() as folder:
        fleet(Path(folder), hosts)
        env = {**os.environ, "PYTHONPATH": str(HOME)}
        words = [sys.executable, "-m", "sglfleet", "check", "inventory/prod.py", "--format", form]
        start = time.monotonic()
        child = subprocess.Popen(words, cwd=folder, env=env, stdout=subprocess.PIPE, text=True)
        out = child.stdout.read() if child.stdout else ""
        _, status, usage = os.wait4(child.pid, 0)
        wall = time.monotonic() - start
        if os.waitstatus_to_exitcode(status) not in (0, 1):
            raise SystemExit(f"the check itself failed: {out[-500:]}")
        return wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, out.strip().splitlines()[-1]


def main() -> int:
    """Measure and compare."""
    missed = False
    for hosts in [int(word) for word in sys.argv[1:]] or list(LIMITS):
        wall, cpu, memory, last = min(run(hosts) for _ in range(3))
        limit = LIMITS.get(hosts, float("inf"))
        missed |= wall > limit or memory > MEMORY
        times = f"{wall:.2f} s (limit {limit}), {cpu:.2f} s of processor"
        print(f"{hosts} hosts x 3 services: {times}, {memory:.0f} MB (limit {MEMORY}); {last}")
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
