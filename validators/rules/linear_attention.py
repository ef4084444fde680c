"""Kernels of linear attention (GDN, KDA): the only check that is met for certain stands in FlashInfer's KDA prefill."""

from __future__ import annotations

from collections.abc import Iterator

from validators.rules import constructors
from validators.rules.context import Context
from validators.rules.interface import Gate, Outcome, Part, Step, Value

SUBJECT = "Kernels of linear attention"
FLAGS = ("linear-attn-backend", "linear-attn-prefill-backend", "linear-attn-decode-backend")
SITES: tuple[str, ...] = ()

_KDA = ("Kimi",)  # architectures whose linear layers are KDA
_LEAVE_OUT: tuple[dict[str, Value], ...] = ({},)


def judge(c: Context) -> Iterator[Part]:
    for flag in FLAGS:
        value = c.args.get(flag)
        if isinstance(value, str) and c.has(flag):
            yield _judge(c, flag, value)


def _judge(c: Context, flag: str, value: str) -> Part:
    if value == "triton":
        proof = c.release.evidence(c.release.flags[flag].place, "--" + flag)
        reason = f"{c.release.version} runs triton for linear attention on every GPU."
        return Part(flag, Outcome.ACTIVE, reason, (proof,), (Step(Gate.PARSER, True, reason, proof),))
    prefill = flag == FLAGS[1] or (flag == FLAGS[0] and not c.given(FLAGS[1]))
    if value == "flashinfer" and prefill and c.arch.startswith(_KDA):
        found = constructors.part(
            c, flag, "FlashInfer's KDA prefill", "FlashInferKDAPrefillKernel.__init__", instead=_LEAVE_OUT
        )
        if found is not None:
            return found
    return c.unsure(flag, f"Where {c.release.version} runs {value} for linear attention")
