"""What plain flags show on a running server: flags with no gate that could stop them, so no rule speaks of them.

One line per flag. A flag that is not here, and that no rule gives an expectation, ends as `not proven`: nothing it does
is known to be visible from outside.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from validators.verdict import Expectation, Value

Show = Callable[[str], tuple[Expectation, ...]]


def _response(name: str, pattern: str = "{}") -> Show:
    return lambda value: (Expectation("response", present=f"{name}={pattern.replace('{}', re.escape(value))}"),)


def _info(name: str) -> Show:
    return lambda value: (Expectation("server_info", present=f"{name}={re.escape(value)}"),)


def _log(pattern: str, where: str = "if told") -> Show:
    """`if told`: the pattern up to its first `:` or `=` names a line; a release without it contradicts nothing."""
    return lambda value: (Expectation("log", present=pattern.replace("{}", re.escape(value)), where=where),)


def _operator(pattern: str) -> Show:
    return lambda _: (Expectation("operator", present=pattern),)


def _listens(value: str) -> tuple[Expectation, ...]:
    """Of an address; what a name stands for is not known here."""
    address = re.fullmatch(r"[0-9a-f:]+:[0-9a-f:]*|\d+(\.\d+){3}", value)
    return (Expectation("response", present=f"listens_on={re.escape(value)}"),) if address else ()


# (flag, value or None for any) -> what it shows. Seen on SGLang 0.5.23 on a CPU and 0.5.16 on an H200.
_SHOWS: dict[tuple[str, str | None], Show] = {
    ("attention-backend", "torch_native"): _operator("^aten::scaled_dot_product_attention$"),
    ("chunked-prefill-size", None): _response("largest_prefill"),
    ("max-running-requests", None): _info("internal_states.effective_max_running_requests_per_dp"),
    ("max-total-tokens", None): _info("max_total_num_tokens"),
    ("context-length", None): _log(r"max_total_num_tokens=\d+, .*\bcontext_len={}(?!\d)"),
    ("stream-interval", None): _response("stream_step"),
    ("port", None): _response("answers_on_port"),
    ("host", None): _listens,
    ("served-model-name", None): _response("served_model"),
    ("disable-radix-cache", "true"): _response("cached_tokens_repeat", "0"),
    ("enable-cache-report", "true"): _response("usage_cached_tokens", r"\d+"),
    ("enable-metrics", "true"): _response("metrics_status", "200"),
    ("enable-deterministic-inference", "true"): _response("seed_repeats", "true"),
    ("log-requests", "true"): _response("requests_logged", "true"),
    ("kv-cache-dtype", "fp8_e4m3"): _log(r"KV Cache is allocated\. dtype: torch\.float8_e4m3", "every rank, if told"),
    ("kv-cache-dtype", "fp8_e5m2"): _log(r"KV Cache is allocated\. dtype: torch\.float8_e5m2", "every rank, if told"),
    ("dtype", "float32"): _log(r"KV Cache is allocated\. dtype: torch\.float32", "every rank, if told"),
    ("dtype", "float16"): _log(r"KV Cache is allocated\. dtype: torch\.float16", "every rank, if told"),
    ("dtype", "bfloat16"): _log(r"KV Cache is allocated\. dtype: torch\.bfloat16", "every rank, if told"),
    ("disable-cuda-graph", "true"): lambda _: (Expectation("operator", absent="^cudaGraphLaunch$"),),
    ("cuda-graph-max-bs-decode", None): _log(r"Capture target decode CUDA graph begin\..*\bbs=\[[\d, ]*\b{}\]"),
}  # fmt: skip


def for_flag(flag: str, value: Value) -> tuple[Expectation, ...]:
    """What a flag that acts must show; empty where nothing is known to show it."""
    text = {True: "true", False: "false"}.get(value, str(value)) if isinstance(value, bool) else str(value)
    show = _SHOWS.get((flag, text)) or _SHOWS.get((flag, None))
    return show(text) if show else ()
