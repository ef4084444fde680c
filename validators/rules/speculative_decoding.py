"""Speculative decoding: what it needs of the checkpoint. What is refused beside it, argument resolution says."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from validators.rules.context import Context
from validators.rules.interface import Gate, Outcome, Part, Step

SUBJECT = "Speculative decoding"
FLAGS = ("speculative-algorithm",)
SITES: tuple[str, ...] = ()

FLAG = FLAGS[0]


def judge(c: Context) -> Iterator[Part]:
    algorithm = c.args.get(FLAG)
    if not isinstance(algorithm, str) or not c.has(FLAG):
        return
    proof = c.release.evidence(c.release.flags[FLAG].place, "--" + FLAG)
    reason = f"{c.release.version} runs {algorithm}; nothing in its argument resolution stands against these flags."
    part = Part(FLAG, Outcome.ACTIVE, reason, (proof,), (Step(Gate.RESOLUTION, True, reason, proof),))
    needs = "a draft model or a prediction head that belongs to the checkpoint"
    yield part if algorithm.upper() == "NGRAM" else replace(part, needs=(needs,))
