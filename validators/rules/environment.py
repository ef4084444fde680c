"""Environment variables that the release no longer reads: a setting somebody relies on and does not get."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache

from validators.case import Case
from validators.knowledge.loader import load_sglang, releases
from validators.knowledge.model import EnvVar, Sglang
from validators.rules import places
from validators.rules.context import Context
from validators.rules.interface import Evidence, Gate, Outcome, Part, Step

SUBJECT = "Environment variables that the release does not read"
FLAGS: tuple[str, ...] = ()
SITES: tuple[str, ...] = ()
ALWAYS = True
WITHOUT_GPU = True
_RENAMED = "environment.renamed"
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
        if read_as(c.release, name) in c.release.env or _written_otherwise(c, name):
            continue
        last = _last(c.release.version, name)
        near = _near(c.release, name)
        reason = f"{c.release.version} does not read {name}"
        reason += f"; the last release that did is {last[0]}." if last else ", and no older release known does."
        todo = f"Did you mean {near}? Its meaning may differ." if near else f"Remove {name}."
        proof = last[1] if last else None
        step = Step(Gate.ENGINE, False, reason, proof)
        yield Part(name, Outcome.INERT, reason, (proof,) if proof else (), (step,), todo=todo, refuse=True, value=value)


def as_read(case: Case, release: Sglang) -> Case:
    """The case with the variables that the release reads: some set every `SGL_X` as `SGLANG_X` when they are imported,
    over a `SGLANG_X` that is there."""
    renamed = {new: value for name, value in case.env.items() if (new := read_as(release, name))}
    return replace(case, env={**case.env, **renamed}) if renamed else case


def read_as(release: Sglang, name: str) -> str:
    """The name under which the release sets the variable once more, or ""."""
    return _renamed(release.version, name) if name.startswith("SGL_") else ""


def _renamed(version: str, name: str) -> str:
    old, new = places.words_of(version, _RENAMED) or ("", "")
    return new + name.removeprefix(old) if old and name.startswith(old) else ""


def _written_otherwise(c: Context, name: str) -> bool:
    """Only `as_read` put it there, or what is written under the old name counts instead: that name is spoken of."""
    return any(name == read_as(c.release, other) for other in c.case.env)


@cache
def _last(release: str, name: str) -> tuple[str, Evidence] | None:
    line = [known for known in releases() if known[:1].isdigit()]
    older = line[: line.index(release)] if release in line else []
    for known in reversed(older):
        then = load_sglang(known)
        found: EnvVar | None = then.env.get(name)
        if found:
            return known, then.evidence(found.place, name)
        if name.startswith("SGL_") and _renamed(known, name) in then.env:
            return known, places.all_of(known)[_RENAMED]
    return None


def _near(release: Sglang, name: str) -> str:
    """The closest name of this release: the same words, perhaps with ENABLE for DISABLE or SGLANG for SGL."""
    swapped = name.replace("SGL_", "SGLANG_", 1) if name.startswith("SGL_") else name
    for form in (swapped, swapped.replace("DISABLE", "ENABLE"), swapped.replace("ENABLE", "DISABLE")):
        if form in release.env:
            return form
    from difflib import get_close_matches

    return next(iter(get_close_matches(swapped, release.env, n=1, cutoff=0.85)), "")
