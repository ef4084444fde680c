"""What was seen of one running service on one host: everything a finding may rest on, and what is missing and why."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sglfleet.verify.journal import Journal
from sglfleet.verify.trace import Trace

# server_info repeats the resolved arguments; these few the scheduler measured after it had allocated and captured
MEASURED = frozenset({"max_total_num_tokens", "max_req_input_len"})
MEASURED_INTERNAL = frozenset({
    "effective_max_running_requests_per_dp", "memory_usage", "decode_cuda_graph_bs", "decode_cuda_graph_memory_gb",
    "world_size",
})  # fmt: skip
_SAMPLE = re.compile(r"^([a-zA-Z_:][\w:]*)(\{[^}]*\})?\s+(\S+)")


@dataclass(frozen=True, slots=True)
class Seen:
    """Evidence of one service on one host. None or empty means not there; `gaps` says why, by layer."""

    journal: Journal | None = None
    info: Mapping[str, Any] | None = None  # /server_info
    argv: tuple[str, ...] | None = None  # of the main process
    env: Mapping[str, str] | None = None  # of the main process; secret values are not in it
    packages: Mapping[str, str] | None = None  # in the environment the process runs in
    metrics: Mapping[str, tuple[float, ...]] | None = None  # name -> one value per label set
    traces: tuple[Trace, ...] = ()
    controls: Mapping[str, tuple[Trace, ...]] = field(default_factory=dict)  # flag -> traces of the service without it
    responses: Mapping[str, Any] = field(default_factory=dict)  # what the server answered to our own requests
    world: int | None = None  # ranks the service has; None: read from the traces and from server_info
    gaps: Mapping[str, str] = field(default_factory=dict)  # by layer: journal, server_info, process, metrics, profile

    def ranks(self) -> tuple[int, ...]:
        """Every rank that must show what is asked of every rank."""
        told = [t.world_size for t in self.traces if t.world_size]
        info = self.info or {}
        sizes = [info.get(name) for name in ("tp_size", "pp_size")]
        product = 1
        for size in sizes:
            product *= size if isinstance(size, int) else 1
        return tuple(range(max([self.world or 1, product, *told])))

    def gap(self, layer: str, otherwise: str) -> str:
        """Why a layer is missing."""
        return self.gaps.get(layer, otherwise)


def metrics(text: str) -> dict[str, tuple[float, ...]]:
    """Prometheus text format -> values by name, labels left out."""
    out: dict[str, tuple[float, ...]] = {}
    for line in text.splitlines():
        found = _SAMPLE.match(line)
        if not found:
            continue
        try:
            value = float(found[3])
        except ValueError:
            continue
        out[found[1]] = (*out.get(found[1], ()), value)
    return out


def as_text(value: Any) -> str:
    """A JSON value as expectations write it: text bare, all else as JSON (`true`, `null`, `16`, `[1,2]`)."""
    if isinstance(value, str):
        return value
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return json.dumps(value, separators=(",", ":"), sort_keys=True)


def measured(name: str) -> bool:
    """Whether a name in server_info is measured by the scheduler rather than a resolved argument told back."""
    first, _, rest = name.partition(".")
    if first == "internal_states":
        return rest.split(".")[0] in MEASURED_INTERNAL
    return first in MEASURED


def find(info: Mapping[str, Any], name: str) -> list[Any]:
    """Values under a dotted name; a list on the way (one entry per data-parallel rank) gives all of them."""
    values: list[Any] = [info]
    for part in name.split("."):
        step: list[Any] = []
        for value in values:
            for item in value if isinstance(value, list) else [value]:
                if isinstance(item, Mapping) and part in item:
                    step.append(item[part])
        values = step
    return values
