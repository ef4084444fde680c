"""The half of the health gate that runs on the host, through the connection that exists. Standard library only.

Called as `python3 - JSON < gate.py`; prints one JSON object. What is asked is decided here, because the prefill chunk
and the context are known to the server only; what the answers mean is judged on the controller (`sglfleet/health.py`).
Runs on any Python from 3.8 on.
"""

from __future__ import annotations

import json
import sys
import time
import urllib.error
import urllib.request
from typing import Any

SHORT = 8  # tokens, roughly
NEW_TOKENS = 24
ALONE = {"bootstrap_host": "2.2.2.2", "bootstrap_room": 0}  # SGLang's own warm-up of a prefill or decode server
SUBJECTS = ("rivers", "bridges", "glaciers", "harbours", "orchards", "railways", "lanterns", "quarries")


def call(
    job: dict[str, Any], path: str, body: Any = None, timeout: float = 30.0, method: str | None = None
) -> tuple[int, str]:
    """(status, text) of one request; status 0 where there was no answer."""
    headers = {"Content-Type": "application/json"}
    try:
        if job.get("key_file"):
            with open(job["key_file"], encoding="utf-8") as file:  # noqa: PTH123  (this file stands alone)
                headers["Authorization"] = "Bearer " + file.read().strip()
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(job["url"] + path, data=data, headers=headers, method=method)  # noqa: S310
        direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with direct.open(request, timeout=timeout) as answer:
            return answer.status, answer.read().decode("utf-8", "replace")
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode("utf-8", "replace")[:300]
    except (OSError, ValueError) as error:
        return 0, str(error)


def document(job: dict[str, Any], *paths: str) -> Any:
    """The first of these paths that answers with JSON, else an empty object."""
    for path in paths:
        status, text = call(job, path)
        if status == 200:
            try:
                return json.loads(text)
            except ValueError:
                continue
    return {}


def running(job: dict[str, Any]) -> int | None:
    """Requests that run or wait, None where this release does not tell."""
    loads = document(job, "/v1/loads?include=core", "/get_load")
    rows = loads.get("loads", []) if isinstance(loads, dict) else loads
    counts = []
    for row in rows:
        if "num_running_reqs" in row:
            counts.append(int(row["num_running_reqs"]) + int(row.get("num_waiting_reqs") or 0))
        elif "num_reqs" in row:
            counts.append(int(row["num_reqs"]))
    return sum(counts) if counts else None


def lengths(chunk: int, context: int) -> list[int]:
    """Prompt lengths in tokens: short, a page, and below, above and twice the prefill chunk, as the context allows.

    `chunk` <= 0 means that the release prefills in one piece; `context` <= 0 that it does not tell.
    """
    # a tenth of room: how many tokens a text has is known only when the server has counted them
    longest = max(SHORT, (context - NEW_TOKENS) * 9 // 10) if context > 0 else 4096
    chosen = {SHORT, min(200, longest)}
    if chunk > 0:
        chosen |= {size for size in (chunk * 9 // 10, chunk * 11 // 10, chunk * 22 // 10) if SHORT < size <= longest}
    if chunk <= 0 or chunk > longest:
        chosen.add(min(longest, 2048))
    return sorted(chosen)


def prompt(words: int, salt: int = 0) -> str:
    """English of so many words that does not ask to be repeated. Another `salt`: no prefix cache helps."""
    text: list[str] = []
    number = 7 + salt % 997
    while len(text) < words:
        number = number * 31 % 1009
        sentence = "In %d the people of this valley counted %d %s." % (  # noqa: UP031
            1500 + number % 480,
            number,
            SUBJECTS[number % len(SUBJECTS)],
        )
        text += sentence.split()
    return " ".join(text[:words])


def generate(job: dict[str, Any], text: str, timeout: float) -> dict[str, Any]:
    """One prompt. Sampled at temperature 1: a healthy model does not repeat one token then, a broken one still does."""
    sampling = {"temperature": 1.0, "max_new_tokens": NEW_TOKENS, "ignore_eos": True}
    body: dict[str, Any] = {"text": text, "sampling_params": sampling}
    if job.get("alone"):
        body.update(ALONE)
    status, answer = call(job, "/generate", body, timeout)
    if status != 200:
        return {"error": "POST /generate: {}: {}".format(status or "no answer", answer[:200])}
    try:
        row = json.loads(answer)
        meta = row.get("meta_info", {})
        return {
            "text": row.get("text", ""),
            "tokens": row.get("output_ids") or [],
            "prompt_tokens": meta.get("prompt_tokens"),
            "completion_tokens": meta.get("completion_tokens"),
        }
    except (ValueError, AttributeError) as error:
        return {"error": f"POST /generate: unreadable answer: {error}"}


def gate(job: dict[str, Any]) -> dict[str, Any]:
    """Samples of several prompt lengths, and what /health said."""
    began = time.monotonic()
    end = began + job["deadline"]
    health: list[int] = []
    while len(health) < job["health_failures"] and time.monotonic() < end:
        health.append(call(job, "/health", timeout=max(1.0, min(job["health_timeout"], end - time.monotonic())))[0])
        if health[-1] == 200:
            break
        time.sleep(1)
    info = document(job, "/server_info", "/get_server_info")
    alone = info.get("disaggregation_mode")
    alone = alone if alone in ("prefill", "decode") else ""
    chunk = int(info.get("chunked_prefill_size") or 0)
    sizes = (info.get("context_length") or info.get("max_req_input_len"), info.get("max_total_num_tokens"))
    context = min([int(size) for size in sizes if size and int(size) > 0], default=0)
    samples: list[dict[str, Any]] = []
    per_word = 1.5  # tokens a word, corrected by what the server counts
    for wanted in [SHORT] if job.get("quick") else lengths(chunk, context):
        left = end - time.monotonic()
        if left <= 0:
            samples.append({"wanted": wanted, "error": "the deadline of {:.0f} s passed".format(job["deadline"])})
            break
        words = max(4, int(wanted / per_word))
        sample = generate({**job, "alone": alone}, prompt(words, job.get("salt", 0)), left)
        sample["wanted"] = wanted
        samples.append(sample)
        if sample.get("error"):
            break
        if sample.get("prompt_tokens"):
            per_word = max(0.5, sample["prompt_tokens"] / words)
    seconds = round(time.monotonic() - began, 2)
    told = {"samples": samples, "health": health, "chunk": chunk, "context": context, "seconds": seconds}
    return {**told, "alone": alone}


def main() -> None:
    job = json.loads(sys.argv[1])
    what = job.get("what", "gate")
    if what == "running":
        answer: dict[str, Any] = {"running": running(job)}
    elif what == "http":
        status, text = call(job, job["path"], job.get("body"), job.get("timeout", 15.0), job.get("method"))
        answer = {"status": status, "text": text}
    else:
        answer = gate(job)
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
