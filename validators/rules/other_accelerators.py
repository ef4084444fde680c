"""Back ends and devices of other makers' accelerators, on a host whose GPUs are NVIDIA's."""

from __future__ import annotations

from collections.abc import Iterator

from validators.rules import places
from validators.rules.context import Context
from validators.rules.interface import Gate, Outcome, Part, Step, Value

SUBJECT = "Back ends and devices of other accelerators"
ATTENTION = (
    *("attention-backend", "prefill-attention-backend", "decode-attention-backend"),
    "speculative-draft-attention-backend",
)
_OTHER = (
    *("mm-attention-backend", "linear-attn-backend", "sampling-backend", "lora-backend", "fp8-gemm-backend"),
    *("fp4-gemm-backend", "bf16-gemm-backend", "moe-runner-backend", "speculative-moe-runner-backend"),
    *("moe-a2a-backend", "disaggregation-transfer-backend", "nsa-prefill-backend", "nsa-decode-backend"),
    *("dsa-prefill-backend", "dsa-decode-backend", "dsa-paged-mqa-logits-backend"),
)
FLAGS = (*ATTENTION, "device", *_OTHER)
SITES: tuple[str, ...] = ()
_LEAVE_OUT: tuple[dict[str, Value], ...] = ({},)

# attention back end -> (what it is for, the package it imports, what happens without it)
_ATTENTION = {
    "ascend": ("Ascend NPUs", "torch-npu", "building it imports torch_npu"),
    "aiter": (
        "AMD GPUs",
        "aiter",
        "its kernels are names of AMD's library, and the first batch meets names that are not there",
    ),
    "wave": ("AMD GPUs", "wave-lang", "building it imports wave_lang, which the release does not install"),
    "intel_amx": (
        "CPUs with AMX",
        "",
        "building it asks the kernel package for an operator that only its CPU build has",
    ),
}
MAKERS = {
    **{name: maker for name, (maker, _, _) in _ATTENTION.items()},
    "intel_xpu": "Intel GPUs",
    "ascend_attn": "Ascend NPUs",
    "ascend_fuseep": "Ascend NPUs",
    "aiter_attn": "AMD GPUs",
    "mori": "AMD GPUs",
}
_DEVICES = {"npu": "Ascend NPUs", "xpu": "Intel GPUs", "hpu": "Gaudi accelerators", "musa": "Moore Threads GPUs"}


def judge(c: Context) -> Iterator[Part]:
    for flag in (*ATTENTION, *_OTHER):
        value = c.args.get(flag)
        if isinstance(value, str) and value in MAKERS and c.has(flag):
            known = flag in ATTENTION and value in _ATTENTION
            yield _attention(c, flag, value) if known else _unsure(c, flag, value)
    device = c.args.get("device")
    if isinstance(device, str) and c.has("device") and not device.startswith("cuda"):
        yield _device(c, device)


def _attention(c: Context, flag: str, value: str) -> Part:
    maker, package, what = _ATTENTION[value]
    proof = places.place(c, f"attention.{value}")
    installed = {name.lower().replace("_", "-") for name in c.case.packages}
    if proof is None or (package and installed & {package, f"amd-{package}"}):
        return _unsure(c, flag, value)
    reason = f"Attention back end {value} is for {maker}: {what}."
    step = Step(Gate.LIBRARY, False, reason, proof)
    todo = f"Leave {flag} out: the release chooses one for this GPU."
    return Part(flag, Outcome.FAILS, reason, (proof,), (step,), todo=todo, instead=_LEAVE_OUT)


def _unsure(c: Context, flag: str, value: str) -> Part:
    proof = places.declared(c, flag)
    reason = f"{value} is for {MAKERS[value]}; what {c.release.version} does with it on an NVIDIA GPU is not known."
    todo = f"Leave {flag} out: the release chooses for this GPU."
    return Part(flag, Outcome.UNKNOWN, reason, (proof,), (Step(Gate.LIBRARY, None, reason, proof),), todo=todo)


def _device(c: Context, device: str) -> Part:
    kind = device.split(":")[0]
    proof = places.place(c, "device")
    todo = "Leave device out: it is cuda on this host."
    if kind in _DEVICES and proof is not None:
        reason = f"Device {kind} stands for {_DEVICES[kind]}; the torch of an NVIDIA host cannot set such a device."
        step = Step(Gate.LIBRARY, False, reason, proof)
        return Part("device", Outcome.FAILS, reason, (proof,), (step,), todo=todo, instead=_LEAVE_OUT)
    reason = f"What {c.release.version} does with device {device} on a host with NVIDIA GPUs is not known."
    if kind == "cpu":
        reason = "Device cpu leaves the GPUs of this host idle; what flags about GPUs do then is not known."
    proof = places.declared(c, "device")
    return Part("device", Outcome.UNKNOWN, reason, (proof,), (Step(Gate.LIBRARY, None, reason, proof),), todo=todo)
