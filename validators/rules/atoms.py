"""What a piece of one of the engine's conditions is for one case: `self.tp_size`, `is_sm90_supported()`, `major`.

Only what cannot have been changed on the way is told: a flag that was given, a switch that was not, what the GPU is.
Everything else is UNKNOWN, and a condition that needs it stops nothing.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from validators.conditions import UNKNOWN
from validators.knowledge.model import Sglang

if TYPE_CHECKING:
    from validators.rules.context import Context

# fields whose default holds when nobody gave the flag: topology, and what only a person turns on
_STABLE = {
    "tp_size",
    "pp_size",
    "dp_size",
    "nnodes",
    "moe_a2a_backend",
    "speculative_algorithm",
    "attn_cp_size",
    "attn_dp_size",
    "disaggregation_mode",
    "flashinfer_allreduce_fusion_backend",
}
_BACK_ENDS = ("attention-backend", "prefill-attention-backend", "decode-attention-backend")
_STAGES = ("prefill_attention_backend", "decode_attention_backend")
_OWNER = re.compile(r"^(self|cfg|view|args|server_args|.*server_args.*|get_\w+\(\)(\.\w+)*)$")
_TAIL = re.compile(r"^(?:(?P<owner>.+)\.)?(?P<name>\w+)(?P<call>\(\))?$")
_INDEXED = re.compile(r"^\w*server_args_dict(?:\[|\.get\()'(?P<name>\w+)'")
_CAPABILITY = re.compile(r"get_device_capability\([^)]*\)")
_CHOSEN = re.compile(r"^\w+Backend\([\w.()]*\.(\w+)\)\.is_(\w+)\(\)$")  # Backend(cfg.x).is_y()
_ENV = re.compile(r"^envs\.(\w+)\.get\(\)$")
_OF_MODEL = re.compile(r"^(?:.*\b)?(?P<owner>hf_config|model_config(?:_of\([\w.]*\))?)(?:\(\))?\.(?P<name>\w+)$")
_BOTH_STAGES = re.compile(r"^(attention_backends_of\(\w+\)|[\w.]+\.(get|_resolved)_attention_backends\(\))$")
# what the choice of an attention back end hangs on beside the GPU and the kind of model
_DECIDES_TOO = ("speculative", "enable-deterministic", "page-size", "dllm", "kv-cache", "enable-mis")
_AS_GIVEN = "as_given_"  # a field before anything is resolved
_ALGORITHM = re.compile(r"^from_string\(\w+\.speculative_algorithm\)$")
_CONFIG = object()  # the model's configuration: there, and no dictionary
# models without anything of their own in their files: what a release adjusts for special models does not concern them
PLAIN = (
    *("LlamaForCausalLM", "MistralForCausalLM", "MixtralForCausalLM"),
    *("Qwen2ForCausalLM", "Qwen2MoeForCausalLM", "Qwen3ForCausalLM", "Qwen3MoeForCausalLM"),
)
# models that read text and write text, whatever else they have
TEXT_ONLY = (
    *PLAIN,
    *("DeepseekV2ForCausalLM", "DeepseekV3ForCausalLM", "DeepseekV32ForCausalLM", "GptOssForCausalLM"),
    *("Glm4MoeForCausalLM", "GlmMoeDsaForCausalLM"),
)
_TEXT_ONLY = {
    "is_multimodal": False,
    "decision_config": None,
    "is_embedding_gemma": False,
    "embedding_model_spec": None,
}
_MODEL_TYPES = {
    "LlamaForCausalLM": "llama",
    "MistralForCausalLM": "mistral",
    "MixtralForCausalLM": "mixtral",
    "Qwen2ForCausalLM": "qwen2",
    "Qwen2MoeForCausalLM": "qwen2_moe",
    "Qwen3ForCausalLM": "qwen3",
    "Qwen3MoeForCausalLM": "qwen3_moe",
    "GptOssForCausalLM": "gpt_oss",
}
_FIELDS: dict[str, dict[str, str]] = {}
_SMS: dict[str, dict[str, frozenset[str] | None]] = {}


def value(c: Context, text: str) -> Any:
    """The value of the piece `text` in the case of `c`, or UNKNOWN."""
    if "capability" in text:
        return _capability(c, text)
    if text.startswith("envs."):
        return _environment(c, text)
    if text.startswith(("is_deepseek_nsa(", "is_deepseek_dsa(")):
        return _sparse(c)
    if text.startswith("use_mla_backend("):
        return mla(c)
    if text.endswith("hf_config.architectures"):
        return [c.arch] if c.arch else UNKNOWN
    if text.startswith("is_runai_obj_uri("):
        return _object_store(c, text)
    if text.startswith("parse_connector_type("):
        return "a path"  # what a service file names; never another instance of the engine
    if _BOTH_STAGES.match(text):
        return [attention(c, "prefill"), attention(c, "decode")]
    if text.startswith("_resolve_speculative_algorithm_alias("):
        named = field(c, "speculative_algorithm")
        return {"NEXTN": "EAGLE"}.get(named.upper(), named.upper()) if isinstance(named, str) else named
    if text.endswith(".decision_config"):
        return c.case.checkpoint.get("decision_config")  # of checkpoints that answer one question without generating
    if text.endswith("_attention_backend_str"):
        return attention(c, "prefill" if "prefill" in text else "decode")
    chosen = _CHOSEN.match(text)
    if chosen:
        named = field(c, chosen[1])
        return UNKNOWN if named is UNKNOWN else named == chosen[2]
    if "is_attention_backend_not_set(" in text:
        named = [c.args.get(flag) for flag in _BACK_ENDS]
        if any(one is not UNKNOWN and one for one in named):
            return False
        return UNKNOWN if any(one is UNKNOWN for one in named) else True
    if text == "default_attention()":
        return _default_attention(c)
    if text == "ConnectorType.INSTANCE":
        return text
    if "hf_config" in text or "model_config" in text:
        found = _model(c, text)
        if found is not UNKNOWN:
            return found
    if text.startswith("SpeculativeAlgorithm."):
        return _algorithm(c, text.partition(".")[2])
    if text.startswith(_AS_GIVEN):
        flag = fields(c.release).get(text.removeprefix(_AS_GIVEN), "")
        known = c.release.flags.get(flag)
        return c.args.get(flag, known.default if known else UNKNOWN)
    if text.startswith("importable("):
        return _importable(c, text[len("importable(") + 1 : -2])
    match = _split(text)
    if match is None:
        return UNKNOWN
    owner, name = match
    if name in _KNOWN:
        return _KNOWN[name](c)
    sms = _predicate(c.release, owner, name)
    if sms is not None:
        return c.sm_text in sms if c.sm_text else UNKNOWN
    if owner == "[]" or (owner and _OWNER.match(owner) and "model_config" not in owner):
        return field(c, name)
    return UNKNOWN


@lru_cache(maxsize=16384)
def _split(text: str) -> tuple[str, str] | None:
    indexed = _INDEXED.match(text)
    if indexed:
        return "[]", indexed["name"]
    match = _TAIL.match(text)
    if match is None:
        if text.endswith(".architectures[0]"):
            return "", "model_arch"
        if text.startswith("attn_dp_enabled_of("):
            return "", "is_dp_attention_enabled"
        return None
    return match["owner"] or "", match["name"]


def attention(c: Context, stage: str) -> Any:
    """The back end of prefill or decode: its own flag, else the common one; UNKNOWN where the engine picks it."""
    flags = (f"{stage}-attention-backend", "attention-backend")
    for flag in flags:
        value: Any = c.args.get(flag)
        if value is UNKNOWN or value:
            return value
    return None if all(flag in c.args for flag in flags) else UNKNOWN  # tried with neither


def field(c: Context, name: str) -> Any:
    """The value of a field of the engine's arguments, as far as the flags given say it."""
    flag = fields(c.release).get(name)
    if flag is None:
        return c.args.get(own(name), UNKNOWN)
    if flag in c.args:
        return c.args[flag]
    if name == "device":
        return "cuda"
    if name in _STAGES and "attention-backend" in c.args:
        return None  # a stage without a back end of its own has the common one
    found = c.release.flags[flag]
    if found.kind in ("switch", "tristate") and isinstance(found.default, bool):
        return found.default
    return found.default if name in _STABLE and not found.default_source else UNKNOWN


_OF_FLAG: dict[str, dict[str, str]] = {}
_FLAGS_OF: dict[tuple[str, str], tuple[str, ...]] = {}
_WORD = re.compile(r"\w+")
_TOPOLOGY = (
    "tp-size",
    "pp-size",
    "dp-size",
    "nnodes",
    "enable-dp-attention",
    "attn-dp-size",
)  # asked under other names too


def flags_of(release: Sglang, text: str) -> tuple[str, ...]:
    """Flags on which the value of a condition can depend."""
    key = (release.key, text)
    found = _FLAGS_OF.get(key)
    if found is None:
        known = fields(release)
        words = [word.removeprefix(_AS_GIVEN) for word in _WORD.findall(text)]
        named = {known[word] for word in words if word in known}
        named |= {own(word) for word in words if word in release.fields and word not in known}
        if any(word in text for word in (*_STAGES, "attention_backend", "_backend")):
            named.update(_BACK_ENDS)
        if "default_attention(" in text:
            named.update(flag for flag in release.flags if flag.startswith(_DECIDES_TOO))
        found = _FLAGS_OF[key] = (*_TOPOLOGY, *sorted(named - set(_TOPOLOGY)))
    return found


def fields(release: Sglang) -> dict[str, str]:
    """Field of the arguments -> the flag that sets it."""
    table = _FIELDS.get(release.key)
    if table is None:
        table = _FIELDS[release.key] = {flag.field: flag.name for flag in release.flags.values() if flag.field}
    return table


def field_of(release: Sglang, flag: str) -> str:
    """The field that a flag sets, or nothing."""
    table = _OF_FLAG.get(release.key)
    if table is None:
        table = _OF_FLAG[release.key] = {of: name for name, of in reversed(fields(release).items())}
    return table.get(flag, "")


def _algorithm(c: Context, text: str) -> Any:
    """A member of `SpeculativeAlgorithm` by its name, whether written out or read from the arguments."""
    if _ALGORITHM.match(text):
        named = field(c, "speculative_algorithm")
        return (named.upper() if named else "NONE") if named is None or isinstance(named, str) else UNKNOWN
    return text if text.isupper() and text.replace("_", "").isalnum() else UNKNOWN


def _default_attention(c: Context) -> Any:
    """The back end that the release picks on this SM, where nothing but the SM and a plain model decide it."""
    tables = c.release.gates.get("tables") or {}
    row = tables.get("attention.default.mha") if isinstance(tables, dict) else None
    picked = row["by_sm"].get(c.sm_text) if row and c.arch in PLAIN else None
    decided = isinstance(picked, str) and not any(flag.startswith(_DECIDES_TOO) for flag in c.args)
    return picked if decided else UNKNOWN


def own(name: str) -> str:
    """The key, beside flags, of a field that the engine sets by itself and no flag does."""
    return "." + name


def _model(c: Context, text: str) -> Any:
    """What the engine reads in the model's configuration."""
    if text.endswith(("hf_config", "model_config")):
        return _CONFIG
    if text.startswith("get_linear_attn_spec(") and c.arch in TEXT_ONLY:
        return None  # registered for models of another kind (`configs/linear_attn_model_registry.py`)
    match = _OF_MODEL.match(text)
    if match is None:
        return UNKNOWN
    owner, name = match["owner"], match["name"]
    if owner == "model_config":
        return _TEXT_ONLY.get(name, UNKNOWN) if c.arch in TEXT_ONLY else UNKNOWN
    if name == "architectures":
        return [c.arch] if c.arch else UNKNOWN
    if name == "model_type":
        return c.case.model_type or c.case.checkpoint.get("model_type") or _MODEL_TYPES.get(c.arch, UNKNOWN)
    return c.case.checkpoint.get(name, UNKNOWN) if "architectures" in c.case.checkpoint else UNKNOWN


def _importable(c: Context, name: str) -> Any:
    """Is a package there: found on the host, else brought by the release, and not left to an extra of its own."""
    package = name.partition(".")[0].replace("_", "-").lower()
    if package == "sglang":
        return UNKNOWN
    if package in c.case.packages:
        return True
    if c.case.packages and "sglang" not in c.case.packages:
        return UNKNOWN
    if package in c.release.extras:
        return False
    return True if package in c.release.pins else UNKNOWN


def _predicate(release: Sglang, owner: str, name: str) -> frozenset[str] | None:
    """SMs for which a predicate of this release is true, by the release's own definition.

    `get_platform().is_sm120` is not `is_sm120()`: what is asked of the platform is listed as `platform.is_sm120`. A
    name that two modules define differently says nothing.
    """
    table = _SMS.get(release.key)
    if table is None:
        table = _SMS[release.key] = {}
        for row in release.predicates or ():
            sms = frozenset(row["sms"]) if row.get("sms") is not None else None
            if table.setdefault(row["name"], sms) != sms:
                table[row["name"]] = None
    bare = name.lstrip("_")
    forms = [name, bare, bare + "_supported", bare.removesuffix("_supported")]
    if "platform" in owner:
        forms.insert(0, f"platform.{name}")
    return next((table[form] for form in forms if form in table), None)


def _capability(c: Context, text: str) -> Any:
    if not c.sm_text or not _CAPABILITY.search(text):
        return UNKNOWN
    rest = _CAPABILITY.sub("@", text).split("@")[-1]
    if rest == "":
        return c.sm
    return c.sm[0] if rest == "[0]" else c.sm[1] if rest == "[1]" else UNKNOWN


def _environment(c: Context, text: str) -> Any:
    """`envs.NAME.get()`: what the service sets, else the release's default where it is known."""
    match = _ENV.match(text)
    if match is None:
        return UNKNOWN
    known = c.release.env.get(match[1])
    given = c.case.env.get(match[1])
    if given is not None:
        if known is not None and known.type == "bool":
            return given.lower() in ("1", "true", "yes", "y", "t", "on")
        return given if known is not None and known.type == "str" else UNKNOWN
    return UNKNOWN if known is None or known.default is None else known.default


def _architecture(c: Context) -> Any:
    return c.arch or UNKNOWN


def _sparse(c: Context) -> Any:
    """Is it a DeepSeek model with sparse attention: its own architecture, or an indexer in its configuration."""
    if not c.arch:
        return UNKNOWN
    return c.arch in ("DeepseekV32ForCausalLM", "GlmMoeDsaForCausalLM") or "index_topk" in c.case.checkpoint


def _object_store(c: Context, text: str) -> Any:
    """`is_runai_obj_uri(cfg.x)`: an address of an object store."""
    named = field(c, text.removesuffix(")").rpartition(".")[2])
    return named.lower().startswith(("s3://", "gs://", "az://")) if isinstance(named, str) else UNKNOWN


def _custom_deepseek(c: Context) -> Any:
    """`prefer_custom_dsv41`: a push plane of DeepSeek V4.1's own instead of the fusion; no other model has it."""
    newest = c.arch.startswith("DeepseekV4") or c.case.model_type == "deepseek_v41"
    return UNKNOWN if not c.arch or (newest and c.sm[0] >= 10 and c.tp == 4 and c.nnodes == 1) else False


def mla(c: Context) -> Any:
    """Has the model multi-head latent attention, by the release's own list of architectures."""
    row = c.row("mla.archs")
    if row is None or not c.arch or c.arch in row.get("maybe", ()):
        return UNKNOWN
    return c.arch in row["value"]


def deepseek(c: Context) -> Any:
    """Is the model treated as DeepSeek by deterministic inference; UNKNOWN where that depends on the release's list."""
    if c.arch in ("DeepseekV2ForCausalLM", "DeepseekV3ForCausalLM"):
        return True
    listed_later = ("Deepseek", "Glm", "MistralLarge3", "Pixtral")
    return UNKNOWN if not c.arch or c.arch.startswith(listed_later) else False


_KNOWN: dict[str, Any] = {
    "is_deepseek_model": deepseek,
    "major": lambda c: c.sm[0] if c.sm_text else UNKNOWN,
    "minor": lambda c: c.sm[1] if c.sm_text else UNKNOWN,
    "get_device_sm": lambda c: c.sm[0] * 10 + c.sm[1] if c.sm_text else UNKNOWN,
    "is_cuda": lambda c: True,
    "_is_cuda": lambda c: True,
    "is_hip": lambda c: False,
    "_is_hip": lambda c: False,
    "is_npu": lambda c: False,
    "_is_npu": lambda c: False,
    "is_musa": lambda c: False,
    "is_gfx95_supported": lambda c: False,
    "_is_gfx95_supported": lambda c: False,
    "_is_musa": lambda c: False,
    "is_xpu": lambda c: False,
    "_is_xpu": lambda c: False,
    "is_mps": lambda c: False,
    "_is_mps": lambda c: False,
    "is_cpu": lambda c: False,
    "_is_cpu": lambda c: False,
    "is_hpu": lambda c: False,
    "_is_hpu": lambda c: False,
    "use_mlx": lambda c: False,
    "is_gfx942_supported": lambda c: False,
    "is_flashinfer_available": lambda c: True,
    "_is_flashinfer_available": lambda c: True,
    "is_dp_attention_enabled": lambda c: c.dp_attention,
    "enable_dp_attention": lambda c: c.dp_attention,
    "tp_size": lambda c: c.tp,
    "nnodes": lambda c: c.nnodes,
    "model_arch": _architecture,
    "use_mla_backend": mla,
    "prefer_custom_dsv41": _custom_deepseek,
    "get_device_name": lambda c: c.case.gpu_name or "a GPU that nobody named",  # asked only for the H20
}
