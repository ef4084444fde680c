"""Families of arguments whose uses stand in files of their own, reached on ways that cannot be followed by names alone.

A row says which arguments, in which places a use counts as the family's own, and on which other arguments the family
hangs. It holds in a release only where every other use of the argument is behind a condition that was read, and where
the release asks for the family's master in the place named. Everywhere else the extractor says nothing.
"""

from __future__ import annotations

import re
from collections.abc import Container
from dataclasses import dataclass

from sglfleet.extract.reads.nodes import Site

# without sparse, linear or state-space attention, and without a draft head of their own kind
_ORDINARY = (
    *("LlamaForCausalLM", "MistralForCausalLM", "MixtralForCausalLM", "Qwen2ForCausalLM", "Qwen2MoeForCausalLM"),
    *("Qwen3ForCausalLM", "Qwen3MoeForCausalLM", "Gemma2ForCausalLM", "Gemma3ForCausalLM", "Phi3ForCausalLM"),
    *("Qwen2VLForConditionalGeneration", "Qwen2_5_VLForConditionalGeneration", "DeepseekV2ForCausalLM"),
    *("DeepseekV3ForCausalLM", "GptOssForCausalLM", "Glm4MoeForCausalLM", "Llama4ForConditionalGeneration"),
)
_OTHER_MODEL = f"model_arch not in {list(_ORDINARY)!r}"
_FIELD = re.compile(r"\b(?:args|given)\.(\w+)")  # `given`: as written, whatever the engine sets on the way


@dataclass(frozen=True)
class Family:
    """One row. `needs`: any of these turns the family on; a release that lacks the argument lacks that one."""

    name: str
    fields: str  # pattern of field names
    places: str  # pattern of "file symbol" where a use is the family's own
    needs: tuple[str, ...]
    asked: str  # pattern of the condition in the source that is shown as evidence
    asked_in: str  # pattern of "file symbol" where it is looked for

    def text(self, known: Container[str]) -> str:
        return " or ".join(f"({one})" for one in self.needs if all(f in known for f in _FIELD.findall(one)))


_SPECULATIVE = "args.speculative_algorithm is not None"
_REGISTRY = r"mem_cache/(registry|kv_cache_builder)|managers/scheduler\.py|model_executor/model_runner"

ROWS = (
    Family(
        "hicache",
        r"hicache_(ratio|size|write_policy|io_backend|mem_layout|storage_backend|storage_prefetch_\w+"
        r"|storage_backend_extra_config|host_memory_\w+)",
        r"mem_cache/(hi|hybrid_cache/|hicache|storage|unified_|memory_pool_host|pool_host/|kv_cache_builder"
        r"|unified_cache/|l2|registry)|managers/(cache_controller|hicache)|arg_groups/hicache_hook|_hicache"
        r"|rust_server/config|io_struct|disaggregation/decode_kvcache_offload|disaggregation/decode\.py|_prefetch_\w+"
        r"|\.init_(cache_with_memory_pool|memory_pool_and_cache|hicache\w*)$",
        (
            "args.enable_hierarchical_cache",
            "args.enable_lmcache",
            "args.enable_flexkv",
            "args.enable_unified_cache_external_linker",
            "args.disaggregation_mode == 'decode'",
            "args.disaggregation_decode_enable_offload_kvcache",
            "args.disaggregation_decode_retraction_backup == 'host_pool'",
            "args.enable_hisparse",
            "args.radix_cache_backend is not None",
        ),
        r"args\.enable_hierarchical_cache",
        _REGISTRY,
    ),
    Family(
        "lora",
        r"lora_(backend|eviction_policy|target_modules|strict_loading|use_virtual_experts|drain_wait_threshold)"
        r"|max_lora\w+|max_loras_per_batch|max_loaded_loras|experts_shared_outer_loras",
        r"sglang/srt/lora/|lora|Lora|LoRA",
        ("args.enable_lora", "args.lora_paths", _SPECULATIVE),
        r"args\.(enable_lora|lora_paths)\b",
        r"model_executor/.*(init_lora|lora_manager|ModelRunner\.(initialize|load_model|__init__))",
    ),
    Family(
        "deepep",
        r"deepep_(mode|config)",
        r"layers/moe/|models/|deepep_adapter|load_json_config|batch_overlap/|two_batch_overlap|eplb/expert_distribution|elastic_ep/",
        (
            "given.moe_a2a_backend not in ['none', None]",
            "args.enable_deepep_moe",
            "args.enable_waterfill",
            "given.speculative_moe_a2a_backend not in ['none', None]",
            "args.elastic_ep_backend is not None",
        ),
        r"a2a_backend|enable_deepep_moe|deepep",
        r"layers/moe/|models/deepseek",
    ),
    Family(
        "speculation",
        r"speculative_(num_steps|eagle_topk|num_draft_tokens|draft_\w+|accept_\w+|attention_mode|token_map|ngram_\w+"
        r"|adaptive\w*|dsa_topk_backend|moe_\w+|use_\w+|dflash_\w+|dspark_\w+|domino_\w+)",
        r"sglang/srt/speculative/|arg_groups/speculative_hook|layers/attention/|_handle_speculative"
        r"|eagle|Eagle|EAGLE|_draft|draft_|\.init_(memory_pool|req_to_token_pool)|spec_info|handle_kv4|[Ss]peculative"
        r"|cuda_graph_runner|eager_runner|flashinfer_autotune|ModelConfig\.from_server_args|mem_cache/"
        r"|model_runner|pool_configurator|reserve_rope_cache|runtime_context|kv_canary|model_path_hook|handle_missing_default_values|metrics_reporter|handle_gpu_memory_settings|new_tokens_required_next_decode|ceil_div|(mega_moe|flydsl)_decode_tokens",
        (_SPECULATIVE, _OTHER_MODEL, "args.disaggregation_mode == 'decode'"),
        r"args\.speculative_algorithm",
        r"managers/(scheduler|tp_worker)|model_executor/model_runner",
    ),
    Family(
        "disaggregation",
        r"disaggregation_(ib_device|transfer_backend|bootstrap_port|decode_\w+|prefill_\w+)|num_reserved_decode_tokens",
        r"sglang/srt/disaggregation/|mooncake_transfer_engine|rust_server/config|isagg|handle_pd|parse_ib_device",
        (
            "args.disaggregation_mode != 'null'",
            "args.encoder_only",
            "args.language_only",
            "args.elastic_ep_backend is not None",
            "args.enable_elastic_expert_backup",
            "given.hicache_storage_backend is not None",
            "args.disaggregation_decode_enable_offload_kvcache",
            "args.remote_instance_weight_loader_start_seed_via_transfer_engine",
            "given.load_format == 'remote_instance'",
            "args.enable_pd_role_switch",
        ),
        r"args\.disaggregation_mode",
        r"managers/scheduler\.py",
    ),
    Family(
        "requests log",
        r"log_requests_(level|format|target)",
        r"utils/(request_logger|log_utils)|managers/(tokenizer_manager|configure_logging)|openai/serving_base"
        r"|configure_logging",
        ("args.log_requests",),
        r"\blog_requests\b",
        r"managers/tokenizer_manager|utils/request_logger|openai/serving_base",
    ),
    Family(
        "two-batch overlap",
        r"tbo_token_distribution_threshold",
        r"two_batch_overlap|layers/moe/utils",
        ("args.enable_two_batch_overlap",),
        r"args\.enable_two_batch_overlap",
        r"two_batch_overlap|model_executor/|managers/scheduler|layers/|models/",
    ),
    Family(
        "data parallelism",
        r"load_balance_method",
        r"data_parallel_controller|load_snapshot|handle_load_balance|disaggregation/|_data_parallelism_defaults",
        (
            "args.dp_size > 1",
            "given.attn_dp_size > 1",
            "given.enable_dp_attention",
            "args.disaggregation_mode != 'null'",
            "args.ep_join_mode is not None",
            "args.elastic_ep_backend is not None",
        ),
        r"use_dp_controller|dp_size\)* (==|>) 1",
        r"entrypoints/engine",
    ),
    Family(
        "linear attention",
        r"mamba_(full_memory_ratio|ssm_dtype|backend|track_interval|scheduler_strategy|radix_cache_strategy"
        r"|max_states_per_path)|max_mamba_cache_size|linear_attn_\w+|enable_linear_replayssm\w*|linear_replayssm\w*",
        r"mamba|Mamba|linear|Linear|gdn|kda|hybrid|Hybrid|lightning|ssm|models/|configs/|replay|_handle_attention"
        r"|pool_configurator|unified_cache|memory_pool|runtime_context|handle_environment_variables",
        (_OTHER_MODEL, _SPECULATIVE),
        r"hybrid_gdn|mambaish|mamba2_config|hybrid_ssm|kimi_linear|hybrid_lightning|has_mamba",
        r"model_executor/(model_runner|pool_config|kv_cache)|mem_cache/kv_cache|layers/attention/attention_registry",
    ),
    Family(
        "sparse attention",
        r"(dsa|nsa)_\w+|enable_(dsa|nsa)_\w+",
        r"dsa|nsa|calculate_mla_kv_cache_dim|Sparse|sparse|models/deepseek|models/glm|deepseek_v4|dsv4",
        (_OTHER_MODEL, _SPECULATIVE),
        r"dsa|nsa",
        r"model_executor/|mem_cache/|layers/attention/attention_registry|configs/model_config",
    ),
    Family(
        "prefill delayer",
        r"prefill_delayer_\w+",
        r"prefill_delayer|metrics_collector",
        ("args.enable_prefill_delayer",),
        r"args\.enable_prefill_delayer",
        r"managers/scheduler",
    ),
)


def of(name: str, site: Site) -> Family | None:
    """The row of an argument, where a use of it stands in one of the family's own places."""
    where = f"{site.function.path} {site.function.symbol}"
    for row in ROWS:
        if re.fullmatch(row.fields, name) and re.search(row.places, where):
            return row
    return None


def known(name: str) -> bool:
    """Is the argument one of a family at all."""
    return any(re.fullmatch(row.fields, name) for row in ROWS)
