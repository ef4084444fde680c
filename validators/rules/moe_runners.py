"""Runners of mixture-of-experts layers: the engine's own checks, then the kernels of the library behind the runner."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from validators.rules import constructors, deep_gemm, evaluated, experts, library, places, resolved, runner_libraries
from validators.rules.asked import LEAVE_OUT, anywhere, unread, values
from validators.rules.context import Context, checks, place
from validators.rules.interface import Evidence, Gate, Outcome, Part, Step

SUBJECT = "Runners of mixture-of-experts layers"
DRAFT = "speculative-moe-runner-backend"
# switches of older releases, each of which stands for a runner
SWITCHES = {
    "enable-flashinfer-trtllm-moe": "flashinfer_trtllm",
    "enable-flashinfer-cutlass-moe": "flashinfer_cutlass",
    "enable-flashinfer-mxfp4-moe": "flashinfer_mxfp4",
    "enable-triton-kernel-moe": "triton_kernel",
}
FLAGS = ("moe-runner-backend", DRAFT, *SWITCHES)
SITES: tuple[str, ...] = ()

_NVFP4 = "ModelOptNvFp4FusedMoEMethod.__init__"
_MXFP8 = "Fp8MoEMethod._process_mxfp8_moe_weights"
_MXFP4 = "Mxfp4MoEMethod.__init__"
_MXFP4_WEIGHTS = "Mxfp4MoEMethod.process_weights_after_loading"
_MARLIN_FP4 = "Mxfp4MarlinMoEMethod.process_weights_after_loading"
_MARLIN_LORA = "MarlinLoraRunnerCore.run_from_dispatch"
_NVFP4_ONLY = "modelopt_fp4 quantization is required for Flashinfer"
# how the source calls a runner; two experimental ones count as the kind that they are made of
_ASKED_AS = {
    "triton_kernel": "triton_kernels",
    "experimental_sgl_trtllm": "flashinfer_trtllm",
    "experimental_sgl_marlin": "marlin",
}
_NOT_FP8 = ("triton_kernels", "flashinfer_mxfp4", "cutlass")  # others go on to triton in some releases
# its expert layer names them and makes no runner of them in 0.5.16, which stopped for want of one, on an H200
_NOT_SEEN_FP8 = ("marlin", "experimental_sgl_marlin", "flashinfer_cutlass")
_NVFP4_ALONE: dict[str, bool] = {}  # by release
_MARLIN = ("marlin", "experimental_sgl_marlin")
_ELSEWHERE = ("aiter", "intel_xpu", "ascend")  # of other makers: rule `other-accelerators`


def judge(c: Context) -> Iterator[Part]:
    for flag, value in values(c, FLAGS[:2]):
        unknown = _unnamed(c, flag, value) if flag == DRAFT else None
        if unknown is not None:
            yield unknown
            continue
        if (flag != DRAFT or c.given("speculative-algorithm")) and value not in _ELSEWHERE:
            yield _judge(c, flag, value)
    for flag, runner in SWITCHES.items():
        known = c.flag(flag)
        if c.args.get(flag) is True and known is not None and not known.refused:
            yield _judge(c, flag, runner)


def _unnamed(c: Context, flag: str, runner: str) -> Part | None:
    """A name that only stands for something else with the other flag: read even where no draft is loaded."""
    table, *known = places.row(c, "runner.names")
    if table is None or not known or runner in known:
        return None
    reason = f"{c.release.version} takes {runner} for --{flag} on the command line and has no such runner."
    return Part(flag, Outcome.FAILS, reason, (table,), (Step(Gate.ENGINE, False, reason, table),), instead=LEAVE_OUT)


def _judge(c: Context, flag: str, runner: str) -> Part:
    if runner == "auto":
        return anywhere(c, flag, runner)
    if experts.none(c):
        return unread(c, flag, f"{c.arch} has no experts.", "runner.unknown")
    refused = _by_experts(c, flag, runner)
    if refused is not None:
        return refused
    asked = {
        "deep_gemm": _deep_gemm,
        "flashinfer_cutlass": runner_libraries.cutlass,
        "flashinfer_cutedsl": _cutedsl,
        "flashinfer_mxfp4": _mxfp4,
        "flashinfer_megamoe": _flashinfer_megamoe,
        "megamoe": _megamoe,
        "cutlass": _cutlass,
        "hpc_ops": _hpc_ops,
    }
    if runner in asked:
        found = asked[runner](c, flag)
    elif runner in runner_libraries.TRTLLM:
        found = runner_libraries.trtllm(c, flag, runner)
    elif runner in _MARLIN:
        found = _marlin(c, flag, runner)
    elif runner.startswith("lora_"):
        found = _adapters(c, flag)
    elif runner == "triton":
        found = anywhere(c, flag, runner)
    elif runner == "triton_kernel":
        found = anywhere(c, flag, runner, needs=("the triton_kernels package, and experts in BF16 or MXFP4",))
    else:
        found = None
    return found or c.unsure(flag, f"Where {c.release.version} runs {runner}")


def _by_experts(c: Context, flag: str, runner: str) -> Part | None:
    """What the format of the experts refuses, where it is known."""
    kind = experts.kind(c)
    if kind == experts.NVFP4 or (runner == "flashinfer_cutlass" and _for_nvfp4_alone(c)):
        found = _nvfp4(c, flag, runner)
        if found is not None:
            return found
    if kind == experts.MXFP8:
        found = constructors.part(c, flag, "the expert layers of MXFP8", _MXFP8, instead=LEAVE_OUT)
        if found is not None and found.outcome is Outcome.FAILS:
            return found
    if kind == experts.FP8 and runner in _NOT_SEEN_FP8:
        return c.unsure(flag, f"Whether {c.release.version} runs experts in FP8 by {runner}")
    if runner == "flashinfer_mxfp4" and kind != experts.MXFP4 and experts.told(c):
        return c.unsure(flag, f"What {c.release.version} makes of {runner} for experts that are not MXFP4")
    refused, *known = places.row(c, f"experts.{kind}")
    name = _ASKED_AS.get(runner, runner)
    whole = kind != experts.NVFP4 or "flashinfer_cutlass" in known  # older releases keep some of them in attributes
    if refused is None or not known or name in (*known, "humming") or not whole:
        return None
    if kind == experts.FP8 and name not in _NOT_FP8:
        return None
    reason = f"{c.release.version} has no runner {runner} for experts in {kind.upper()}, and stops for want of one."
    step = Step(Gate.MODEL, False, reason, refused)
    return Part(flag, Outcome.FAILS, reason, (refused,), (step,), instead=LEAVE_OUT)


def _for_nvfp4_alone(c: Context) -> bool:
    """Older releases take flashinfer_cutlass for no other format: argument resolution says so and stops."""
    found = _NVFP4_ALONE.get(c.release.key)
    if found is None:
        found = any(stop.text.startswith(_NVFP4_ONLY) for stop in resolved.stops(c.release))
        _NVFP4_ALONE[c.release.key] = found
    return found


def _nvfp4(c: Context, flag: str, runner: str) -> Part | None:
    """An NVFP4 checkpoint asks for Blackwell in its expert layer, unless Marlin runs it."""
    known = {"use_marlin_fallback": runner in _MARLIN}
    found = constructors.part(c, flag, f"NVFP4 experts by {runner}", _NVFP4, instead=LEAVE_OUT, known=known)
    return found if found is not None and found.outcome is Outcome.FAILS else None


def _deep_gemm(c: Context, flag: str) -> Part:
    on, proof = deep_gemm.state(c)
    if experts.integers(c):
        return c.unsure(flag, f"What {c.release.version} makes of deep_gemm for experts in {experts.method(c)}")
    if on is None:
        found = c.unsure(flag, f"Whether the DeepGEMM of {c.release.version} has kernels for SM {c.sm_text}")
        return replace(found, evidence=proof, todo=f"Leave {flag} out: the release chooses for this GPU.")
    verb = "has" if on else "does not have"
    reason = f"{c.release.version} {verb} DeepGEMM on SM {c.sm_text}."
    step = Step(Gate.LIBRARY, on, reason, proof[0])
    return Part(flag, Outcome.ACTIVE if on else Outcome.FAILS, reason, proof, (step,), instead=() if on else LEAVE_OUT)


def _cutedsl(c: Context, flag: str) -> Part | None:
    """Of NVFP4 experts only: their own check, then the wrapper of the library."""
    refused = _nvfp4(c, flag, "flashinfer_cutedsl")
    if refused is not None:
        return refused
    names = ("CuteDslMoEWrapper", "cute_dsl_fused_moe_nvfp4")
    built, proofs = next((found for name in names if (found := library.takes(c, name))[0] is not None), (None, ()))
    if built is None and c.sm[0] == 10 and constructors.stop(c, _NVFP4, use_marlin_fallback=False)[0] is False:
        row = constructors.stop(c, _NVFP4, use_marlin_fallback=False)[1]
        built, proofs = True, (place(c.release, row),) if row else ()
    return runner_libraries.answer(c, flag, "flashinfer_cutedsl", built, proofs)


def _mxfp4(c: Context, flag: str) -> Part | None:
    known = {
        "self.use_flashinfer": True,
        "self.use_marlin": False,
        "_FI_HAS_SM90_CUTLASS_MXFP4": runner_libraries.has_mixed_gemm(c),
    }
    found = constructors.part(c, flag, "runner flashinfer_mxfp4", _MXFP4, instead=LEAVE_OUT, known=known)
    # before the expert layer asked by itself, the kernel was the one of trtllm on every GPU
    return found or runner_libraries.trtllm(c, flag, "flashinfer_mxfp4")


def _cutlass(c: Context, flag: str) -> Part | None:
    known = {"get_moe_runner_backend().is_cutlass()": True}
    return constructors.part(c, flag, "runner cutlass", "Fp8MoEMethod.__init__", instead=LEAVE_OUT, known=known)


def _hpc_ops(c: Context, flag: str) -> Part | None:
    row = evaluated.site(c, "MoeRunner.__init__", "runner_backend.is_hpc_ops()")
    return evaluated.part(c, flag, "runner hpc_ops", row, instead=LEAVE_OUT) if row is not None else None


def _marlin(c: Context, flag: str, runner: str) -> Part | None:
    if experts.kind(c) == experts.MXFP4:
        last = ("self.use_marlin and not self.use_mega_moe", "self.use_marlin")
        row = next((r for one in last if (r := evaluated.site(c, _MXFP4_WEIGHTS, one))), None)
        if row is not None:
            return evaluated.part(c, flag, "MXFP4 experts by marlin", row, instead=LEAVE_OUT)
    found = _marlin_checks(c, flag)
    if found is not None or c.sm < (8, 0):
        return found
    return anywhere(c, flag, runner, needs=("experts in NVFP4, MXFP4 or 4-bit integers",))


def _marlin_checks(c: Context, flag: str) -> Part | None:
    """FP4 experts beside FP8 layers (DeepSeek V4), and experts with adapters, have checks of their own."""
    if c.arch.startswith("DeepseekV4"):
        known = {"getattr(layer, '_mega_moe_weights_built', False)": False}
        found = constructors.part(c, flag, "FP4 experts by marlin", _MARLIN_FP4, instead=LEAVE_OUT, known=known)
        if found is not None:
            return found
    row = evaluated.alone(c, _MARLIN_LORA)
    if row is not None and (c.args.get("enable-lora") is True or c.given("lora-paths")):
        found = evaluated.part(c, flag, "experts with adapters by marlin", row, instead=LEAVE_OUT)
        return found if found.outcome is Outcome.FAILS else None
    return None


def _adapters(c: Context, flag: str) -> Part | None:
    """Runners for experts with adapters ask for the GPU when the first layer is built; the flags they need, before."""
    row = evaluated.alone(c, "MoeLoraRunner._admit")
    return evaluated.part(c, flag, "experts with adapters", row, instead=LEAVE_OUT) if row is not None else None


def _flashinfer_megamoe(c: Context, flag: str) -> Part | None:
    """Its formats are NVFP4 and MXFP8, both for Blackwell; with its own all-to-all for SM 10.x alone."""
    row = evaluated.site(c, "handle_a2a_moe", 'a2a_backend == "flashinfer_megamoe"')
    if c.args.get("moe-a2a-backend") == "flashinfer_megamoe" and row is not None:
        return evaluated.part(c, flag, "flashinfer_megamoe", row, instead=LEAVE_OUT)
    return _nvfp4(c, flag, "flashinfer_megamoe")


def _megamoe(c: Context, flag: str) -> Part | None:
    """Another name of the all-to-all back end megamoe, which asks for the GPU."""
    there = Context(c.case, c.release, {**c.args, "moe-a2a-backend": "megamoe"}, c.sm_text)
    for row in checks(c.release).get("check_mega_moe_compat", ()):
        held = [there.holds(guard) for guard in row["guards"]]
        proof: Evidence = place(c.release, row)
        said = row["text"].rstrip(". ")
        if all(held):
            reason = f"{c.release.version} takes megamoe for the all-to-all back end of that name: {said}."
            step = Step(Gate.RESOLUTION, False, reason, proof)
            return Part(flag, Outcome.FAILS, reason, (proof,), (step,), instead=LEAVE_OUT)
        if False in held:
            reason = f"{c.release.version} takes megamoe for the all-to-all back end of that name on SM {c.sm_text}."
            return Part(flag, Outcome.ACTIVE, reason, (proof,), (Step(Gate.RESOLUTION, True, reason, proof),))
    return None
