"""Results of other benchmark clients as runs: aiperf and guidellm, where people have them already.

aiperf writes `profile_export_aiperf.json` (read at its schema 1.4, of 0.13), guidellm one JSON report (read at its
version 2, of 0.8). What they call inter-token latency is a mean over the tokens of each request after the first one,
which is SGLang's TPOT; aiperf's inter-chunk latency is SGLang's ITL. Neither knows of prefix caches, restarts or other
processes on the GPUs: such runs are checked for less, and their throughput counts what the client itself counted.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from sglfleet.verify.runs import Run

Row = Mapping[str, Any]
STATS = {"mean": ("avg", "mean"), "median": ("p50", "median"), "p90": ("p90",), "p95": ("p95",), "p99": ("p99",)}
COUNTED_APART = 0.01  # share by which client and server may differ in counting answer tokens


def read(path: Path, **conditions: Any) -> list[Run]:
    """Runs of a result file of either client. `conditions`: what it does not say, as fields of `Run`.

    Raises ValueError, naming the file, for anything else.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        if "aiperf_version" in document:
            return [_aiperf(document, conditions)]
        if "guidellm_version" in document.get("metadata", {}):
            return [_guidellm(document["config"]["spec"], one, conditions) for one in document["benchmarks"]]
    except (KeyError, TypeError, IndexError, AttributeError, ValidationError) as error:
        raise ValueError(
            f"{path}: {type(error).__name__} {error}: this release of the client writes it otherwise"
        ) from error
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror}: give a result file of aiperf or guidellm") from error
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    raise ValueError(f"{path}: neither of aiperf nor of guidellm: give profile_export_aiperf.json or guidellm's JSON")


def _aiperf(told: Row, conditions: Row) -> Run:
    phase = next(p for p in told["input_config"]["phases"] if p["kind"] == "profiling")
    prompts = told["input_config"]["datasets"][0]["prompts"]
    if not phase.get("concurrency"):
        raise ValueError("it was driven by a rate, not by a concurrency: run it with --concurrency")
    if told.get("was_cancelled") or told.get("is_complete") is False:
        raise ValueError(f"it did not finish: {told.get('incomplete_reason') or 'it was cancelled'}: run it again")
    counted = _one(told, "total_osl")
    server = (told.get("total_usage_completion_tokens") or {}).get("avg")
    if server and abs(server - counted) > COUNTED_APART * server:
        raise ValueError(
            f"the client counted {counted:.0f} answer tokens where the server says {server:.0f}: run it with"
            " --use-server-token-count, or with the model's own tokenizer"
        )
    metrics = {
        "output_throughput": _one(told, "output_token_throughput"),
        "total_throughput": _one(told, "total_token_throughput"),
        "request_throughput": _one(told, "request_throughput"),
        **_stats("ttft", told.get("time_to_first_token")),
        **_stats("tpot", told.get("inter_token_latency")),
        **_stats("itl", told.get("inter_chunk_latency")),
        **_stats("e2e_latency", told.get("request_latency")),
    }
    failed = (told.get("error_request_count") or {}).get("avg") or 0
    done = _one(told, "request_count")
    return Run.model_validate(
        {
            "model": told["input_config"]["models"]["items"][0]["name"],
            "input_len": round(prompts["isl"]["mean"]),
            "output_len": round(prompts["osl"]["mean"]),
            "concurrency": phase["concurrency"],
            "prompts": round(done + failed),
            "completed": round(done),
            "output_tokens": round(counted),
            "shortest_output": _least(told.get("output_sequence_length")),
            "seed": (told.get("run_info") or {}).get("random_seed") or 0,
            "started": _seconds(told["start_time"]),
            "duration_s": _one(told, "benchmark_duration"),
            "metrics": metrics,
            **conditions,
        }
    )


def _guidellm(spec: Row, told: Row, conditions: Row) -> Run:
    strategy = told["config"]["strategy"]
    streams = 1 if strategy["type_"] == "synchronous" else strategy.get("streams")
    if not streams:
        raise ValueError(f"its profile is {strategy['type_']}, not a concurrency: run it with kind=concurrent")
    metrics, data = told["metrics"], spec["data"][0]
    totals, tokens = metrics["request_totals"], metrics["output_token_count"]["successful"]

    def done(name: str) -> Row | None:
        found: Row | None = (metrics.get(name) or {}).get("successful")
        return found

    seen = {
        "output_throughput": metrics["output_tokens_per_second"]["successful"]["mean"],
        "total_throughput": metrics["tokens_per_second"]["successful"]["mean"],
        "request_throughput": metrics["requests_per_second"]["successful"]["mean"],
        **_stats("ttft", done("time_to_first_token_ms")),
        **_stats("tpot", done("inter_token_latency_ms")),
        **_stats("e2e_latency", done("request_latency"), 1000.0),
    }
    return Run.model_validate(
        {
            "model": spec["backend"]["model"],
            "input_len": data["prompt_tokens"],
            "output_len": data["output_tokens"],
            "concurrency": streams,
            "prompts": totals["total"],
            "completed": totals["successful"],
            "output_tokens": round(tokens["total_sum"]),
            "shortest_output": round(tokens["min"]),
            "seed": (spec.get("seed") or {}).get("value") or 0,
            "started": told["start_time"],
            "duration_s": told["duration"],
            "metrics": seen,
            **conditions,
        }
    )


def _one(told: Row, name: str) -> float:
    return float(told[name]["avg"])


def _stats(what: str, told: Row | None, factor: float = 1.0) -> dict[str, float]:
    """`median_ttft_ms` and its like of one distribution; nothing where the client has none."""
    flat = {**told, **(told.get("percentiles") or {})} if told else {}
    return {
        f"{stat}_{what}_ms": float(flat[name]) * factor
        for stat, names in STATS.items()
        for name in names
        if flat.get(name) is not None
    }


def _least(told: Row | None) -> int | None:
    return round(told["min"]) if told and told.get("min") is not None else None


def _seconds(text: str) -> float:
    """aiperf writes UTC without saying so."""
    at = datetime.fromisoformat(text)
    return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
