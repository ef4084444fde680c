"""Environment variables that the release no longer reads: a setting somebody relies on and does not get."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from validators.knowledge.loader import load_sglang, releases
from validators.knowledge.model import EnvVar, Sglang
from validators.rules.context import Context
from validators.rules.interface import Evidence, Gate, Outcome, Part, Step

SUBJECT = "Environment variables that the release does not read"
FLAGS: tuple[str, ...] = ()
SITES: tuple[str, ...] = ()
ALWAYS = True
WITHOUT_GPU = True
_OURS = ("SGLANG_", "SGL_")


ARCHS = "FLASHINFER_CUDA_ARCH_LIST"


def judge(c: Context) -> Iterator[Part]:
    named = c.case.env.get(ARCHS)
    if named is not None and c.sm_text:
        reason = f"{ARCHS} names {named}: FlashInfer builds for that, whatever the GPU is; nothing is known of it here."
        step = Step(Gate.LIBRARY, None, reason)
        yield Part(ARCHS, Outcome.UNKNOWN, reason, steps=(step,), todo=f"Remove {ARCHS}.", value=named)
    for name, value in sorted(c.case.env.items()):
        if not name.startswith(_OURS) or name in c.release.env or not c.release.env:
            continue
        last = _last(c.release.version, name)
        near = _near(c.release, name)
        reason = f"{c.release.version} does not read {name}"
        reason += f"; the last release that did is {last[0]}." if last else ", and no older release known does."
        todo = f"Did you mean {near}? Its meaning may differ." if near else f"Remove {name}."
        proof = last[1] if last else None
        step = Step(Gate.PARSER, False, reason, proof)
        yield Part(name, Outcome.INERT, reason, (proof,) if proof else (), (step,), todo=todo, refuse=True, value=value)


@cache
def _last(release: str, name: str) -> tuple[str, Evidence] | None:
    line = [known for known in releases() if known[:1].isdigit()]
    older = line[: line.index(release)] if release in line else []
    for known in reversed(older):
        then = load_sglang(known)
        found: EnvVar | None = then.env.get(name)
        if found:
            return known, then.evidence(found.place, name)
    return None


def _near(release: Sglang, name: str) -> str:
    """The closest name of this release: the same words, perhaps with ENABLE for DISABLE or SGLANG for SGL."""
    swapped = name.replace("SGL_", "SGLANG_", 1) if name.startswith("SGL_") else name
    for form in (swapped, swapped.replace("DISABLE", "ENABLE"), swapped.replace("ENABLE", "DISABLE")):
        if form in release.env:
            return form
    from difflib import get_close_matches

    return next(iter(get_close_matches(swapped, release.env, n=1, cutoff=0.85)), "")
