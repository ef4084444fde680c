"""A server nobody deployed: a hand-written unit on a lab host, with the real engine on the CPU."""

from __future__ import annotations

import json
import subprocess
import time

from lab.engine import Engine
from sglfleet.verify import ship
from sglfleet.verify.gathered import unpack

# what a CPU needs to run at all
CPU = "--sleep-on-idle --device cpu --max-total-tokens 16384 --attention-backend torch_native --enable-metrics"
ENV = "SGLANG_USE_CPU_ENGINE=0 HF_HUB_OFFLINE=1 TRANSFORMERS_OFFLINE=1 OMP_NUM_THREADS=2 PYTHONUNBUFFERED=1"
UNIT = """[Service]
Environment={env}
ExecStart={python} -m sglang.launch_server --model-path {model} --host 127.0.0.1 --port {port} {flags}
PrivateTmp=yes
"""


def start(host, engine: Engine, flags: str, name: str = "handmade", port: int = 30000, limit: float = 900) -> float:
    """Write the unit, start it, wait until it generates. Seconds it took; raises with the journal where it does not."""
    unit = UNIT.format(env=ENV, python=engine.python, model=engine.model, port=port, flags=f"{CPU} {flags}")
    host.exec("sh", "-c", f"cat > /run/systemd/system/{name}.service && systemctl daemon-reload", stdin=unit)
    begin = time.monotonic()
    host.exec("systemctl", "restart", name)
    url = f"http://127.0.0.1:{port}/health_generate"
    while time.monotonic() - begin < limit:
        told = host.exec("curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", "--max-time", "20", url).stdout
        if str(told).strip() == "200":
            return time.monotonic() - begin
        if host.exec("systemctl", "is-active", name).stdout.strip() not in ("active", "activating"):
            break
        time.sleep(1)
    raise AssertionError(host.exec("journalctl", "-u", name, "-n", "30", "--no-pager").stdout)


def stop(host, name: str = "handmade") -> None:
    host.exec("systemctl", "kill", "-s", "KILL", name)
    host.exec("systemctl", "reset-failed", name)


def collect(host, engine: Engine, **spec) -> dict:
    """What the host answers, asked past the network: the same script that goes over SSH."""
    script = ship.script(json.dumps(spec), str(engine.python))
    done: subprocess.CompletedProcess = host.exec("sh", stdin=script, timeout=400)
    assert done.returncode == 0, done.stderr
    return unpack(done.stdout)
