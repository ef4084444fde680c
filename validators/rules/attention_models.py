"""Attention back ends that are made for some models only: what a release does with any other model."""

from __future__ import annotations

from collections.abc import Callable

from validators.rules import atoms, places
from validators.rules.context import Context
from validators.rules.interface import Gate, Outcome, Part, Step, Value

# models of ordinary attention throughout: nothing sparse, latent, linear or split in them, whatever their files say
ORDINARY = (
    *("LlamaForCausalLM", "MistralForCausalLM", "MixtralForCausalLM", "GptOssForCausalLM", "Gemma2ForCausalLM"),
    *("Gemma3ForCausalLM", "PhiForCausalLM", "Phi3ForCausalLM", "Glm4ForCausalLM", "Glm4MoeForCausalLM"),
    *("Qwen2ForCausalLM", "Qwen2MoeForCausalLM", "Qwen3ForCausalLM", "Qwen3MoeForCausalLM", "InternLM2ForCausalLM"),
)
_DEEPSEEK_TEXT = ("DeepseekV2ForCausalLM", "DeepseekV3ForCausalLM", "DeepseekV32ForCausalLM", "DeepseekV4ForCausalLM")
_SPLIT_IN_CHUNKS = ("Qwen",)  # families of which some checkpoints have dual_chunk_attention_config
SPARSE_GLM = ("GlmMoeDsaForCausalLM",)


def latent(c: Context) -> bool | None:
    """Has the model multi-head latent attention (MLA)."""
    held = c.holds("runner.use_mla_backend")
    return held if held is not None or c.arch not in ORDINARY else False


def sparse(c: Context) -> bool | None:
    """Has the model DeepSeek's sparse attention; None where its files could give it an indexer."""
    if atoms.value(c, "is_deepseek_dsa(x)") is True:
        return True
    return False if latent(c) is False or c.case.checkpoint else None


def full(c: Context) -> bool:
    """Surely no layer of linear attention and no image encoder: those of ordinary attention, and DeepSeek's of text."""
    return c.arch in ORDINARY or c.arch in _DEEPSEEK_TEXT


def _not_sparse(c: Context) -> bool:
    # an architecture of its own has it: a DeepSeek V3 without `index_topk` in its configuration is refused
    return bool(c.arch) and atoms.value(c, "is_deepseek_dsa(x)") is False


def _not_v4(c: Context) -> bool:
    return bool(c.arch) and not c.arch.startswith("DeepseekV4") and (latent(c) is not None)


def _not_chunked(c: Context) -> bool:
    if "dual_chunk_attention_config" in c.case.checkpoint or not c.arch:
        return False
    return not c.arch.startswith(_SPLIT_IN_CHUNKS) and latent(c) is not None


def _ordinary_or_latent(c: Context) -> bool:
    return c.arch in ORDINARY or latent(c) is True


def own(c: Context, backend: str) -> bool:
    """Is it the back end that releases pick for this model and no other."""
    if backend in ("dsa", "nsa"):
        return sparse(c) is True
    return backend == "dsv4" and c.arch.startswith("DeepseekV4")


def _without_indexer(c: Context) -> bool:
    return c.arch in ORDINARY or (latent(c) is True and sparse(c) is False) or c.arch == "DeepseekV3ForCausalLM"


# back end -> is the model surely not one of its models, the place that stops it, what it is for
_MADE_FOR: dict[str, tuple[Callable[[Context], bool], str, str]] = {
    "flashmla": (lambda c: latent(c) is False, "flashmla", "models with latent attention (MLA), and reads their rank"),
    "cutlass_mla": (lambda c: latent(c) is False, "cutlass_mla", "models with latent attention, and reads their rank"),
    "dsa": (_not_sparse, "dsa", "models with DeepSeek's sparse attention"),
    "nsa": (_not_sparse, "dsa", "models with DeepSeek's sparse attention"),
    "dsv4": (_not_v4, "dsv4", "DeepSeek V4"),
    "dual_chunk_flash_attn": (_not_chunked, "dual_chunk_flash_attn", "checkpoints with dual_chunk_attention_config"),
    "minicpm_flashattn": (_ordinary_or_latent, "minicpm", "MiniCPM with sparse attention"),
    "minicpm_flashinfer": (_ordinary_or_latent, "minicpm", "MiniCPM with sparse attention"),
    "qsa": (_without_indexer, "qsa", "Qwen models with an indexer, and asks it for the tokens"),
    "llada2_cfg_flashinfer": (
        lambda c: latent(c) is True,
        "llada2_cfg_flashinfer",
        "LLaDA, and takes no latent attention",
    ),
}


def stopped(c: Context, flag: str, backend: str, instead: tuple[dict[str, Value], ...]) -> Part | None:
    """The stop for a model that the back end is not made for; None where it is, or nobody can tell."""
    if backend not in _MADE_FOR or not c.arch:
        return None
    other, name, what = _MADE_FOR[backend]
    proof = places.place(c, f"attn.model.{name}")
    if proof is None or not other(c):
        return None
    reason = f"Attention back end {backend} is for {what}; {c.arch} has none of it, and the start stops there."
    return Part(flag, Outcome.FAILS, reason, (proof,), (Step(Gate.MODEL, False, reason, proof),), instead=instead)


def listed(c: Context, flag: str, backend: str, instead: tuple[dict[str, Value], ...]) -> Part | None:
    """Architectures that have a list of back ends in argument resolution, asserted for both stages."""
    name = f"attn.only.{c.arch}"
    proof = places.place(c, name)
    if proof is None or backend in places.value(c, name).split():
        return None
    shown = ", ".join(places.value(c, name).split())
    reason = f"{c.release.version} has {shown} for {c.arch}, and stops at {backend}."
    return Part(flag, Outcome.FAILS, reason, (proof,), (Step(Gate.RESOLUTION, False, reason, proof),), instead=instead)
