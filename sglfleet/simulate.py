"""Answers of the collector for hosts that do not exist: `@fake` hosts of demos and tests.

fake = {"fake_responses": {facts.MARKER: simulate.answer("h100 x8")}, "fake_delay": 0}
"""

from __future__ import annotations

import json
from typing import Any

from validators.facts import Gpu, HostFacts
from validators.hardware import declared

_LINK = {"nvswitch": "NV18", "nvlink": "NV18", "pcie": "NODE", None: "NODE"}


def answer(profile: Any, *, models: tuple[str, ...] = (), venvs: dict[str, dict[str, str]] | None = None) -> str:
    """What the collector would print on a host with this hardware, healthy and idle.

    `profile` is as in inventories: `h100 x8`, or a mapping with `driver`, `cuda` … `models` are complete there.
    """
    facts = declared("", profile)
    cards = facts.gpus or ()
    driver, cuda = facts.driver or "580.159.04", facts.cuda or "13.0"
    return json.dumps(
        {
            "schema_version": 1,
            "root": True,
            "machine": "x86_64",
            "boot_id": "simulated",
            "uptime": 86400.0,
            "smi": {
                "path": "/usr/bin/nvidia-smi",
                "xml": [0, _xml(cards, driver, cuda, facts)],
                "cap": [0, "\n".join(f"{gpu.index}, {_uuid(gpu)}, {gpu.sm}" for gpu in cards)],
                "topo": [0, _matrix(len(cards), _LINK[facts.interconnect])],
                "p2p": [0, _matrix(len(cards), "NS" if facts.p2p is False else "OK")],
            },
            "nvcc": [0, f"Cuda compilation tools, release {facts.nvcc or cuda}, V{facts.nvcc or cuda}.1"],
            "nvswitch": 4 if facts.interconnect == "nvswitch" else 0,
            "xid": [],
            "rdma": {"nics": facts.rdma_nics or 0, "active": facts.rdma_nics or 0},
            "venvs": {venv: [packages, f"{venv}/bin/python"] for venv, packages in (venvs or {}).items()},
            "uv": "/usr/local/bin/uv",
            "units": {},
            "own": {},
            "processes": {"ports": {}, "sglang": [], "who": {}},
            "models": [
                {"path": path, "exists": True, "missing": [], "bytes": 1, "unreadable": "", "config": None}
                for path in models
            ],
            "disk": {"/var/lib/sglfleet": 500 * 1024**3},
            "memory_mib": 1024 * 1024,
        }
    )


def _uuid(gpu: Gpu) -> str:
    return f"GPU-00000000-0000-4000-8000-{gpu.index:012d}"


def _xml(cards: tuple[Gpu, ...], driver: str, cuda: str, facts: HostFacts) -> str:
    fabric = "Completed" if facts.interconnect == "nvswitch" else "N/A"
    body = "".join(
        f"<gpu id='00000000:{gpu.index + 1:02X}:00.0'><product_name>{gpu.name}</product_name><uuid>{_uuid(gpu)}</uuid>"
        f"<persistence_mode>Enabled</persistence_mode><mig_mode><current_mig>Disabled</current_mig></mig_mode>"
        f"<fb_memory_usage><total>{gpu.memory_mib or 81920} MiB</total><used>0 MiB</used></fb_memory_usage>"
        f"<fabric><state>{fabric}</state></fabric><processes></processes></gpu>"
        for gpu in cards
    )
    head = f"<driver_version>{driver}</driver_version><cuda_version>{cuda}</cuda_version>"
    return f"<nvidia_smi_log>{head}{body}</nvidia_smi_log>"


def _matrix(count: int, link: str) -> str:
    rows = ["\t" + "\t".join(f"GPU{i}" for i in range(count))]
    rows += [f"GPU{i}\t" + "\t".join("X" if i == j else link for j in range(count)) for i in range(count)]
    return "\n".join(rows)
