"""Packages that must carry one version, and pins that are not the release's own."""

from __future__ import annotations

from collections.abc import Iterator

from validators.rules.context import Context
from validators.rules.interface import Evidence, Gate, Outcome, Part, Step

SUBJECT = "Package sets that must carry one version"
FLAGS: tuple[str, ...] = ()
SITES: tuple[str, ...] = ()
ALWAYS = True
WITHOUT_GPU = True
TRIO = ("flashinfer-python", "flashinfer-cubin", "flashinfer-jit-cache")


def judge(c: Context) -> Iterator[Part]:
    if not c.case.packages and not c.case.flashinfer:
        return
    packages = {name.lower().replace("_", "-").replace(".", "-"): v for name, v in c.case.packages.items()}
    if c.case.flashinfer:
        packages.setdefault("flashinfer-python", c.case.flashinfer)
    found = {name: packages[name] for name in TRIO if name in packages}
    if len({public(version) for version in found.values()}) > 1:
        shown = ", ".join(f"{name} {version}" for name, version in found.items())
        reason = f"The FlashInfer packages must carry one version; found {shown}."
        step = Step(Gate.LIBRARY, False, reason)
        todo = f"Install {' and '.join(TRIO[1:])} in the version of {TRIO[0]}."
        yield Part("packages", Outcome.FAILS, reason, steps=(step,), todo=todo, final=True, value=shown)
    pinned = c.release.flashinfer
    given = packages.get("flashinfer-python")
    if pinned and given and public(given) != public(pinned):
        proof = _pin(c)
        reason = f"{c.release.version} pins FlashInfer {pinned}; this engine has {given}."
        step = Step(Gate.LIBRARY, True, reason, proof)
        yield Part(
            "flashinfer-python", Outcome.ACTIVE, reason, (proof,), (step,), advice=True, value=given, todo="Intended?"
        )


def _pin(c: Context) -> Evidence:
    return Evidence(
        c.release.artifact.name, "METADATA", "Requires-Dist", 0, f"flashinfer-python=={c.release.flashinfer}"
    )


def public(version: str) -> str:
    """The version without its local part: 0.6.12+cu130 is 0.6.12."""
    return version.split("+")[0].strip()
