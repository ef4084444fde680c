"""Log texts that announce a feature, refuse it or fall back from it, as patterns for a server's log."""

from __future__ import annotations

import ast
import re
from typing import Any

from sglfleet.extract.sites import SKIP, Survey, functions, literal

LEVELS = {
    "info": "INFO", "warning": "WARNING", "error": "ERROR", "warning_once": "WARNING", "info_once": "INFO",
    "log_info_on_rank0": "INFO", "print_warning_once": "WARNING", "print_info_once": "INFO", "warn": "WARNING",
}  # fmt: skip
FEATURES = (  # the first that matches names the row
    ("allreduce-fusion", re.compile(r"all-?\s?reduce.*fusion|fusion.*all-?\s?reduce|fusion workspace", re.I)),
    ("symm-mem", re.compile(r"symm(etric)?[- _]?mem", re.I)),
    ("custom-all-reduce", re.compile(r"custom all-?reduce", re.I)),
    ("attention", re.compile(r"attention[ _]backend|attn backend|flash_?attention|flashmla|trtllm_m[hl]a", re.I)),
    ("dsa", re.compile(r"\b(DSA|NSA)\b|dsv4|deepseek.?v4|indexer", re.I)),
    ("moe-runner", re.compile(r"moe[ _]runner|moe backend|fused[ _]moe|cutlass moe|trtllm.*moe", re.I)),
    ("gemm", re.compile(r"gemm|marlin|cutlass", re.I)),
    ("kv-cache-dtype", re.compile(r"kv[ _-]?cache[ _]?d?type|fp8 kv|fp4 kv|kv cache (scal|data)", re.I)),
    ("deterministic", re.compile(r"determinis", re.I)),
    ("speculative", re.compile(r"speculative|eagle|mtp|draft", re.I)),
    ("overlap", re.compile(r"two.?batch.?overlap|single.?batch.?overlap|pdmux|overlap schedul", re.I)),
    ("a2a", re.compile(r"deepep|mega_?moe|all-?to-?all|\bmori\b|nixl", re.I)),
    ("quantization", re.compile(r"quantiz", re.I)),
)  # fmt: skip
SAYS = re.compile(  # it announces, refuses or falls back
    r"disabl|fall(ing)?[ -]?back|not (supported|available|used)|enabl|overrid|forc|ignor|set to|setting|is used|"
    r"use[ds]? |using|unsupported|skipping|requires|initialized|only support|automatically|select",
    re.I,
)
EXTRA = ("sglang.srt.server_args", "sglang.srt.layers.flashinfer_comm_fusion", "sglang.srt.model_executor.model_runner")
HOOKS = re.compile(r"sglang/srt/arg_groups/")
SHORTEST = 20  # characters of literal text; less would match anything


def logs(survey: Survey) -> dict[str, list[list[Any]]]:
    """File -> rows [feature, level, line, symbol, text] by line; {} in a text stands for what is filled in."""
    modules = {*survey.names.modules_in_question, *EXTRA}
    modules |= {m for m, path in survey.modules.files.items() if HOOKS.match(path)}
    found: dict[str, list[list[Any]]] = {}
    for module in sorted((m for m in modules if m in survey.modules.files), key=survey.modules.files.__getitem__):
        path = survey.modules.files[module]
        if SKIP.search(path):
            continue
        rows: dict[int, list[Any]] = {}
        for symbol, function in functions(survey.modules, module):
            for node in ast.walk(function.node):
                row = _row(node) if isinstance(node, ast.Call) else None
                if row:
                    rows.setdefault(row["line"], [row["feature"], row["level"], row["line"], symbol, row["text"]])
        if rows:
            found[path] = [rows[line] for line in sorted(rows)]
    return found


def _row(call: ast.Call) -> dict[str, Any] | None:
    name = getattr(call.func, "attr", getattr(call.func, "id", ""))
    if name not in LEVELS or not call.args:
        return None
    text = literal(call.args[-1] if name == "log_info_on_rank0" else call.args[0])
    text = re.sub(r"%[sdrf]|%\.\d+f", "{}", text)
    feature = next((f for f, pattern in FEATURES if pattern.search(text)), "")
    if not feature or not SAYS.search(text) or len(text.replace("{}", "")) < SHORTEST:
        return None
    return {"feature": feature, "level": LEVELS[name], "line": call.lineno, "text": text}


def pattern(text: str) -> str:
    """A regular expression for a log text with {} placeholders; long ones by their beginning."""
    parts = [re.escape(p) for p in text[:160].split("{}")]
    return ".*?".join(parts).removesuffix(".*?")
