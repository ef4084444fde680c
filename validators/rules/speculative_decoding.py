"""Speculative decoding: what it needs of the checkpoint, and of the draft's attention back end.

What is refused beside it, argument resolution says.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from validators.rules import attention_models, places
from validators.rules.context import Context
from validators.rules.interface import Evidence, Gate, Outcome, Part, Step, Value

SUBJECT = "Speculative decoding"
FLAGS = ("speculative-algorithm", "speculative-eagle-topk", "speculative-draft-attention-backend")
SITES: tuple[str, ...] = ()

FLAG, TOPK, DRAFT = FLAGS
_BACK_ENDS = (DRAFT, "decode-attention-backend", "attention-backend")  # the first that is given is the draft's
_EAGLE = ("EAGLE", "EAGLE3", "NEXTN")
_LEAVE_OUT: tuple[dict[str, Value], ...] = ({},)
# what argument resolution replaces or speaks of by itself
_NOT_OURS = ("torch_native", "flex_attention", "trtllm_mha")


def judge(c: Context) -> Iterator[Part]:
    algorithm = c.args.get(FLAG)
    if not isinstance(algorithm, str) or not c.has(FLAG):
        return
    proof = c.release.evidence(c.release.flags[FLAG].place, "--" + FLAG)
    reason = f"{c.release.version} runs {algorithm}; nothing in its argument resolution stands against these flags."
    part = Part(FLAG, Outcome.ACTIVE, reason, (proof,), (Step(Gate.RESOLUTION, True, reason, proof),))
    needs = "a draft model or a prediction head that belongs to the checkpoint"
    yield part if algorithm.upper() == "NGRAM" else replace(part, needs=(needs,))
    if algorithm.upper() in _EAGLE and c.number("speculative-num-steps", 0) > 1:  # with one step nothing is drafted
        yield from _drafts(c)


def _drafts(c: Context) -> Iterator[Part]:
    """The back end that the draft decodes with: in the release's table, and for as many candidates as are asked for."""
    flag = next((flag for flag in _BACK_ENDS if isinstance(c.args.get(flag), str) and c.has(flag)), "")
    backend = str(c.args.get(flag))
    table = places.place(c, "draft.decode")
    if not flag or backend in _NOT_OURS or places.value(c, f"alias.{backend}"):
        return
    if table is not None and backend not in places.value(c, "draft.decode").split():
        reason = f"{c.release.version} has no draft of EAGLE with attention back end {backend}, and stops."
        yield _stops(flag, reason, table)
        return
    wide = places.place(c, "draft.topk." + _drafting(c, backend))
    if wide is not None and c.number(TOPK, 1) > 1:
        reason = f"{c.release.version} drafts one candidate a step with {backend} for this model, and stops at more."
        yield _stops(TOPK, reason, wide)
        yield _stops(flag, reason, wide)


def _drafting(c: Context, backend: str) -> str:
    """The back end whose drafts are made: FlashInfer's for latent attention is a class of its own."""
    if backend == "flashinfer":
        return "flashinfer_mla" if attention_models.latent(c) else "none"
    return backend


def _stops(flag: str, reason: str, proof: Evidence) -> Part:
    return Part(flag, Outcome.FAILS, reason, (proof,), (Step(Gate.ENGINE, False, reason, proof),), instead=_LEAVE_OUT)
