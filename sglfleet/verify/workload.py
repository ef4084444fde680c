"""Requests of our own and what the answers show. Standard library only: also sent to hosts.

Few, short and greedy: other people's requests go on. Nothing is flushed, no limit is filled. Every run has its own
prompts, so that a prefix cache cannot answer for an earlier run.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Collection
from itertools import pairwise
from typing import Any
from urllib.parse import urlsplit

from sglfleet.verify.client import Answer, Server

LOW, HIGH = 10, 900  # token ids that every real vocabulary has, and that are no special tokens of ours
LONGEST = 32768  # longest prompt sent, tokens
FIXED = (3, 17, 64, 257, 700)  # lengths of the fixed prompts, tokens
NEEDLE = "The secret number of the north gate is 48213."


def prompt(length: int, seed: int) -> list[int]:
    """Token ids, the same for the same seed."""
    rng = random.Random(seed)  # noqa: S311 - not for secrets
    return [rng.randint(LOW, HIGH) for _ in range(length)]


def generate(
    server: Server, ids: list[int] | str, tokens: int, timeout: float = 120, logprobs: bool = False, **sampling: Any
) -> Answer:
    """One request to /generate; greedy unless told otherwise."""
    what = {"text": ids} if isinstance(ids, str) else {"input_ids": ids}
    parameters = {"temperature": 0, "max_new_tokens": tokens, "ignore_eos": True, **sampling}
    return server.ask("/generate", {**what, "sampling_params": parameters, "return_logprob": logprobs}, timeout)


def observe(
    server: Server, info: dict[str, Any], salt: int, names: Collection[str] | None = None
) -> tuple[dict[str, Any], dict[str, str]]:
    """What the server's answers show, by name; and why something could not be observed.

    `names`: what somebody wants to know; default everything. Nothing else is asked.
    """
    seen: dict[str, Any] = {}
    gaps: dict[str, str] = {}
    limit = info.get("max_req_input_len") or info.get("context_length") or 2048
    limit = limit if isinstance(limit, int) else 2048

    def wanted(*mine: str) -> bool:
        return names is None or not set(mine).isdisjoint(names)

    if wanted("cached_tokens_repeat", "usage_cached_tokens"):
        page = info.get("page_size")
        length = max(96, 3 * page if isinstance(page, int) else 0)  # only whole pages are cached
        if length <= limit // 2 or length == 96:
            _cache(server, min(length, limit // 2), salt, seen, _replicas(info))
        else:
            gaps["cached_tokens_repeat"] = f"no prompt of three pages of {page} tokens fits: longest is {limit}"
    if wanted("largest_prefill"):
        _chunk(server, info, limit, salt, seen, gaps)
    if wanted("served_model", "status_without_key", "metrics_status"):
        _names(server, seen)
    if wanted("stream_step"):
        _stream(server, info, salt, seen)
    if wanted("seed_repeats"):
        _sampling(server, salt, seen, _replicas(info))
    if wanted("status_too_long"):
        _context(server, limit, salt, seen, gaps)
    if wanted("answers_on_port"):
        seen["answers_on_port"] = urlsplit(server.url).port
    return seen, gaps


def _cached(answer: Answer) -> int | None:
    got = answer.json()
    value = got.get("meta_info", {}).get("cached_tokens") if isinstance(got, dict) else None
    return value if isinstance(value, int) else None


def _replicas(info: dict[str, Any]) -> int:
    """Data-parallel replicas behind one address: each has a cache and a random state of its own."""
    size = info.get("dp_size")
    return size if isinstance(size, int) and size > 0 else 1


def _cache(server: Server, length: int, salt: int, seen: dict[str, Any], replicas: int) -> None:
    """Tokens taken from the prefix cache when the same prompt comes again, to whichever replica: the most of them."""
    ids = prompt(length, salt)
    generate(server, ids, 4)
    time.sleep(0.3)
    for _ in range(2 * replicas):
        if (cached := _cached(generate(server, ids, 4))) is not None:
            seen["cached_tokens_repeat"] = max(cached, seen.get("cached_tokens_repeat", 0))
        if seen.get("cached_tokens_repeat"):
            break
    answer = server.ask("/v1/completions", {"model": "m", "prompt": ids, "max_tokens": 2, "temperature": 0}, 60)
    got = answer.json()
    if answer.status == 200 and isinstance(got, dict):
        details = (got.get("usage") or {}).get("prompt_tokens_details")
        seen["usage_cached_tokens"] = details.get("cached_tokens") if isinstance(details, dict) else None


def _chunk(
    server: Server, info: dict[str, Any], limit: int, salt: int, seen: dict[str, Any], gaps: dict[str, str]
) -> None:
    """A prompt longer than one chunk; what prefill batches were made of it is in the log."""
    size = info.get("chunked_prefill_size")
    if not isinstance(size, int) or size <= 0:
        return
    length = size + max(size // 2, 8)
    if length > min(limit - 8, LONGEST):
        gaps["largest_prefill"] = f"no prompt longer than one chunk of {size} tokens fits: longest is {limit}"
        return
    answer = generate(server, prompt(length, salt + 1), 1)
    if answer.status == 200:
        seen["long_prompt"] = length


def _names(server: Server, seen: dict[str, Any]) -> None:
    models = server.ask("/v1/models").json()
    if isinstance(models, dict) and models.get("data"):
        seen["served_model"] = str(models["data"][0].get("id"))
    seen["status_without_key"] = server.ask("/v1/models", key=False).status
    seen["metrics_status"] = server.ask("/metrics").status


def _stream(server: Server, info: dict[str, Any], salt: int, seen: dict[str, Any]) -> None:
    """How many tokens come in one event of a stream (after the first)."""
    interval = info.get("stream_interval")
    interval = interval if isinstance(interval, int) and interval > 0 else 4
    if interval > 64:
        return  # as many tokens as would show it are more than this proof asks for
    tokens = 4 * interval
    data = {
        "input_ids": prompt(8, salt + 2), "stream": True,
        "sampling_params": {"temperature": 0, "max_new_tokens": tokens, "ignore_eos": True},
    }  # fmt: skip
    counts: list[int] = []
    try:
        for event in server.stream("/generate", data):
            count = event.get("meta_info", {}).get("completion_tokens") if isinstance(event, dict) else None
            if isinstance(count, int):
                counts.append(count)
    except OSError:
        return
    steps = [b - a for a, b in pairwise(counts) if b > a]
    # the first and the last may be shorter; on a busy machine some come together
    if inner := steps[1:-1] or steps:
        seen["stream_step"] = min(inner)


def _sampling(server: Server, salt: int, seen: dict[str, Any], replicas: int) -> None:
    """Whether a sampling seed makes sampling repeat itself (only deterministic inference honours it).

    Two seeds in turn, so often that one replica gets the same one again: replicas that were started with the same
    random state answer alike once, whatever the seed.
    """
    ids = prompt(12, salt + 3)
    texts: dict[int, list[Any]] = {7: [], 8: []}
    for number in range(2 * replicas + 3):
        seed = 7 + number % 2
        got = generate(server, ids, 10, temperature=1.0, sampling_seed=seed).json()
        texts[seed].append(got.get("output_ids") or got.get("text") if isinstance(got, dict) else None)
    first, second = texts[7], texts[8]
    if all(first) and all(second):
        alike = all(text == first[0] for text in first) and all(text == second[0] for text in second)
        seen["seed_repeats"] = alike and first[0] != second[0]


def _context(server: Server, limit: int, salt: int, seen: dict[str, Any], gaps: dict[str, str]) -> None:
    """A prompt that just fits, where that is cheap, and one that does not."""
    if limit > 8192:
        gaps["status_too_long"] = f"a prompt of {limit} tokens is more than this proof sends"
        return
    seen["status_too_long"] = generate(server, prompt(limit + 64, salt + 4), 1).status


def load(server: Server, batch: int, length: int, tokens: int, salt: int, timeout: float = 120) -> list[int]:
    """`batch` requests at once; the HTTP status of each."""
    statuses = [0] * batch

    def one(index: int) -> None:
        statuses[index] = generate(server, prompt(length, salt + 100 + index), tokens, timeout).status

    threads = [threading.Thread(target=one, args=(i,), daemon=True) for i in range(batch)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout)
    return statuses


def outputs(server: Server, limit: int) -> list[dict[str, Any]]:
    """Greedy answers to the fixed prompts, and to the one with a needle in it."""
    out: list[dict[str, Any]] = []
    for length in FIXED:
        if length + 20 > limit:
            continue
        answer = generate(server, prompt(length, 1000 + length), 16, logprobs=True)
        got = answer.json()
        row: dict[str, Any] = {"name": f"{length} tokens", "status": answer.status}
        if isinstance(got, dict):
            row.update(text=got.get("text"), ids=got.get("output_ids"))
            told = got.get("meta_info", {}).get("output_token_logprobs")
            if isinstance(told, list) and all(isinstance(t, list) and isinstance(t[0], float) for t in told):
                row["logprobs"] = [round(t[0], 4) for t in told]
        out.append(row)
    filler = "The grass is green. The sky is blue. The sun is yellow. Here we go. "
    times = max(1, min(12, (limit - 160) // (2 * len(filler))))  # fits also where every byte is a token
    text = filler * times + NEEDLE + " " + filler * times + "The secret number of the north gate is"
    answer = generate(server, text, 12, ignore_eos=False)
    got = answer.json()
    out.append({"name": "needle", "status": answer.status, "text": got.get("text") if isinstance(got, dict) else None})
    return out
