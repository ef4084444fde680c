"""Packages that a release refuses to start with when they are older than it says."""

from __future__ import annotations

from collections.abc import Iterator

from packaging.version import InvalidVersion, Version

from validators.rules import places
from validators.rules.context import Context
from validators.rules.interface import Gate, Outcome, Part, Step

SUBJECT = "Packages older than the release starts with"
FLAGS: tuple[str, ...] = ()
SITES: tuple[str, ...] = ()
ALWAYS = True
_STAGES_COUNT = Version("0.5.18")  # from here on the back ends of the stages are asked, before it the common flag alone
SKIP = "SGLANG_SKIP_SGL_KERNEL_VERSION_CHECK"
PLAIN = ("LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM")  # no choice of their own
_STAGES = ("attention-backend", "prefill-attention-backend", "decode-attention-backend")


def judge(c: Context) -> Iterator[Part]:
    if not c.case.packages and not c.case.flashinfer:
        return
    packages = {name.lower().replace("_", "-").replace(".", "-"): v for name, v in c.case.packages.items()}
    if c.case.flashinfer:
        packages["flashinfer-python"] = c.case.flashinfer
    for name in ("flashinfer-python", "sgl-kernel", "sglang-kernel"):
        least = places.value(c, f"minimum.{name}")
        if least and name in packages and _older(packages[name], least):
            yield _part(c, name, packages[name], least)


def _older(version: str, least: str) -> bool:
    try:
        return Version(version) < Version(least)
    except InvalidVersion:
        return False


def _part(c: Context, name: str, version: str, least: str) -> Part:
    proof = places.place(c, f"minimum.{name}")
    evidence = (proof,) if proof else ()
    todo = f"Install {name} {least} or newer: {c.release.version} pins {c.release.pin(name) or least}."
    asked = True if name != "flashinfer-python" else _flashinfer(c)
    skipped = c.case.env.get(SKIP, "").lower() in ("1", "true")
    if asked and not skipped:
        reason = f"{c.release.version} starts with {name} {least} or newer; this engine has {version}."
        step = Step(Gate.LIBRARY, False, reason, proof)
        return Part(name, Outcome.FAILS, reason, evidence, (step,), todo=todo, final=True, value=version)
    why = f"{SKIP} turns the check off" if skipped else "the check is made where FlashInfer's attention is used"
    reason = f"{c.release.version} is made for {name} {least} or newer, and this engine has {version}: {why}."
    step = Step(Gate.LIBRARY, None, reason, proof)
    return Part(name, Outcome.UNKNOWN, reason, evidence, (step,), todo=todo, value=version)


def _flashinfer(c: Context) -> bool:
    """Is FlashInfer's attention asked for: by a flag, or because the release picks it on this SM."""
    common, *stages = (c.args.get(flag) for flag in _STAGES)
    if common == "flashinfer":
        return not all(stages)
    if "flashinfer" in stages:
        return Version(c.release.version) >= _STAGES_COUNT
    if common or any(stages):
        return False
    if c.arch not in PLAIN:
        return False
    tables = c.release.gates.get("tables") or {}
    kind = {True: "mla", False: "mha"}.get(c.holds("runner.use_mla_backend"), "")  # type: ignore[arg-type]
    row = tables.get(f"attention.default.{kind}") if isinstance(tables, dict) else None
    return row is not None and row["by_sm"].get(c.sm_text) == "flashinfer"
