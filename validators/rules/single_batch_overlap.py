"""Single-batch overlap: releases that test the GPU for it."""

from __future__ import annotations

from collections.abc import Iterator

from validators.rules import constructors
from validators.rules.context import Context
from validators.rules.interface import Part

SUBJECT = "Single-batch overlap"
FLAGS = ("enable-single-batch-overlap",)
SITES: tuple[str, ...] = ()


def judge(c: Context) -> Iterator[Part]:
    flag = FLAGS[0]
    if c.args.get(flag) is not True or not c.has(flag):
        return
    known = {"moe.sbo_enabled": True, "get_exec().moe.enable_single_batch_overlap": True}
    built = constructors.part(c, flag, "single-batch overlap", "initialize_moe_config", instead=({},), known=known)
    if built is not None:
        yield built
