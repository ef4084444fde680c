"""Measure a deployed service on its host with the engine's own benchmark.

The work runs on the host as a transient unit that survives the controller; here it is planned, started, followed and
turned into runs. What is sent is `sglfleet/onhost/bench.py`.
"""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sglfleet import paths
from sglfleet.verify import runs, telemetry
from sglfleet.verify.runs import Run

if TYPE_CHECKING:
    from pyinfra.api.host import Host

    from sglfleet.running import Running
    from validators.service import Benchmark

POLL = 2.0  # s between looks at a benchmark that runs on a host
LOST = 180.0  # s without an answer to one look: a host whose CPUs are all at work answers late
STALE = 30  # s without a look: whoever followed the benchmark is gone
UNIT = "sglfleet-bench-"
UNPACK = "import json,sys\nfor n, t in json.load(sys.stdin).items(): open(sys.argv[1] + chr(47) + n, chr(119)).write(t)"
SCRIPT = Path(__file__).parents[1] / "onhost/bench.py"


@dataclass(frozen=True, slots=True)
class Target:
    """A running service on one host, as its release's manifest and the host's facts tell."""

    service: str
    host: str
    release: str
    unit: str
    url: str  # as seen from the host itself, "http://127.0.0.1:30000"
    model: str
    python: str  # interpreter of the engine the service runs on
    user: str  # the service's own user
    engine: dict[str, str]
    gpus: tuple[int, ...] = ()
    gpu: str = ""
    host_class: str = ""
    key_file: str = ""  # root-only file with the API key; "" for none
    cache_expected: bool = False
    args: dict[str, str] = field(default_factory=dict)  # flags of the process
    proofs: dict[str, str] = field(default_factory=dict)  # what the last proof says of them


@dataclass(frozen=True, slots=True)
class Failure:
    """A run that gave no row at all."""

    run: dict[str, Any]
    reason: str


def target(now: Running, host_class: str = "", gpu: str = "", proofs: Mapping[str, str] | None = None) -> Target:
    """The benchmark's view of a running service. Prefix-cache hits are a fault unless prompts are meant to share."""
    from sglfleet.verify.effective import given_flags

    argv = now.manifest["argv"]
    return Target(
        service=now.service,
        host=now.host,
        release=now.release,
        unit=paths.unit(now.service),
        url=now.url,
        model=argv[argv.index("--model-path") + 1],
        python=now.python,
        user=now.manifest["user"],
        engine={**now.manifest["packages"], "sglang": now.manifest["sglang"]},
        gpus=tuple(now.manifest["gpus"]),
        gpu=gpu,
        host_class=host_class,
        key_file=now.key_file,
        args=given_flags(argv),
        proofs=dict(proofs or {}),
    )


def prompts(concurrency: int) -> int:
    """Requests of one run: long enough that the ramp at both ends is a small part."""
    return max(8, 4 * concurrency)


def plan(wanted: Benchmark, seed: int, repeats: int | None = None) -> list[dict[str, Any]]:
    """Runs to make, repeats outermost so that a drift falls on every concurrency alike. Every run has its own seed, and
    each concurrency is warmed up before its first run."""
    out = []
    for repeat in range(repeats or wanted.repeats):
        for place, concurrency in enumerate(wanted.concurrency):
            out.append(
                {
                    "input_len": wanted.input_len,
                    "output_len": wanted.output_len,
                    "concurrency": concurrency,
                    "prompts": wanted.prompts or prompts(concurrency),
                    "seed": seed + repeat * len(wanted.concurrency) + place,
                    "warmup": repeat == 0,
                }
            )
    return out


def spec(target: Target, planned: list[dict[str, Any]], has_smi: bool) -> dict[str, Any]:
    """What `sglfleet/onhost/bench.py` is told."""
    ids = ",".join(map(str, target.gpus))
    sampler = ["nvidia-smi", *(["-i", ids] if ids else []), f"--query-gpu={','.join(telemetry.FIELDS)}"]
    sampler += ["--format=csv,noheader,nounits", "-lms", "500"]
    return {
        "url": target.url,
        "model": target.model,
        "key_file": "$CREDENTIALS_DIRECTORY/api-key" if target.key_file else "",
        "unit": target.unit,
        "gpus": list(target.gpus),
        "sampler": sampler if has_smi else [],
        "runs": planned,
    }


def start_script(target: Target, told: dict[str, Any], name: str) -> tuple[str, str]:
    """(shell script, its standard input) that starts the benchmark as a transient unit; world-readable files in its
    folder hold no secret.

    A benchmark of the service that somebody still follows is waited for a while, then the script fails; one that
    nobody follows any more, its controller was killed, is ended. What such ones left behind is removed.
    """
    home = f"{paths.state(target.service)}/bench"
    folder = f"{home}/{name}"
    options = [
        "--quiet", "--collect", f"--unit={UNIT}{name}", f"--uid={target.user}", "--property=Type=exec",
        f"--property=StandardOutput=append:{folder}/rows.jsonl", f"--property=StandardError=append:{folder}/log",
        "--property=PrivateTmp=yes", "--setenv=HF_HUB_OFFLINE=1", "--setenv=TRANSFORMERS_OFFLINE=1",
        "--setenv=HOME=/tmp", "--working-directory=/",
    ]  # fmt: skip
    if target.key_file:
        options.append(f"--property=LoadCredential=api-key:{target.key_file}")
    command = ["systemd-run", *options, "--", target.python, f"{folder}/bench.py", f"{folder}/spec.json"]
    script = f"""set -eu
mkdir -p {shlex.quote(home)}
cd {shlex.quote(home)}
for old in */; do
  [ -d "$old" ] || continue
  old=${{old%/}}
  tries=0
  followed() {{ [ -n "$(find "$old/followed" -newermt "-{STALE} seconds" 2>/dev/null)" ]; }}
  while systemctl is-active -q "{UNIT}$old" && followed; do
    tries=$((tries + 1))
    [ $tries -lt {2 * STALE} ] || {{ echo "{UNIT}$old measures this service: wait for it, or stop it" >&2; exit 1; }}
    sleep 1
  done
  systemctl stop "{UNIT}$old" 2>/dev/null || true
  rm -rf "$old"
done
mkdir {shlex.quote(folder)}
python3 -c '{UNPACK}' {folder}
: > {folder}/rows.jsonl
touch {folder}/followed
{shlex.join(command)}
"""
    files = {"bench.py": SCRIPT.read_text(encoding="utf-8"), "spec.json": json.dumps(told)}
    return script, json.dumps(files)


def look_script(target: Target, name: str, seen: int) -> str:
    """Shell script that prints whether the unit still runs, then every whole line after the first `seen`.

    A line that is only half written has no end yet and is left for the next look.
    """
    folder = f"{paths.state(target.service)}/bench/{name}"
    return f"""touch {folder}/followed
systemctl is-active {UNIT}{name} || true
whole=$(wc -l < {folder}/rows.jsonl)
[ "$whole" -le {seen} ] || sed -n "{seen + 1},${{whole}}p" {folder}/rows.jsonl"""


def measure(
    host: Host,
    target: Target,
    planned: list[dict[str, Any]],
    *,
    has_smi: bool,
    on_run: Callable[[], None] = lambda: None,
) -> Iterator[Run | Failure]:
    """Make the planned runs on the host; yields each as it is done.

    Raises operations.HostFailed where the benchmark cannot be started or ends before its last run. The transient unit
    is stopped, and its folder removed, when the caller stops listening.
    """
    from sglfleet import operations

    name = f"{target.service}-{time.time_ns():x}"
    script, files = start_script(target, spec(target, planned, has_smi), name)
    operations.run(host, script, stdin=files, timeout=4 * STALE)
    folder = f"{paths.state(target.service)}/bench/{name}"
    seen = 0
    try:
        while True:
            time.sleep(POLL)
            state, *lines = operations.run(host, look_script(target, name, seen), timeout=LOST).out.split("\n")
            seen += len(lines)
            for line in lines:
                told = json.loads(line)
                if "done" in told:
                    return
                yield of_line(told, target)
                on_run()
            if state not in ("active", "activating") and not lines:
                log = operations.run(host, f"tail -n 5 {folder}/log").out.strip()[-500:]
                raise operations.HostFailed(target.host, f"the benchmark ended before its last run: {log or 'no word'}")
    finally:
        operations.run(host, f"systemctl stop {UNIT}{name} 2>/dev/null; rm -rf {folder}", check=False)


def of_line(told: dict[str, Any], target: Target) -> Run | Failure:
    """A line of `sglfleet/onhost/bench.py` as a run, or why it is none."""
    if "error" in told:
        return Failure(told["run"], str(told["error"]))
    asked = told["run"]
    try:
        return runs.of_row(
            told["row"],
            service=target.service,
            release=target.release,
            engine=target.engine,
            host=target.host,
            host_class=target.host_class,
            gpu=target.gpu,
            model=target.model,
            prompts=asked["prompts"],
            seed=asked["seed"],
            arm=asked.get("arm", ""),
            block=asked.get("block"),
            started=told["started"],
            cached_tokens=told["cached_tokens"],
            cache_expected=target.cache_expected,
            invocation=tuple(told["invocation"]),
            foreign_pids=tuple(told["foreign"]),
            args=target.args,
            proofs=target.proofs,
            telemetry=telemetry.summarise(told["samples"], target.gpus),
        )
    except ValueError as error:
        return Failure(asked, str(error))


def floor_w(history: Iterable[Run], host_class: str) -> float | None:
    """Median power under load of earlier runs of the host class; None before there are three."""
    from statistics import median

    from sglfleet.verify.validity import BUSY

    seen = [
        r.telemetry.power_w
        for r in history
        if r.host_class == host_class and r.telemetry and r.telemetry.utilisation >= BUSY
    ]
    return median(seen) if len(seen) >= 3 else None
