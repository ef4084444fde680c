"""Kernels of linear attention (GDN, KDA): what the dispatcher of the model's kind takes, and what its kernels ask."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from validators.rules import attention_models, constructors, places
from validators.rules.asked import values
from validators.rules.context import Context, checks, place
from validators.rules.hybrid_attention import GDN, KDA
from validators.rules.interface import Evidence, Gate, Outcome, Part, Step, Value

SUBJECT = "Kernels of linear attention"
STAGES = {
    "linear-attn-backend": ("decode", "prefill"),
    "linear-attn-prefill-backend": ("prefill",),
    "linear-attn-decode-backend": ("decode",),
    "linear-attn-verify-backend": ("verify",),
}
FLAGS = tuple(STAGES)
COMMON = "linear-attn-backend"
_OWNERS = ("self", "resolving_view(server_args)", "cfg")
SITES: tuple[str, ...] = ()
_LEAVE_OUT: tuple[dict[str, Value], ...] = ({},)
# kernel class -> function whose test of the GPU is met when it is built
_CONSTRUCTED = {"FlashInferKDAPrefillKernel": "FlashInferKDAPrefillKernel.__init__"}
# kernels that the engine's own recipes use, by class: SM majors
_USED_ON = {
    "FlashInferGDNKernel": (9, 10),
    "FlashInferKDAKernel": (10,),
    "CuteDSLGDNKernel": (9, 10, 11, 12),
    "CuteDSLKDAKernel": (9, 10, 11, 12),
    "FlashInferKDAPrefillKernel": (10,),
    "NvidiaKDAKernel": (10,),
    "PtxKDAKernel": (10,),
}
_SM_ARCHS = "10.0 10.3"  # of `linear/kda_ptx_prefill`, a table beside the kernel, from 0.5.22 on
_PACKAGES = {"helion": "helion", "flashkda": "flash-kda"}


def judge(c: Context) -> Iterator[Part]:
    for flag, value in values(c, FLAGS):
        yield _judge(c, flag, value)


def _judge(c: Context, flag: str, value: str) -> Part:
    stopped = _resolution(c, flag, value)
    if stopped is not None:
        return stopped
    asked = places.place(c, "linear.asked")
    if asked is not None and attention_models.full(c):
        reason = f"{c.arch} has no linear attention, and {c.release.version} builds no kernels for it."
        step = Step(Gate.MODEL, False, reason, asked)
        return Part(flag, Outcome.INERT, reason, (asked,), (step,), instead=_LEAVE_OUT)
    if value == "triton":
        proof = places.declared(c, flag)
        reason = f"{c.release.version} runs triton for linear attention on every GPU."
        return Part(flag, Outcome.ACTIVE, reason, (proof,), (Step(Gate.PARSER, True, reason, proof),))
    kind = "gdn" if c.arch.startswith(GDN) else "kda" if c.arch.startswith(KDA) else ""
    found = [_stage(c, flag, kind, stage, value) for stage in _decides(c, flag, value)] if kind else []
    for outcome in (Outcome.FAILS, None, Outcome.ACTIVE, Outcome.ALTERED):  # in one stage is active
        for part in found:
            if (part.outcome if part is not None else None) is outcome:
                return part or c.unsure(flag, f"Where {c.release.version} runs {value} for linear attention")
    return c.unsure(flag, f"Where {c.release.version} runs {value} for linear attention")


def _decides(c: Context, flag: str, value: str) -> list[str]:
    """Stages that the flag decides: each has a flag of its own, and FlashKDA is for prefill only."""
    if flag != COMMON:
        return list(STAGES[flag])
    own = ("decode",) if value == "flashkda" else ()
    return [stage for stage in STAGES[flag] if stage not in own and not c.given(f"linear-attn-{stage}-backend")]


def _resolution(c: Context, flag: str, value: str) -> Part | None:
    """Argument resolution, for any model: FlashInfer's kernels on SM 10.x and newer need another type of state."""
    symbol = "_handle_linear_attn_backend"
    rows = [row for name in (symbol, symbol[1:]) for row in checks(c.release).get(name, ())]
    given = {
        f"linear_attn_{stage}_backend": c.args.get(f"linear-attn-{stage}-backend") for stage in ("decode", "verify")
    }
    decode = given["linear_attn_decode_backend"] or c.args.get(COMMON)
    verify = given["linear_attn_verify_backend"] or ("flashinfer" if decode == "flashinfer" else None)
    fields = {**given, "linear_attn_backend": c.args.get(COMMON), "mamba_ssm_dtype": c.args.get("mamba-ssm-dtype")}
    known: dict[str, Any] = {f"{owner}.{name}": one for owner in _OWNERS for name, one in fields.items()}
    known["torch.cuda.is_available()"] = True
    concerned = {"verify": verify if flag == "linear-attn-verify-backend" else None}
    common = flag == COMMON and given["linear_attn_decode_backend"] is None
    concerned["decode"] = decode if common or flag == "linear-attn-decode-backend" else None
    for row in rows:
        stage = next((s for s in ("decode", "verify") if row["text"].startswith(f"--linear-attn-{s}-")), "")
        if not stage or concerned[stage] != value:
            continue
        if all(c.holds(guard, decode=decode, verify=verify, **known) for guard in row["guards"]):
            proof = place(c.release, row)
            reason = f"{c.release.version} stops the start on SM {c.sm_text}: {row['text'].removesuffix(', got')}."
            return _part(flag, False, reason, proof, Gate.RESOLUTION)
    return None


def _stage(c: Context, flag: str, kind: str, stage: str, value: str) -> Part | None:
    """What the dispatcher and the kernel make of a back end in one stage; None where they do not decide it."""
    name = f"linear.{kind}.{stage}.{value}"
    proof = places.place(c, name) or places.place(c, f"linear.{kind}.{stage}.others")
    if proof is None:
        return None
    said = places.words(c, name)
    if not said or said[0] == "refuses":
        reason = f"{c.release.version} takes no {value} for {stage} of {kind.upper()}, and stops when it builds it."
        return _part(flag, False, reason, proof, Gate.ENGINE)
    kernel, _, fallback = said[1].partition(" ") if len(said) > 1 else ("", "", "")
    package = places.place(c, f"linear.package.{value}")
    if value == "helion" and package is not None and not _installed(c, value):
        reason = f"{c.release.version} imports helion for it when it builds it, and does not install it."
        return _part(flag, False, reason, package, Gate.LIBRARY)
    supports = " ".join(places.words(c, f"linear.supports.{kernel}")).replace("SM_ARCHS", _SM_ARCHS).split()
    if fallback and supports and c.sm_text not in supports:
        shown = ", ".join(supports)
        reason = f"{c.release.version} has {stage} by {value} on SM {shown}, and takes triton on SM {c.sm_text}."
        step = Step(Gate.ENGINE, False, reason, proof)
        return Part(flag, Outcome.ALTERED, reason, (proof,), (step,), becomes="triton", instead=({flag: "triton"},))
    if fallback and c.sm[0] != 10:
        return None  # its class takes the GPU; whether the instructions it is made of are there was not read
    return _kernel(c, flag, value, stage, kernel, proof)


def _kernel(c: Context, flag: str, value: str, stage: str, kernel: str, proof: Evidence) -> Part | None:
    if kernel in _CONSTRUCTED:
        what = f"{value} for {stage} of linear attention"
        return constructors.part(c, flag, what, _CONSTRUCTED[kernel], instead=_LEAVE_OUT)
    least = places.place(c, f"linear.kernel.{kernel}")
    if least is not None and c.sm[0] < int(places.value(c, f"linear.kernel.{kernel}")):
        reason = f"{c.release.version} has FlashInfer's kernels of linear attention from SM "
        reason += f"{places.value(c, f'linear.kernel.{kernel}')}.0 on, and stops when it builds them on SM {c.sm_text}."
        return _part(flag, False, reason, least, Gate.ENGINE)
    if c.sm[0] in _USED_ON.get(kernel, ()):
        reason = f"{c.release.version} runs {stage} of linear attention by {value} on SM {c.sm_text}."
        return _part(flag, True, reason, proof, Gate.ENGINE)
    return None


def _installed(c: Context, value: str) -> bool:
    package = _PACKAGES[value]
    names = {name.lower().replace("_", "-") for name in (*c.case.packages, *c.release.pins)}
    return package in names


def _part(flag: str, runs: bool, reason: str, proof: Evidence, gate: Gate) -> Part:
    step = Step(gate, runs, reason, proof)
    if runs:
        return Part(flag, Outcome.ACTIVE, reason, (proof,), (step,))
    return Part(flag, Outcome.FAILS, reason, (proof,), (step,), instead=_LEAVE_OUT)
