"""Back ends and devices of other makers' accelerators, on a host whose GPUs are NVIDIA's."""

from __future__ import annotations

from collections.abc import Iterator

from validators.rules import experts, places
from validators.rules.asked import LEAVE_OUT, values
from validators.rules.context import Context
from validators.rules.interface import Evidence, Gate, Outcome, Part, Step
from validators.rules.package_minimums import PLAIN

SUBJECT = "Back ends and devices of other accelerators"
ATTENTION = (
    *("attention-backend", "prefill-attention-backend", "decode-attention-backend"),
    "speculative-draft-attention-backend",
)
_RUNNERS = ("moe-runner-backend", "speculative-moe-runner-backend")
_SPARSE = ("nsa-prefill-backend", "nsa-decode-backend", "dsa-prefill-backend", "dsa-decode-backend")
_OTHER = (
    *("mm-attention-backend", "linear-attn-backend", "sampling-backend", "lora-backend"),
    *("fp4-gemm-backend", "bf16-gemm-backend", *_RUNNERS),
    *("moe-a2a-backend", "disaggregation-transfer-backend", *_SPARSE, "dsa-paged-mqa-logits-backend"),
)
FLAGS = (*ATTENTION, "device", *_OTHER)
SITES: tuple[str, ...] = ()

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
    "intel_xpu": ("Intel GPUs", "", "building it imports a name of the kernel package that only its XPU build has"),
}
# the place that stops any other use -> the package that would change that, and what happens without it
_STOPS = {
    "mm.ascend_attn": ("", "the encoder's attention layer refuses any other device"),
    "mm.aiter_attn": ("", "the encoder's attention layer refuses any other device"),
    "mm.amx_attn": ("", "the encoder's attention layer refuses any other device"),
    "mm.xpu_attn": ("", "the encoder's attention layer refuses any other device"),
    "sampling.ascend": ("torch-npu", "the first request that is sampled meets torch_npu, which is not there"),
    "lora.ascend": ("torch-npu", "its kernels are operators that only torch_npu has"),
    "a2a.mori": ("mori", "an expert layer asks for AMD's library when it is built"),
    "dsa.aiter": ("aiter", "its kernels are names of AMD's library, which is imported on AMD GPUs alone"),
    "transfer.mori": ("mori", "the first rank imports AMD's library"),
    "transfer.ascend": ("memfabric-hybrid", "building it raises what the import of its library met"),
    "runner.aiter": ("aiter", "the first batch imports AMD's library"),
}
_KINDS = {
    "mm-attention-backend": "mm",
    "sampling-backend": "sampling",
    "lora-backend": "lora",
    "moe-a2a-backend": "a2a",
    "disaggregation-transfer-backend": "transfer",
    **dict.fromkeys(_SPARSE, "dsa"),
    **dict.fromkeys(_RUNNERS, "runner"),
}
MAKERS = {
    **{name: maker for name, (maker, _, _) in _ATTENTION.items()},
    "xpu_attn": "Intel GPUs",
    "amx_attn": "CPUs with AMX",
    "ascend_attn": "Ascend NPUs",
    "ascend_fuseep": "Ascend NPUs",
    "aiter_attn": "AMD GPUs",
    "mori": "AMD GPUs",
}
SPARSE = ("DeepseekV32ForCausalLM", "GlmMoeDsaForCausalLM")
_DEVICES = {"npu": "Ascend NPUs", "xpu": "Intel GPUs", "hpu": "Gaudi accelerators", "musa": "Moore Threads GPUs"}


def judge(c: Context) -> Iterator[Part]:
    for flag, value in values(c, (*ATTENTION, *_OTHER)):
        if value in MAKERS and not (flag.startswith("speculative-moe") and not c.given("speculative-algorithm")):
            known = flag in ATTENTION and value in _ATTENTION
            yield _attention(c, flag, value) if known else _other(c, flag, value)
    device = c.args.get("device")
    if isinstance(device, str) and c.has("device") and not device.startswith("cuda"):
        yield _device(c, device)


def _installed(c: Context, package: str) -> bool:
    installed = {name.lower().replace("_", "-") for name in c.case.packages}
    return bool(package and installed & {package, f"amd-{package}"})


def _attention(c: Context, flag: str, value: str) -> Part:
    maker, package, what = _ATTENTION[value]
    proof = places.place(c, f"attention.{value}")
    if proof is None or _installed(c, package):
        return _unsure(c, flag, value)
    return _stops(c, flag, f"Attention back end {value} is for {maker}: {what}.", proof)


def _other(c: Context, flag: str, value: str) -> Part:
    name = f"{_KINDS.get(flag, '')}.{value}"
    package, what = _STOPS.get(name, ("", ""))
    proof = places.place(c, name) if what else None
    if proof is None or _installed(c, package) or not _met(c, flag):
        return _unsure(c, flag, value)
    return _stops(c, flag, f"{value} is for {MAKERS[value]}: {what}.", proof)


def _met(c: Context, flag: str) -> bool:
    """Is what the flag belongs to there at all."""
    if flag == "lora-backend":
        return bool(c.args.get("enable-lora") or c.args.get("lora-paths"))
    if flag == "mm-attention-backend":
        return c.arch not in PLAIN
    if flag in _SPARSE:
        return c.arch in SPARSE or "index_topk" in c.case.checkpoint
    if flag == "disaggregation-transfer-backend":
        return c.args.get("disaggregation-mode") in ("prefill", "decode")
    if flag in _RUNNERS:
        return experts.kind(c) == experts.FP8  # experts in BF16 go to triton instead, without a word
    return True


def _stops(c: Context, flag: str, reason: str, proof: Evidence) -> Part:
    step = Step(Gate.LIBRARY, False, reason, proof)
    todo = f"Leave {flag} out: the release chooses one for this GPU."
    return Part(flag, Outcome.FAILS, reason, (proof,), (step,), todo=todo, instead=LEAVE_OUT)


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
        return Part("device", Outcome.FAILS, reason, (proof,), (step,), todo=todo, instead=LEAVE_OUT)
    reason = f"What {c.release.version} does with device {device} on a host with NVIDIA GPUs is not known."
    if kind == "cpu":
        reason = "Device cpu leaves the GPUs of this host idle; what flags about GPUs do then is not known."
    proof = places.declared(c, "device")
    return Part("device", Outcome.UNKNOWN, reason, (proof,), (Step(Gate.LIBRARY, None, reason, proof),), todo=todo)
