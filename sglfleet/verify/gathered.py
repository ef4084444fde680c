"""What `collect` brought back from a host -> evidence. Pure."""

from __future__ import annotations

import base64
import json
import math
import re
import zlib
from collections.abc import Mapping
from typing import Any

from sglfleet.verify.evidence import Seen, metrics
from sglfleet.verify.journal import Journal, from_journalctl, from_text
from sglfleet.verify.trace import Trace

_PREFILL = re.compile(r"Prefill batch\b.*#new-token: (\d+)")


def seen(raw: Mapping[str, Any], controls: Mapping[str, tuple[Trace, ...]] | None = None) -> Seen:
    """Evidence from one host's answer."""
    gaps = dict(raw.get("gaps") or {})
    process = raw.get("process") or {}
    journal = _journal(raw, process.get("pid"))
    if journal is not None and journal.error:
        gaps["journal"] = journal.error
    responses = dict(raw.get("responses") or {})
    _from_journal(responses, journal, gaps)
    return Seen(
        journal=journal,
        info=raw.get("server_info"),
        argv=tuple(process["argv"]) if "argv" in process else None,
        env=process.get("env"),
        packages=raw.get("packages"),
        metrics=metrics(raw["metrics"]) if raw.get("metrics") else None,
        traces=tuple(Trace.from_json(t) for t in raw.get("traces") or ()),
        controls=controls or {},
        responses=responses,
        gaps=gaps,
    )


def _journal(raw: Mapping[str, Any], pid: int | None) -> Journal | None:
    if "journal" in raw:
        return from_journalctl(raw["journal"], raw["unit"]["InvocationID"], pid)
    return from_text(raw["log"], str(raw.get("log_since") or "")) if "log" in raw else None


def _from_journal(responses: dict[str, Any], journal: Journal | None, gaps: dict[str, str]) -> None:
    """Observations that need both: what we asked, and what the scheduler wrote about it."""
    if journal is None or journal.error:
        return
    responses["requests_logged"] = journal.echoes
    length = responses.pop("long_prompt", None)
    if length is None:
        return
    sizes = [int(m[1]) for line in journal.lines if journal.trusted(line) and (m := _PREFILL.match(line.message))]
    if not sizes:
        gaps["responses.largest_prefill"] = "the journal tells no prefill batches"
    elif len(sizes) > 1 and max(sizes) < length:
        responses["largest_prefill"] = max(sizes)
        responses["long_prompt_batches"] = math.ceil(length / max(sizes))
    else:
        responses["largest_prefill"] = max(sizes)


def unpack(printed: str) -> dict[str, Any]:
    """What `collect` printed. Raises ValueError where it is not that."""
    lines = printed.strip().splitlines()
    if not lines:
        raise ValueError("nothing was printed")
    try:
        answer = json.loads(zlib.decompress(base64.b64decode(lines[-1], validate=True)))
    except zlib.error as error:
        raise ValueError(f"not an answer of ours ({error})") from error
    if not isinstance(answer, dict):
        raise ValueError("not an answer of ours")
    return answer
