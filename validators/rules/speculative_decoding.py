"""Speculative decoding: what argument resolution refuses of the flags that stand beside it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from validators.rules import refusals
from validators.rules.context import Context
from validators.rules.interface import Gate, Outcome, Part, Step

SUBJECT = "Speculative decoding"
FLAGS = ("speculative-algorithm", "speculative-eagle-topk", "speculative-moe-runner-backend")
SITES: tuple[str, ...] = ()

FLAG = FLAGS[0]
# newer releases check every family in a function of its own, called for that family only
_FAMILY = {
    "EAGLE": r"eagle",
    "EAGLE3": r"eagle",
    "NEXTN": r"eagle",
    "STANDALONE": r"eagle|standalone",
    "NGRAM": r"ngram",
    "DFLASH": r"dflash",
}
_COMMON = re.compile(r"^_?handle_speculative_decoding$")
_BLAME = (
    "speculative-eagle-topk",
    "speculative-moe-runner-backend",
    "speculative-num-steps",
    "speculative-draft-window-size",
    "speculative-draft-sink-size",
    "speculative-use-block-verification",
    "speculative-use-rejection-sampling",
    "pp-size",
    FLAG,
)


def judge(c: Context) -> Iterator[Part]:
    algorithm = c.args.get(FLAG)
    if not isinstance(algorithm, str) or not c.has(FLAG):
        return
    family = _FAMILY.get(algorithm.upper())
    found = list(refusals.met(c, _COMMON, _BLAME))
    if not found and family:
        found = list(refusals.met(c, re.compile(rf"^_handle_({family})"), _BLAME))
    yield from found
    if any(part.flag == FLAG for part in found):
        return
    known = c.release.flags[FLAG]
    proof = c.release.evidence(known.place, "--" + FLAG)
    if found or not (family or c.choice(FLAG, algorithm)):
        return
    reason = f"{c.release.version} runs {algorithm}; nothing in its argument resolution stands against these flags."
    part = Part(FLAG, Outcome.ACTIVE, reason, (proof,), (Step(Gate.RESOLUTION, True, reason, proof),))
    needs = "a draft model or a prediction head that belongs to the checkpoint"
    yield replace(part, needs=(needs,)) if algorithm.upper() not in ("NGRAM",) else part
