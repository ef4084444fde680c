"""Prefill-decode multiplexing: the table of multiprocessor splits ends at SM 9."""

from __future__ import annotations

from collections.abc import Iterator

from validators.rules import constructors
from validators.rules.context import Context
from validators.rules.interface import Part

SUBJECT = "Prefill-decode multiplexing (pdmux)"
FLAGS = ("enable-pdmux",)
SITES: tuple[str, ...] = ()


def judge(c: Context) -> Iterator[Part]:
    if c.args.get("enable-pdmux") is not True or not c.has("enable-pdmux"):
        return
    built = constructors.part(c, "enable-pdmux", "the stream groups of pdmux", "get_arch_constraints", instead=({},))
    yield built or c.unsure("enable-pdmux", f"Which GPUs {c.release.version} splits for pdmux")
