"""A short profile through the server's own profiler, under real requests. Standard library only: also sent to hosts.

Prefill and decode are recorded apart where the release can, with a small and a large batch: some paths are taken only
below or above a batch size. Traces are reduced where they lie; they never travel.
"""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path
from typing import Any

from sglfleet.verify.client import Server
from sglfleet.verify.trace import reduce
from sglfleet.verify.workload import load

BATCHES = ((1, 48, 12), (12, 160, 12))  # requests at once, tokens in, tokens out
DIED = "the server stopped answering while it was profiled"
STEPS = 3  # forward passes recorded, per stage; without stages one prefill and some decodes are wanted


def profile(
    server: Server,
    info: dict[str, Any],
    salt: int,
    pid: int | None = None,
    folder: str = "",
    seconds: float = 50,
) -> tuple[list[dict[str, Any]], str]:
    """Reduced traces, and why there are none.

    `pid`: the server's process; its own view of the file system is used, so that a private /tmp or a container does
    not matter. `folder`: where the server may write, in its own view; default a new one below /tmp.
    """
    end = time.monotonic() + seconds
    inside = Path(folder or f"/tmp/sglfleet-profile-{salt}")  # noqa: S108 - in the server's own view, made by us, 0700
    root = Path(f"/proc/{pid}/root") if pid and Path(f"/proc/{pid}/root/tmp").is_dir() else Path("/")
    outside = root / inside.relative_to("/")
    try:
        # made by us and given to the server's user: a server that cannot write its trace dies of it
        outside.mkdir(mode=0o700, parents=True, exist_ok=False)
        if pid:
            owner = Path(f"/proc/{pid}").stat()
            os.chown(outside, owner.st_uid, owner.st_gid)
    except OSError as error:
        return [], f"the server has no folder to write a profile to ({error})"
    traces: list[dict[str, Any]] = []
    why = ""
    try:
        limit = info.get("max_running_requests")
        for number, (batch, length, tokens) in enumerate(BATCHES):
            batch = min(batch, limit) if isinstance(limit, int) and limit > 0 else batch
            target = inside / str(number)
            why = _once(server, info, target, outside / str(number), batch, length, tokens, salt + number, end)
            if not why:
                traces += reduce(outside / str(number))
            # the engine's profiler is torch's, which at times corrupts the heap and ends the server
            status = server.ask("/health", timeout=20).status
            if status == 0 or status >= 500:
                why = DIED
            if why:
                break
    finally:
        shutil.rmtree(outside, ignore_errors=True)
    good = [t for t in traces if "error" not in t]
    bad = [t["error"] for t in traces if "error" in t]
    return good, why or ("; ".join(bad) if not good else "")


def _once(
    server: Server, info: dict[str, Any], inside: Path, outside: Path,
    batch: int, length: int, tokens: int, salt: int, end: float,
) -> str:  # fmt: skip
    outside.mkdir(mode=0o700)
    owner = outside.parent.stat()
    os.chown(outside, owner.st_uid, owner.st_gid)
    activities = ["CPU"] if info.get("device") == "cpu" else ["CPU", "GPU"]
    wanted = {
        "output_dir": str(inside), "num_steps": STEPS if _by_stage(info) else 2 * STEPS, "activities": activities,
        "profile_by_stage": _by_stage(info), "with_stack": False, "record_shapes": False,
    }  # fmt: skip
    started = server.ask("/start_profile", wanted, 60)
    if started.status != 200:
        return f"/start_profile answered {started.status}: {started.body[:200].strip()}"
    statuses = load(server, batch, length, tokens, salt, timeout=max(5.0, end - time.monotonic()))
    if any(status != 200 for status in statuses):
        return f"requests under the profile were answered {sorted(set(statuses))}"
    why = _wait(outside, info, end)
    if why:
        server.ask("/stop_profile", {}, 30)  # never leave a profiler running
    return why


def _by_stage(info: dict[str, Any]) -> bool:
    """Whether stages can be told apart: the scheduler raises, and dies, on a batch that is neither of the two."""
    other = info.get("speculative_algorithm") or info.get("dllm_algorithm") or info.get("enable_mixed_chunk")
    split = info.get("disaggregation_mode") not in (None, "null")
    return not (other or split or info.get("enable_dp_attention"))


def _wait(folder: Path, info: dict[str, Any], end: float) -> str:
    """Wait until every rank has written both stages and the files no longer grow."""
    ranks = 1
    for name in ("tp_size", "pp_size"):
        size = info.get(name)
        ranks *= size if isinstance(size, int) and size > 0 else 1
    before: dict[str, int] = {}
    while time.monotonic() < end:
        now = {str(p): p.stat().st_size for p in folder.rglob("*.json*") if p.is_file()}
        if len(now) >= ranks * (2 if _by_stage(info) else 1) and now == before:
            return ""
        before = now
        time.sleep(0.5)
    return "" if before else "the server wrote no trace in time"
