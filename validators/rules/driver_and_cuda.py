"""Driver and CUDA: what the SM needs, and what the engine's own torch needs."""

from __future__ import annotations

import re
from collections.abc import Iterator

from validators.rules.context import Context, place
from validators.rules.interface import Evidence, Gate, Outcome, Part, Step

SUBJECT = "Driver and CUDA minimum"
FLAGS: tuple[str, ...] = ()
SITES: tuple[str, ...] = ()
ALWAYS = True


def judge(c: Context) -> Iterator[Part]:
    have = _pair(c.case.cuda)
    if have is None:
        return
    known = c.flashinfer
    least = known.cuda_min.get(c.sm_text, "") or known.cuda_min.get(f"{c.sm_text}a", "") if known else ""
    proof = Evidence(known.artifact.name, "flashinfer/compilation_context.py") if known and least else None
    least, proof = (least, proof) if least else _of_the_engine(c)
    need = _pair(least)
    if need and have < need:
        reason = f"The driver runs CUDA up to {c.case.cuda}; code for SM {c.sm_text} needs {least}."
        yield _part(c, reason, proof, f"Install a driver for CUDA {least} or newer.")
    torch = re.search(r"\+cu(\d+)(\d)$", c.case.packages.get("torch", ""))
    if torch and have[0] < int(torch[1]):
        wants = f"{torch[1]}.{torch[2]}"
        reason = f"This torch is built for CUDA {wants}; the driver runs CUDA up to {c.case.cuda}."
        yield _part(c, reason, None, f"Install a driver for CUDA {torch[1]}.0 or newer, or a torch for CUDA {have[0]}.")
    if not torch:
        yield from _made_for(c, have[0])


def _of_the_engine(c: Context) -> tuple[str, Evidence | None]:
    """The CUDA from which on the engine's own tests of Blackwell hold; below it no code for these GPUs exists."""
    rows = {row["name"]: row for row in c.release.gates.get("predicates", ()) if row.get("cuda")}
    row = rows.get(f"is_sm{c.sm[0]}0_supported") or rows.get("is_sm100_supported")
    return (str(row["cuda"]), place(c.release, row)) if row and c.sm[0] >= 10 else ("", None)


def _made_for(c: Context, have: int) -> Iterator[Part]:
    """Nobody said which torch the engine has; the release says which CUDA its packages are made for."""
    pin = c.release.pins.get("cuda-python")
    wants = re.match(r"[=>]=(\d+)", pin.specifier) if pin else None
    if wants is None or have >= int(wants[1]):
        return
    proof = Evidence(
        c.release.artifact.name, "METADATA", "Requires-Dist", 0, f"cuda-python{pin.specifier if pin else ''}"
    )
    reason = (
        f"{c.release.version} is made for CUDA {wants[1]}, and the driver runs CUDA up to {c.case.cuda}: whether the "
        "torch of this engine starts on it is not known."
    )
    step = Step(Gate.LIBRARY, None, reason, proof)
    todo = f"Install a driver for CUDA {wants[1]}.0 or newer, or a torch for CUDA {have}."
    value = c.case.driver or c.case.cuda
    yield Part("driver", Outcome.UNKNOWN, reason, (proof,), (step,), todo=todo, value=value)


def _part(c: Context, reason: str, proof: Evidence | None, todo: str) -> Part:
    step = Step(Gate.LIBRARY, False, reason, proof)
    evidence = (proof,) if proof else ()
    value = c.case.driver or c.case.cuda
    return Part("driver", Outcome.FAILS, reason, evidence, (step,), todo=todo, final=True, value=value)


def _pair(text: str) -> tuple[int, int] | None:
    match = re.match(r"(\d+)\.(\d+)", text or "")
    return (int(match[1]), int(match[2])) if match else None
