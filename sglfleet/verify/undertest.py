"""Flags under test: what two measured releases differ in, and whether each was seen working.

A published comparison measured a fusion that the engine had turned off with one line in its log. So a number is given
for a flag only where the last proof of the release saw it work; where nothing that the flag does can be seen from
outside, the number stands with a remark.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from sglfleet.verify import findings_kept
from sglfleet.verify.findings import UNSEEN, Proof
from sglfleet.verify.runs import Run
from sglfleet.verify.validity import Problem
from validators.verdict import Status

NOTHING_TO_SEE = "nothing to see"
# Differ between any two releases or hosts, and are no flag under test.
ASIDE = frozenset({"host", "port", "api-key", "served-model-name", "model-path", "tokenizer-path", "log-level"})


def statuses(proofs: Iterable[Proof]) -> dict[str, str]:
    """Flag -> `proven`, `contradicted`, `not proven`, or `nothing to see`."""
    return {p.flag: _status(str(p.status), p.reason) for p in proofs}


def last(reports: Path, host: str, service: str, release: str) -> dict[str, str]:
    """What the newest kept proof of this release on this host says of its flags; empty where there is none."""
    kept = findings_kept.last(service, host, release, reports)
    return {flag: _status(str(s), kept.reason[flag]) for flag, s in kept.status.items()} if kept else {}


def _status(status: str, reason: str) -> str:
    return NOTHING_TO_SEE if status == Status.NOT_PROVEN and reason == UNSEEN else status


def between(a: Sequence[Run], b: Sequence[Run], *, fatal: bool = True) -> list[Problem]:
    """A problem for each flag in which the arms differ and that was not proven where it is given.

    `fatal` False: the releases are compared as they are, whatever their flags do.
    """
    out = []
    for flag in differing(a, b):
        for arm in (a, b):
            given = [run for run in arm if flag in run.args]
            told = {run.proofs.get(flag, "") for run in given}
            for status in sorted(told - {Status.PROVEN.value}):
                found = _problem(flag, status, given[0])
                out.append(found if fatal else replace(found, fatal=False))
    return out


def differing(a: Sequence[Run], b: Sequence[Run]) -> list[str]:
    """Flags that the arms were not given alike. Runs that do not tell their flags differ in nothing."""
    left, right = _given(a), _given(b)
    if left is None or right is None:
        return []
    return sorted(f for f in {*left, *right} - ASIDE if left.get(f) != right.get(f))


def _given(arm: Sequence[Run]) -> Mapping[str, str] | None:
    return next((run.args for run in arm if run.args), None)


def _problem(flag: str, status: str, run: Run) -> Problem:
    value = run.args[flag]
    what = f"{flag}{'' if value == 'true' else ' ' + value}"
    if status == Status.CONTRADICTED:
        return Problem("unproven", f"{what} was given and does not work: its effect cannot be measured", _WHY)
    if status == Status.NOT_PROVEN:
        text = f"{what} was not proven active: its effect cannot be measured"
        return Problem("unproven", text, f"{_WHY}; what a kernel shows needs `--profile`")
    if status == NOTHING_TO_SEE:
        text = f"{what}: nothing it does can be seen from outside, so the effect is that of giving it"
        return Problem("unseen", text, "take the number for that", fatal=False)
    return Problem("unseen", f"{what} was not looked for on this release", "`sglfleet verify` first", fatal=False)


_WHY = "`sglfleet verify` says why"
