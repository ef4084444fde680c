"""What a proof came to, in words for somebody who sees one for the first time. Shared by the text and the page."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

LEGEND = {
    "contradicted": "it was looked for, and the opposite was seen: the flag does not do what it says here",
    "not proven": "it could not be seen, or not completely; the reason says what is missing",
    "proven": "something was seen that would look different if the flag did nothing",
}
MARKS = {"proven": "✓", "contradicted": "✗", "not proven": "?"}
DECIDED = {
    "keep": "kept", "warn": "kept with a warning", "drop": "left out", "replace": "replaced", "refuse": "refused",
}  # fmt: skip


def headline(hosts: Iterable[Mapping[str, Any]]) -> str:
    """One sentence over all servers."""
    rows = list(hosts)
    if not rows:
        return "No server was looked at."
    lost = [h for h in rows if h.get("error")]
    wrong = [h for h in rows if not h.get("error") and h.get("status") == "contradicted"]
    flags = {p["flag"] for h in wrong for p in h.get("proofs") or () if p["status"] == "contradicted"}
    garbage = [h for h in wrong if (h.get("correctness") or {}).get("status") == "contradicted"]
    said = []
    if flags:
        does = "does not do what it says" if len(flags) == 1 else "do not do what they say"
        said.append(f"{_named(flags)} {does} on {_servers(wrong, rows)}")
    if garbage:
        said.append(f"the output is wrong on {_servers(garbage, rows)}")
    if lost:
        died = sum(bool(h.get("proofs")) for h in lost)
        word = "could not be looked at" if not died else "could not be looked at to the end, or died"
        said.append(f"{_servers(lost, rows)} {word}")
    if not said:
        seen = sum(p["status"] == "proven" for h in rows for p in h.get("proofs") or ())
        total = sum(len(h.get("proofs") or ()) for h in rows)
        said.append(f"nothing speaks against any flag; {seen} of {total} were seen working")
    text = "; ".join(said)
    return text[0].upper() + text[1:] + "."


def judged(proof: Mapping[str, Any]) -> str:
    """What was decided about a flag before launch."""
    word = DECIDED.get(str(proof["decision"]), str(proof["decision"]))
    return f"judged {proof['outcome']}, {word}" + (", against the judgement" if proof.get("forced") else "")


def _named(flags: set[str]) -> str:
    shown = [f"--{flag}" for flag in sorted(flags)]
    more = " …" if len(shown) > 4 else ""
    return shown[0] if len(shown) == 1 else f"{len(shown)} flags ({', '.join(shown[:4])}{more})"


def _servers(some: list[Any], rows: list[Any]) -> str:
    if len(rows) == 1:
        return "this server"
    return f"{len(some)} of {len(rows)} servers"
