"""Triton's own assembler: does the one that the engine's Triton brings know the SM."""

from __future__ import annotations

import re
from collections.abc import Iterator

from packaging.version import InvalidVersion, Version

from validators.rules.context import Context
from validators.rules.interface import Evidence, Gate, Outcome, Part, Step

SUBJECT = "Triton's own assembler (ptxas) and the SM"
FLAGS: tuple[str, ...] = ()
SITES: tuple[str, ...] = ()
ALWAYS = True
# The first Triton whose wheel brings a ptxas for it; read by running the ptxas of 3.4.0, 3.5.1, 3.6.0 and 3.7.1.
_SINCE = {"10.3": ("3.6.0", "sm_103a"), "12.1": ("3.6.0", "sm_121a"), "11.0": ("3.7.0", "sm_110a")}
# What torch's METADATA pins, from the newest down: a torch from here on brings at least this Triton
_BRINGS = (("2.13", "3.7.0"), ("2.10", "3.6.0"), ("0", "3.5.1"))
_INSTEAD = ("TRITON_PTXAS_PATH", "TRITON_PTXAS_BLACKWELL_PATH")


def judge(c: Context) -> Iterator[Part]:
    since, name = _SINCE.get(c.sm_text, ("", ""))
    if not since or any(c.case.env.get(variable) for variable in _INSTEAD):
        return
    found = _version(c.case.packages.get("triton", ""))
    if found is not None:
        if found < Version(since):
            reason = (
                f"Triton {found} brings a ptxas that does not know {name}: the first kernel that Triton compiles ends "
                "the start."
            )
            yield _part(c, Outcome.FAILS, reason, since, str(found))
        return
    torch = _version(c.case.packages.get("torch", "")) or _pinned(c)
    if torch is None or _brought(torch) >= Version(since):
        return
    reason = (
        f"torch {torch} brings a Triton whose ptxas does not know {name}; whether this engine has another one is not "
        "known."
    )
    yield _part(c, Outcome.UNKNOWN, reason, since, None)


def _part(c: Context, outcome: Outcome, reason: str, since: str, value: str | None) -> Part:
    pin = c.release.pins.get("torch")
    quote = f"torch{pin.specifier}" if pin else ""
    proof = Evidence(c.release.artifact.name, "METADATA", "Requires-Dist", 0, quote)
    step = Step(Gate.LIBRARY, False if outcome is Outcome.FAILS else None, reason, proof)
    todo = f"Set TRITON_PTXAS_PATH in `env:` to the ptxas of a newer CUDA, or install Triton {since} or newer."
    return Part("triton", outcome, reason, (proof,), (step,), todo=todo, value=value)


def _pinned(c: Context) -> Version | None:
    pin = c.release.pins.get("torch")
    exact = re.fullmatch(r"==([\w.]+)", pin.specifier) if pin else None
    return _version(exact[1]) if exact else None


def _brought(torch: Version) -> Version:
    return next(Version(triton) for least, triton in _BRINGS if torch >= Version(least))


def _version(text: str) -> Version | None:
    try:
        return Version(Version(text).public)
    except InvalidVersion:
        return None
