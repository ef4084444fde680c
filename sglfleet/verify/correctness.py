"""Is what the server answers right, and not merely an answer? Pure.

A kernel that is wrong for a GPU often answers garbage with HTTP 200. Greedy output of fixed prompts is compared with
the same release without the flag; without such a reference only garbage can be told, and nothing is `proven` by it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from validators.verdict import Status

NEEDLE = "48213"


@dataclass(frozen=True, slots=True)
class Correctness:
    """The answer for one service on one host."""

    status: Status
    reason: str
    details: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Plain data, for reports."""
        return {"status": str(self.status), "reason": self.reason, "details": list(self.details)}


def garbage(row: Mapping[str, Any], reference: Mapping[str, Any] | None = None) -> str:
    """Why an answer is garbage; "" where it is not. What a healthy reference says too is not called garbage."""
    if row.get("status") != 200:
        return f"HTTP {row.get('status')}"
    text, ids = row.get("text"), row.get("ids")
    if reference is not None and (text, ids) == (reference.get("text"), reference.get("ids")):
        return ""
    if text is None and ids is None:
        return "neither text nor tokens"
    if isinstance(ids, Sequence) and len(ids) >= 8 and len(set(ids)) == 1:
        return f"one token, {ids[0]}, {len(ids)} times"
    if isinstance(text, str):
        if not text.strip() and not (ids and len(set(ids)) > 1):
            return "empty text"
        stripped = text.strip()
        if ids is None and len(stripped) >= 12 and len(set(stripped)) == 1:
            return f"one character, {stripped[0]!r}, {len(stripped)} times"
        words = Counter(stripped.split())
        if ids is None and sum(words.values()) >= 10:
            word, count = words.most_common(1)[0]
            return f"one word, {word!r}, again and again" if count >= 0.9 * sum(words.values()) else ""
    return ""


def compare(
    rows: Sequence[Mapping[str, Any]],
    reference: Sequence[Mapping[str, Any]] | None,
    tolerance: float | None = None,
    reads: bool | None = None,
) -> Correctness:
    """Judge the answers.

    `reference`: answers of the same release and model without the flag, None where there are none. `tolerance`: share
    of tokens that may differ. Without one, answers that are not equal are `not proven`: kernels that round otherwise
    part ways somewhere; only when every prompt differs from its first token on it is `contradicted`. `reads`: whether
    the model is known to find a needle; None: only the reference can tell.
    """
    if not rows:
        return Correctness(Status.NOT_PROVEN, "no prompt was answered: the server was not asked")
    known = {str(row.get("name")): row for row in reference or ()}
    details: list[str] = []
    wrong: list[str] = []
    compared = 0
    apart: list[str] = []
    first = 0
    for row in rows:
        name = str(row.get("name"))
        if why := garbage(row, known.get(name)):
            wrong.append(f"{name}: {why}")
            continue
        if name == "needle":
            found = NEEDLE in str(row.get("text"))
            must = reads or (name in known and NEEDLE in str(known[name].get("text")))
            if must and not found:
                wrong.append("needle: not found in a prompt that holds it")
            details.append(f"needle: {'' if found else 'not '}found{'' if must else ' (nothing says that it can be)'}")
            continue
        if name in known:
            differs = _difference(row, known[name])
            compared += 1
            details.append(f"{name}: {differs:.0%} of tokens differ")
            first += _first(row) != _first(known[name])
            if differs:
                apart.append(f"{name}: {differs:.0%} of tokens differ from the service without the flag")
            if tolerance is not None and differs > tolerance:
                wrong.append(f"{name}: {differs:.0%} of tokens differ from the service without the flag")
    texts = "".join(str(row.get("text") or "") for row in rows)
    if texts.count("�") * 2 > len(texts):
        wrong.append(f"{texts.count('�')} of {len(texts)} characters are replacement characters")
    if compared >= 3 and first == compared:
        wrong.append("every prompt is answered otherwise from the first token on than without the flag")
    if wrong:
        return Correctness(Status.CONTRADICTED, wrong[0], (*wrong, *details))
    if not compared:
        why = "no garbage, and nothing to compare with: no answers of this release without the flag"
        return Correctness(Status.NOT_PROVEN, why, tuple(details))
    if tolerance is None and apart:
        why = f"{apart[0]}: other kernels round otherwise, which is no proof of either"
        return Correctness(Status.NOT_PROVEN, why, tuple(details))
    if (most := _logprobs(rows, known)) is not None:
        details.append(f"log-probabilities of the tokens differ by at most {most:.4f}")
    how = f"within {tolerance:.0%} of tokens" if tolerance else "exactly"
    return Correctness(Status.PROVEN, f"{compared} greedy outputs are {how} those without the flag", tuple(details))


def _logprobs(rows: Sequence[Mapping[str, Any]], known: Mapping[str, Mapping[str, Any]]) -> float | None:
    """The largest difference of the log-probability of a token; None where they were not told."""
    gaps = [
        abs(a - b)
        for row in rows
        if row.get("name") in known and row.get("ids") == known[str(row["name"])].get("ids")
        for a, b in zip(row.get("logprobs") or (), known[str(row["name"])].get("logprobs") or (), strict=False)
    ]
    return max(gaps) if gaps else None


def _first(row: Mapping[str, Any]) -> Any:
    answer = row.get("ids") or row.get("text") or ""
    return answer[0] if answer else None


def _difference(row: Mapping[str, Any], reference: Mapping[str, Any]) -> float:
    """Share of tokens that differ, by position; text by character where tokens are not told."""
    one, two = (r.get("ids") or r.get("text") or "" for r in (row, reference))
    if type(one) is not type(two):
        one, two = str(row.get("text")), str(reference.get("text"))
    length = max(len(one), len(two))
    if not length:
        return 0.0
    return float(sum(a != b for a, b in zip(one, two, strict=False)) + abs(len(one) - len(two))) / length
