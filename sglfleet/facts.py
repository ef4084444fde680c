"""Host facts: one command per host, one JSON document back, read into `HostFacts` and `HostState`."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sglfleet import nvidia
from validators.facts import Engine, HostFacts
from validators.state import Collected, GpuProcess, HostState, Model, Own, Process, Unit

if TYPE_CHECKING:
    from sglfleet.intent import Placement

MARKER = "sglfleet-host-facts"  # stands in the command, for simulated hosts that answer to it
SCHEMA_VERSION = 1


def wanted(placements: Iterable[Placement]) -> dict[str, Any]:
    """What the collector is asked for one host: its services, ports, venvs and models."""
    from sglfleet.render import user

    services = [placement.service for placement in placements]
    return {
        "services": sorted({service.service for service in services}),
        "ports": sorted({service.port for service in services}),
        "venvs": sorted({service.engine.venv for service in services if service.engine.venv != "managed"}),
        "models": [{"path": path, "user": user} for path, user in sorted({(s.model.path, user(s)) for s in services})],
    }


@cache
def _program() -> str:
    return Path(__file__).with_name("collector.py").read_text(encoding="utf-8")


def command(spec: dict[str, Any]) -> str:
    """One line of POSIX sh. It becomes root where it may, and says so where it may not; it always exits 0."""
    failed = "echo '{\"failed\": \"the collector ended with '$?'\"}'"
    call = f"python3 -I -c {shlex.quote(_program())} {shlex.quote(json.dumps(spec))}"
    return (
        f": {MARKER}; s=; [ \"$(id -u)\" = 0 ] || {{ sudo -n true 2>/dev/null && s='sudo -n'; }}; "
        "PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin:/usr/local/bin; export PATH; "
        f"if command -v python3 >/dev/null; then $s {call} || {failed}; "
        'else for a in "-q -x" "--query-gpu=index,uuid,compute_cap --format=csv,noheader" "topo -m" "topo -p2p r"; do '
        'echo "@@ $a"; if command -v nvidia-smi >/dev/null; then nvidia-smi $a 2>&1; echo "@@= $?"; '
        'else echo "@@= 127"; fi; done; fi'
    )


def parse(host: str, lines: Iterable[str]) -> Collected:
    """The collector's answer. Never raises: what cannot be read is an `error`, and facts that say nothing."""
    text = "\n".join(lines)
    try:
        if text.lstrip().startswith("@@"):
            return _told(host, _sections(text))
        start = text.index("{")  # a login shell may have printed something first
        raw = json.loads(text[start:].splitlines()[0])
        if raw.get("failed"):
            return unknown(host, raw["failed"])
        if raw.get("schema_version") != SCHEMA_VERSION:
            return unknown(host, f"the collector speaks version {raw.get('schema_version')}")
        return _told(host, raw)
    except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        return unknown(host, f"no host facts in the answer ({type(error).__name__}): {text.strip()[:120] or 'nothing'}")


def unknown(host: str, why: str) -> Collected:
    """Nothing could be told. Judges refuse this: no facts is never "no constraint"."""
    return Collected(facts=HostFacts(host=host, gpu_error=why), state=HostState(), error=why)


def _sections(text: str) -> dict[str, Any]:
    """The answer of a host without Python: only what nvidia-smi says."""
    names = {"-q -x": "xml", "--query-gpu=": "cap", "topo -m": "topo", "topo -p2p": "p2p"}
    smi: dict[str, Any] = {"path": "nvidia-smi"}
    for name, body, code in re.findall(r"(?ms)^@@ ([^\n]*)\n(.*?)^@@= (\d+)$", text):
        key = next(key for start, key in names.items() if name.startswith(start))
        smi[key] = [int(code), body]
    if smi["xml"][0] == 127:
        smi["path"] = None
    return {"smi": smi}


def _told(host: str, raw: dict[str, Any]) -> Collected:
    gpu = nvidia.read(raw["smi"], raw.get("nvswitch", 0))
    who = {int(pid): value for pid, value in raw.get("processes", {}).get("who", {}).items()}
    units = raw.get("units", {})
    engines = [
        Engine(venv=venv, packages=packages, python=python)
        for venv, (packages, python) in sorted(raw.get("venvs", {}).items())
        if packages is not None
    ]
    facts = HostFacts(
        host=host,
        gpus=gpu.gpus,
        gpu_error=gpu.error,
        driver=gpu.driver,
        cuda=gpu.cuda,
        nvcc=_nvcc(raw.get("nvcc", [127, ""])),
        interconnect=gpu.interconnect,
        p2p=gpu.p2p,
        rdma_nics=raw["rdma"]["nics"] if "rdma" in raw else None,
        nvswitch=bool(raw["nvswitch"] or gpu.fabric) if "nvswitch" in raw else None,
        machine=raw.get("machine", ""),
        memory_mib=raw.get("memory_mib"),
        engines=tuple(engines),
    )
    manager = units.get("nvidia-fabricmanager.service", {})
    state = HostState(
        root=raw.get("root", False),
        boot_id=raw.get("boot_id", ""),
        uptime=raw.get("uptime", 0.0),
        gpu_health=gpu.health,
        gpu_processes=tuple(
            GpuProcess(gpu=index, process=_process(pid, who, name), memory_mib=memory)
            for index, pid, name, memory in gpu.processes
        ),
        xid=tuple(raw.get("xid", ())),
        fabric_manager=manager.get("ActiveState", "") if manager.get("LoadState") == "loaded" else "",
        fabric=gpu.fabric,
        units=tuple(_unit(fields) for _, fields in sorted(units.items())),
        own=tuple(Own(service=name, **own) for name, own in sorted(raw.get("own", {}).items())),
        ports={
            int(port): tuple(_process(pid, who) for pid in pids)
            for port, pids in raw.get("processes", {}).get("ports", {}).items()
        },
        sglang=tuple(_process(p["pid"], who) for p in raw.get("processes", {}).get("sglang", ())),
        models=tuple(_model(model) for model in raw.get("models", ())),
        disk=raw.get("disk", {}),
        uv=raw.get("uv"),
    )
    return Collected(facts=facts, state=state)


def _process(pid: int, who: dict[int, Any], name: str = "") -> Process:
    known = who.get(pid, {})
    return Process(pid=pid, name=known.get("name") or name, unit=known.get("unit", ""), release=known.get("release"))


def _unit(fields: dict[str, Any]) -> Unit:
    return Unit(
        name=fields["Id"],
        load=fields.get("LoadState", ""),
        active=fields.get("ActiveState", ""),
        sub=fields.get("SubState", ""),
        result=fields.get("Result", ""),
        enabled=fields.get("UnitFileState", ""),
        file=fields.get("FragmentPath", ""),
        pid=int(fields.get("MainPID") or 0),
        invocation=fields.get("InvocationID", ""),
        restarts=int(fields.get("NRestarts") or 0),
        since=fields.get("ActiveEnterTimestamp", ""),
        release=fields.get("release"),
        file_release=fields.get("file_release"),
        foreign=bool(fields.get("foreign")),
    )


def _model(raw: dict[str, Any]) -> Model:
    config = None
    if raw.get("config") is not None:
        try:
            config = json.loads(raw["config"])
        except ValueError:
            raw = {**raw, "missing": [*raw["missing"], "config.json (not JSON)"]}
    return Model(
        path=raw["path"],
        exists=raw["exists"],
        missing=tuple(raw["missing"]),
        bytes=raw["bytes"],
        unreadable=raw["unreadable"],
        config=config if isinstance(config, dict) else None,
    )


def _nvcc(answer: list[Any]) -> str | None:
    hit = re.search(r"release (\d+\.\d+)", answer[1]) if answer[0] == 0 else None
    return hit[1] if hit else None
