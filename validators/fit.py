"""Does the service fit the host at all: GPUs that exist, enough of them, the engine that is pinned. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from validators.facts import HostFacts, span
from validators.fields import is_hub_id
from validators.service import Service
from validators.verdict import Decision, Outcome, Verdict

RULE = "host-fit"
_PARALLEL = ("pp-size", "pipeline-parallel-size")  # multiplies with TP (server_args.py, all releases)


def fit(service: Service, facts: HostFacts, nodes: int = 1, pins: Mapping[str, str] | None = None) -> list[Verdict]:
    """What makes this host unfit: verdicts on `model`, `gpus`, `tp-size`, `engine.venv`. Nothing to say: an empty list.

    `pins`: the exact versions that the engine must have, where they are known; only a named venv is compared.
    """
    return [*_model(service), *_gpus(service, facts), *_size(service, nodes), *_engine(service, facts, pins or {})]


def _verdict(flag: str, value: object, reason: str, todo: str, outcome: Outcome = Outcome.FAILS) -> Verdict:
    shown = value if isinstance(value, str | int) else list(value) if isinstance(value, tuple) else str(value)
    return Verdict(flag, shown, outcome, Decision.REFUSE, reason, RULE, todo=todo)


def _model(service: Service) -> Iterator[Verdict]:
    """A server that fetches its model while it starts cannot be checked before, and every restart asks the hub."""
    path = service.model.path
    if is_hub_id(path):
        folder = f"/models/{path.rpartition('/')[2]}"
        todo = f"Fetch it to every host (`hf download {path} --local-dir {folder}`) and write `model: {folder}`."
        yield _verdict("model", path, "It names a model on a hub, not a folder on the host.", todo)


def _gpus(service: Service, facts: HostFacts) -> Iterator[Verdict]:
    wanted = service.gpus
    if facts.gpus is None:
        reason = f"The host tells no GPU facts: {facts.gpu_error or 'nobody asked it'}."
        todo = "Record them with `sglfleet facts`, declare the hardware (`gpu`), or repair the driver."
        yield _verdict("gpus", wanted, reason, todo, Outcome.UNKNOWN)
        return
    if not facts.gpus:
        yield _verdict("gpus", wanted, "The host has no GPU.", "Give the service to another host.")
        return
    there = {gpu.index: gpu for gpu in facts.gpus}
    if absent := [index for index in wanted if index not in there]:
        has = f"{len(there)} GPU{'s' * (len(there) > 1)}, {span(sorted(there))}"
        which = "GPU {} does" if len(absent) == 1 else "GPUs {} do"
        reason = f"{which.format(', '.join(map(str, absent)))} not exist: the host has {has}."
        yield _verdict("gpus", wanted, reason, "Change `gpus`, for this group with an override.")
    if mig := [index for index in wanted if index in there and there[index].mig]:
        which = "GPU {} is" if len(mig) == 1 else "GPUs {} are"
        reason = f"{which.format(', '.join(map(str, mig)))} in MIG mode: a server sees one slice of it, not the GPU."
        todo = "Turn MIG off (`nvidia-smi -mig 0`), or take another GPU."
        yield _verdict("gpus", wanted, reason, todo, Outcome.UNKNOWN)


def _size(service: Service, nodes: int) -> Iterator[Verdict]:
    pipeline = next((service.args[name] for name in _PARALLEL if name in service.args), 1)
    given = service.args.get("nnodes")
    nodes = max(nodes, given) if isinstance(given, int) and not isinstance(given, bool) else nodes
    if not isinstance(pipeline, int) or isinstance(pipeline, bool):
        return
    needed, have = service.tp * pipeline, len(service.gpus) * nodes
    if needed > have:
        stages = f" in {pipeline} pipeline stages" if pipeline > 1 else ""
        where = f" on {nodes} nodes" if nodes > 1 else ""
        reason = f"Tensor-parallel size {service.tp}{stages} needs {needed} GPUs, the service has {have}{where}."
        flag = next((name for name in ("tp-size", "tp", "tensor-parallel-size") if name in service.args), _PARALLEL[0])
        yield _verdict(flag, service.args.get(flag, 1), reason, "Add GPUs to `gpus`, or lower it.")


def _engine(service: Service, facts: HostFacts, pins: Mapping[str, str]) -> Iterator[Verdict]:
    venv = service.engine.venv.rstrip("/")
    if venv == "managed" or facts.declared or facts.gpus is None:
        return
    found = next((engine.packages for engine in facts.engines if engine.venv.rstrip("/") == venv), None)
    if found is None:
        todo = "Install it there, or use `venv: managed`. If it is there, record the facts anew."
        yield _verdict("engine.venv", venv, f"No Python environment is known at {venv}.", todo)
        return
    wanted = {"sglang": service.engine.sglang, **pins}
    wrong = [
        f"{name} is {found.get(name) or 'not installed'}, {version} is pinned"
        for name, version in sorted(wanted.items())
        if _public(found.get(name, "")) != _public(version)
    ]
    if wrong:
        reason = f"The engine in {venv} is not the pinned one: {'; '.join(wrong)}."
        yield _verdict("engine.venv", venv, reason, "Install the pinned versions, or pin what is there.")


def _public(version: str) -> str:
    """Without the local part: torch 2.11.0+cu130 is torch 2.11.0."""
    return re.sub(r"\+.*", "", version)
