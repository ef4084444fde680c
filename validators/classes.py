"""Host classes: hosts with the same stable facts share one record, made for review in git. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import Field

from validators.facts import Engine, Fact, HostFacts, span

SCHEMA_VERSION = 1
MANAGED = "/opt/sglfleet/"  # engines there are put there by deploys, and come and go with them


class HostClass(Fact):
    """One recorded file: what the hosts named in it have in common."""

    schema_version: int = SCHEMA_VERSION
    name: str
    hosts: tuple[str, ...] = Field(min_length=1)
    facts: HostFacts


def stable(facts: HostFacts) -> HostFacts:
    """The part that a host shares with its like: no names, serials, addresses, and no engines that deploys made."""
    gpus = facts.gpus
    if gpus is not None:
        gpus = tuple(gpu.model_copy(update={"uuid": "", "pci_bus_id": ""}) for gpu in gpus)
    engines = tuple(
        Engine(venv=engine.venv, packages=dict(sorted(engine.packages.items())))
        for engine in facts.engines
        if not engine.venv.startswith(MANAGED)
    )
    return facts.model_copy(update={"host": "", "gpus": gpus, "engines": engines, "memory_mib": None})


def classify(hosts: Mapping[str, HostFacts], known: Iterable[HostClass] = ()) -> list[HostClass]:
    """Hosts grouped by equal facts. A class keeps the name it had, by the hosts it shares with a known one."""
    groups: dict[str, tuple[HostFacts, list[str]]] = {}
    for name, facts in hosts.items():
        common = stable(facts)
        groups.setdefault(common.model_dump_json(), (common, []))[1].append(name)
    old = {host: one.name for one in known for host in one.hosts}
    found: list[HostClass] = []
    taken: set[str] = set()
    for facts, members in sorted(groups.values(), key=lambda group: -len(group[1])):
        base = label(facts)
        votes = [old[host] for host in members if old.get(host, "").startswith(base) and old[host] not in taken]
        name = max(sorted(set(votes)), key=votes.count) if votes else _free(base, taken | set(old.values()))
        taken.add(name)
        found.append(HostClass(name=name, hosts=tuple(members), facts=facts))
    return sorted(found, key=lambda one: one.name)


def label(facts: HostFacts) -> str:
    """A readable name: `nvidia-h200-x8`, `mixed-…-x2`, `no-gpu`, `unknown`."""
    if facts.gpus is None:
        return "unknown"
    if not facts.gpus:
        return "no-gpu"
    kinds = sorted({gpu.name for gpu in facts.gpus})
    words = "-".join(re.sub(r"[^a-z0-9]+", "-", kind.lower()).strip("-") for kind in kinds)
    return f"{'mixed-' if len(kinds) > 1 else ''}{words}-x{len(facts.gpus)}".replace("nvidia-", "")[:80]


def _free(base: str, taken: set[str]) -> str:
    if base not in taken:
        return base
    return next(name for i in range(2, len(taken) + 3) if (name := f"{base}-{i}") not in taken)


def differences(recorded: HostFacts, live: HostFacts) -> list[str]:
    """What is no longer as recorded, one sentence each; the live host's engines that nobody recorded are no news."""
    if recorded.declared:
        return against_declared(recorded, live)
    old, new = stable(recorded), stable(live)
    if new.gpus is None:
        return [f"the host tells no GPUs any more: {new.gpu_error}"] if old.gpus is not None else []
    said = _gpus(old, new)
    names: dict[str, str] = {
        "driver": "driver",
        "cuda": "newest CUDA of the driver",
        "nvcc": "CUDA toolkit (nvcc)",
        "interconnect": "interconnect",
        "p2p": "peer access between GPUs",
        "rdma_nics": "RDMA devices",
        "nvswitch": "NVSwitch",
        "machine": "machine",
    }
    for field, name in names.items():
        was, now = getattr(old, field), getattr(new, field)
        if was != now:
            said.append(f"{name}: {_shown(was)} was recorded, {_shown(now)} is there")
    return said + _engines(old, new)


def _gpus(old: HostFacts, new: HostFacts) -> list[str]:
    before, after = old.gpus or (), new.gpus or ()
    said = []
    if len(before) != len(after):
        said.append(f"GPUs: {len(before)} were recorded, {len(after)} are there")
    changed: dict[str, list[int]] = {}
    for was, now in zip(before, after, strict=False):
        if (was.name, was.sm) != (now.name, now.sm):
            text = f"{was.name} (SM {was.sm}) was recorded, {now.name} (SM {now.sm}) is there"
        elif was.mig != now.mig:
            text = f"MIG is {'on' if now.mig else 'off'} now"
        elif was.memory_mib != now.memory_mib:
            text = f"{was.memory_mib} MiB were recorded, {now.memory_mib} MiB are there"
        else:
            continue
        changed.setdefault(text, []).append(now.index)
    return said + [f"GPU {span(indices)}: {text}" for text, indices in changed.items()]


def _engines(old: HostFacts, new: HostFacts) -> list[str]:
    said, there = [], {engine.venv: engine.packages for engine in new.engines}
    for engine in old.engines:
        if engine.venv not in there:
            said.append(f"engine {engine.venv}: was recorded, is not there")
            continue
        for package in sorted(engine.packages.keys() | there[engine.venv].keys()):
            was, now = engine.packages.get(package), there[engine.venv].get(package)
            if was != now:
                said.append(f"engine {engine.venv}: {package} {_shown(was)} was recorded, {_shown(now)} is there")
    return said


def against_declared(declared: HostFacts, live: HostFacts) -> list[str]:
    """What of a declaration a host does not fulfil; what was not declared does not matter."""
    if live.gpus is None:
        return [f"the host tells no GPUs: {live.gpu_error}"]
    said = []
    wanted, found = declared.gpus or (), live.gpus
    if len(wanted) > len(found):
        said.append(f"GPUs: {len(wanted)} are declared, {len(found)} are there")
    other: dict[str, list[int]] = {}
    for was, now in zip(wanted, found, strict=False):
        if was.sm != now.sm:
            text = f"SM {was.sm} ({was.name}) is declared, the host has SM {now.sm} ({now.name})"
            other.setdefault(text, []).append(now.index)
    said += [f"GPU {span(indices)}: {text}" for text, indices in other.items()]
    for field in ("driver", "cuda", "nvcc", "interconnect", "p2p", "rdma_nics"):
        was, now = getattr(declared, field), getattr(live, field)
        if was is not None and now is not None and was != now:
            said.append(f"{field}: {_shown(was)} is declared, {_shown(now)} is there")
    return said


def grave(said: Iterable[str]) -> bool:
    """Whether a difference touches what verdicts rest on most: the GPUs themselves."""
    return any(text.startswith("GPU") or "no GPUs" in text for text in said)


def _shown(value: Any) -> str:
    if value is None:
        return "none"
    return ("yes" if value else "no") if isinstance(value, bool) else str(value)
