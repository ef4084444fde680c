"""One function per kind of expectation: is what must be there, there? Pure.

Each says `proven` only on evidence that would look different if the flag did nothing. What is merely consistent with
the flag, or was not looked at completely, is `not proven`, and the reason says which.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from sglfleet.verify.evidence import Seen, as_text, find, measured
from sglfleet.verify.look_log import log
from sglfleet.verify.look_trace import ran
from sglfleet.verify.sight import Sight, contradicted, open_, proven
from validators.verdict import Expectation

# what our own requests showed, in words
SHOWN = {
    "largest_prefill": "tokens in the largest prefill batch of a long prompt",
    "cached_tokens_repeat": "tokens found in the cache when a prompt comes again",
    "stream_step": "tokens in one step of a stream",
    "served_model": "the model's name in /v1/models",
    "status_without_key": "HTTP status without the API key",
    "status_too_long": "HTTP status of a prompt that is too long",
    "usage_cached_tokens": "cached tokens reported in an answer",
    "metrics_status": "HTTP status of /metrics",
    "seed_repeats": "the same seed gives the same answer",
    "requests_logged": "requests are in the log",
    "answers_on_port": "the port that answers",
    "listens_on": "the address at which its process listens",
}


@dataclass(frozen=True, slots=True)
class Question:
    """An expectation, and what the answer depends on besides it."""

    expectation: Expectation
    flag: str
    removes: bool = False  # the flag is to act, and it acts by making something go away


def look(question: Question, seen: Seen) -> Sight:
    """Answer one expectation from what was seen."""
    expectation = question.expectation
    pattern = expectation.present or expectation.absent
    if bool(expectation.present) == bool(expectation.absent):
        return open_("the expectation names neither or both of present and absent: mend the rule")
    value = pattern.partition("=")[2] if expectation.kind in ("server_info", "metric", "response") else pattern
    try:
        re.compile(value)
    except re.error as error:
        return open_(f"the expectation is no regular expression ({error}): mend the rule")
    return _KINDS[expectation.kind](question, seen)


def _server_info(question: Question, seen: Seen) -> Sight:
    expectation = question.expectation
    name, _, value = (expectation.present or expectation.absent).partition("=")
    if seen.info is None:
        return open_(seen.gap("server_info", "the server's /server_info was not read"))
    values = [as_text(v) for v in find(seen.info, name)]
    if not values:
        return open_(f"server_info of this release has no {name}")
    shown = (f"server_info {name}={', '.join(sorted(set(values)))}",)
    fits = [bool(re.fullmatch(value, v)) for v in values]
    if expectation.absent:
        if any(fits):
            return contradicted(f"server_info says {name}={values[fits.index(True)]}", shown)
        return proven("server_info does not say so", shown, decisive=False)
    if not all(fits) and measured(name) and (why := _as_divided(name, value, values, seen.info)):
        return proven(why, shown)
    if not all(fits):
        return contradicted(f"server_info says {name}={values[fits.index(False)]}, expected {value}", shown)
    if measured(name):
        return proven("measured by the scheduler, not an argument told back", shown)
    return open_("server_info carries what was resolved, not what runs: its word proves nothing", shown, word=True)


def _as_divided(name: str, wanted: str, values: list[str], info: Mapping[str, Any]) -> str:
    """Why measured numbers are what was asked for all the same: in whole pages, or shared by replicas; "" if not."""
    sizes = [info.get(key) for key in ("page_size", "dp_size")]
    page, replicas = (size if isinstance(size, int) and size > 0 else 1 for size in sizes)
    if not wanted.isdigit() or not all(value.isdigit() for value in values):
        return ""
    number = int(wanted)
    if name == "max_total_num_tokens" and all(int(value) == number // page * page for value in values):
        return f"measured by the scheduler: {number} in whole pages of {page} tokens"
    each = name.endswith("effective_max_running_requests_per_dp") and replicas > 1
    if each and all(int(value) == number // replicas for value in values):
        return f"measured by the scheduler: {number} shared by {replicas} replicas"
    return ""


def _process(question: Question, seen: Seen) -> Sight:
    expectation = question.expectation
    pattern = expectation.present or expectation.absent
    if seen.argv is None and seen.env is None:
        return open_(seen.gap("process", "argv and environment of the process could not be read"))
    texts = [" ".join(seen.argv or ()), *(f"{k}={v}" for k, v in sorted((seen.env or {}).items()))]
    hit = next((text for text in texts if re.search(pattern, text)), None)
    if expectation.absent:
        if hit is not None:
            return contradicted("it is given to the running process", (f"process: {_around(pattern, hit)}",))
        if seen.argv is None:
            return open_(seen.gap("process", "argv of the process could not be read"))
        return proven("it is not given to the running process", ("argv and environment of the main process",))
    if hit is None:
        return contradicted("the running process was not given it", ("argv and environment of the main process",))
    shown = (f"process: {_around(pattern, hit)}",)
    return open_("it is given to the process, which says nothing of what runs", shown, word=True)


def _around(pattern: str, text: str) -> str:
    found = re.search(pattern, text)
    return text[max(0, found.start() - 20) : found.end() + 40] if found else ""


def _metric(question: Question, seen: Seen) -> Sight:
    expectation = question.expectation
    name, _, value = (expectation.present or expectation.absent).partition("=")
    if seen.metrics is None:
        return open_(seen.gap("metrics", "the server shows no metrics: give --enable-metrics"))
    values = [as_text(v) for v in seen.metrics.get(name, ())]
    if not values:
        return open_(f"the server has no metric {name}")
    shown = (f"{name} = {', '.join(values[:4])}",)
    hit = any(re.fullmatch(value, v) for v in values)
    if expectation.absent:
        return contradicted(f"{name} is {value}", shown) if hit else proven(f"{name} is not {value}", shown)
    if not hit:
        return contradicted(f"{name} is {values[0]}, expected {value}", shown)
    return proven("counted by the server", shown)


def _response(question: Question, seen: Seen) -> Sight:
    expectation = question.expectation
    name, _, value = (expectation.present or expectation.absent).partition("=")
    if name not in seen.responses:
        otherwise = seen.gap("responses", f"{name} could not be observed on this server")
        return open_(seen.gap(f"responses.{name}", otherwise))
    got = as_text(seen.responses[name])
    shown = (f"answers to our own requests: {name}={got}",)
    word = SHOWN.get(name, name)
    hit = bool(re.fullmatch(value, got))
    if expectation.absent:
        return contradicted(f"{word}: {got}", shown) if hit else proven(f"{word}: {got}", shown)
    replicas = (seen.info or {}).get("dp_size")
    shared = name == "largest_prefill" and (seen.info or {}).get("enable_dp_attention") is True
    if not hit and shared and isinstance(replicas, int) and value.isdigit() and got == str(int(value) // replicas):
        return proven(f"the server behaves so: {value} shared by {replicas} replicas: {word}: {got}", shown)
    if hit:
        return proven(f"the server behaves so: {word}: {got}", shown)
    return contradicted(f"{word}: {got}, expected {value}", shown)


def _log(question: Question, seen: Seen) -> Sight:
    return log(question.expectation, seen)


def _ran(question: Question, seen: Seen) -> Sight:
    return ran(question.expectation, seen, question.flag, question.removes)


_KINDS: dict[str, Callable[[Question, Seen], Sight]] = {
    "server_info": _server_info,
    "process": _process,
    "metric": _metric,
    "response": _response,
    "log": _log,
    "kernel": _ran,
    "operator": _ran,
}
