"""The health gate: does a started server generate sane text? The pure half; `roll/gate.py` asks, on the host.

A port that listens, `/health` 200 and "fired up and ready to roll" prove nothing: the last one is printed also when the
port was taken. Text of several prompts does, from prompts shorter and longer than one prefill chunk.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

# What one request may take: /health sleeps a second on purpose, and answers 503 for 20 s and more while a long prefill
# of somebody else runs. A probe with a time-out of a second flaps; one failure says nothing.
HEALTH_TIMEOUT = 30.0
HEALTH_FAILURES = 3  # in a row, and no request served meanwhile


@dataclass(frozen=True, slots=True)
class Sample:
    """One prompt's answer as `roll/gate.py` reports it."""

    wanted: int  # prompt length asked for, tokens
    prompt_tokens: int = 0  # as the server counted
    text: str = ""
    tokens: tuple[int, ...] = ()  # ids of the generated tokens, empty where the release does not tell
    completion_tokens: int = 0
    error: str = ""


@dataclass(frozen=True, slots=True)
class Gate:
    """The verdict of the gate. `problems` is empty where it passed."""

    problems: tuple[str, ...]
    notes: tuple[str, ...] = ()
    lengths: tuple[int, ...] = ()  # prompt lengths that were answered, tokens
    seconds: float = 0.0

    @property
    def passed(self) -> bool:
        return not self.problems


def insane(sample: Sample) -> str:
    """Why this answer is not text of a working model; empty where it may be."""
    if sample.error:
        return sample.error
    if not sample.text.strip():
        return "empty text"
    if len(sample.tokens) >= 8 and len(set(sample.tokens)) == 1:
        return f"one token repeated {len(sample.tokens)} times: {sample.text[:20]!r}"
    if (
        not sample.tokens
        and len(sample.text.strip()) >= 8
        and re.fullmatch(r"(.{1,4}?)\1{7,}.{0,3}", sample.text.strip(), re.S)
    ):
        return f"one piece of text repeated: {sample.text[:20]!r}"
    if "\ufffd" * 8 in sample.text:
        return "undecodable bytes"
    return ""


def silent(sample: Sample) -> str:
    """The same of a prefill or decode server alone: without its other half its tokens come, but mean nothing."""
    if sample.error:
        return sample.error
    return "" if sample.completion_tokens or sample.tokens or sample.text else "no token"


def judge(answer: Mapping[str, Any], release: str) -> Gate:
    """What `roll/gate.py` printed, judged. `release` is the one that the process must serve."""
    problems: list[str] = []
    notes: list[str] = []
    samples = [_sample(row) for row in answer.get("samples", ())]
    alone = str(answer.get("alone") or "")
    wrong = silent if alone else insane
    if answer.get("error"):
        problems.append(str(answer["error"]))
    if not samples and not problems:
        problems.append("no prompt was answered")
    reasons: dict[str, list[str]] = {}
    for sample in samples:
        if why := wrong(sample):
            reasons.setdefault(why, []).append(str(sample.prompt_tokens or sample.wanted))
    problems += [f"prompt of {', '.join(sizes)} tokens: {why}" for why, sizes in reasons.items()]
    problems += health_problems(answer.get("health", ()), progress=any(not wrong(sample) for sample in samples))
    if (serves := answer.get("release")) is not None and serves != release:
        problems.append(f"the process serves release {serves or 'without a name'}, not {release}")
    if alone:
        notes.append(f"a {alone} server alone: that it makes tokens was seen, not that they are sane")
    chunk = int(answer.get("chunk") or 0)
    answered = tuple(sample.prompt_tokens or sample.wanted for sample in samples if not wrong(sample))
    if chunk > 0 and answered and max(answered) <= chunk:
        notes.append(f"no prompt was longer than one prefill chunk ({chunk} tokens): the context is too short for it")
    return Gate(tuple(problems), tuple(notes), answered, float(answer.get("seconds") or 0.0))


def health_problems(codes: Sequence[int], *, progress: bool) -> list[str]:
    """Single failures say nothing; several in a row do, unless requests were served meanwhile. 0: time-out."""
    tail = 0
    for code in reversed(codes):
        if code == 200:
            break
        tail += 1
    if tail >= HEALTH_FAILURES and not progress:
        return [f"/health failed {tail} times in a row (last {codes[-1] or 'time-out'}), and no token came meanwhile"]
    return []


def _sample(row: Mapping[str, Any]) -> Sample:
    return Sample(
        wanted=int(row.get("wanted", 0)),
        prompt_tokens=int(row.get("prompt_tokens") or 0),
        text=str(row.get("text") or ""),
        tokens=tuple(row.get("tokens") or ()),
        completion_tokens=int(row.get("completion_tokens") or 0),
        error=str(row.get("error") or ""),
    )
