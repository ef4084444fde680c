"""Earlier proofs of the same service on the same host: the service without a flag is the control for the flag. Pure.

A trace in which a kernel runs without the flag shows that the kernel does not prove the flag; one in which it runs only
without it shows that the flag removed it. The same for what the server answered.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sglfleet.verify.effective import given_flags
from sglfleet.verify.trace import Trace
from validators.verdict import Verdict

SAME = ("sglang", "torch", "flashinfer-python", "sglang-kernel", "sgl-kernel", "transformers")
IGNORED = frozenset({"host", "port", "api-key", "served-model-name", "log-level"})


def usable(raw: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Earlier proofs by the same engine with the same model, each with its flags; nearest first."""
    now = given_flags((raw.get("process") or {}).get("argv") or ())
    have = raw.get("packages") or {}
    out = []
    for record in raw.get("earlier") or ():
        packages = record.get("packages") or {}
        flags = given_flags(record.get("argv") or ())
        if any(packages.get(name) != have.get(name) for name in SAME):
            continue
        if _model(flags) != _model(now) or record.get("release") == (raw.get("manifest") or {}).get("release"):
            continue
        names = ({*flags, *now}) - IGNORED
        changed = {name for name in names if flags.get(name) != now.get(name)}
        out.append({**record, "flags": flags, "changed": changed})
    return sorted(out, key=lambda r: (len(r["changed"]), -float(r.get("time") or 0)))


def _model(flags: Mapping[str, str]) -> str:
    return flags.get("model-path") or flags.get("model") or ""


def control(verdict: Verdict, records: Sequence[Mapping[str, Any]]) -> tuple[Trace, ...]:
    """Traces of the nearest earlier release in which this flag was not given, or was given otherwise."""
    for record in records:
        if verdict.flag in record["changed"] and record.get("traces"):
            return tuple(Trace.from_json(t) for t in record["traces"])
    return ()


def reference(records: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]] | None:
    """Greedy answers of the nearest earlier release that differs in some flag."""
    for record in records:
        if record["changed"] and record.get("outputs"):
            answers: Sequence[Mapping[str, Any]] = record["outputs"]
            return answers
    return None
