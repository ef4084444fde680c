"""What was asked, what the process was given, what the engine made of it: one row per argument. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from sglfleet.verify.evidence import Seen, as_text, find
from validators.verdict import Decision, Verdict

ABSENT = "—"
LEFT = {Decision.DROP: "left out", Decision.REPLACE: "replaced"}
_CHANGES = re.compile(
    r"\b(set to|setting|chang|adjust|overrid|overwrit|disabl|enabl|fall|forc|instead|because|ignor|reduc|increas)",
    re.I,
)
_DEPRECATED = re.compile(
    r"--(?P<old>[\w-]+) is deprecated.*?use (?:'|`)?--(?P<new>[\w-]+)(?:=(?P<value>\S+?))?(?:'|`)?(?: instead|\.|$)"
)


@dataclass(frozen=True, slots=True)
class Row:
    """One argument."""

    flag: str
    asked: str
    given: str  # in the argv of the running process
    effective: str  # in server_info
    reason: str = ""  # why it differs; "" where it does not
    explained: bool = True  # False: it differs and nothing says why

    def to_json(self) -> dict[str, Any]:
        """Plain data, for reports."""
        return {name: getattr(self, name) for name in ("flag", "asked", "given", "effective", "reason", "explained")}


def table(
    asked: Mapping[str, Any],
    verdicts: Iterable[Verdict],
    seen: Seen,
    fields: Mapping[str, str] | None = None,
    stand_in: Mapping[str, Any] | None = None,
    names: Mapping[str, str] | None = None,
) -> tuple[Row, ...]:
    """All arguments that were asked for, then those the process has besides.

    `fields`: flag -> ServerArgs field, where it is not the flag's own name. `stand_in`: arguments put in after judging,
    in a lab, for what its hosts are not. `names`: other spellings -> the flag's own name.
    """
    names = names or {}
    asked = {names.get(flag, flag): value for flag, value in asked.items()}
    judged = {v.flag: v for v in verdicts}
    fields = fields or {}
    changed = _changes(seen)
    given = {names.get(flag, flag): value for flag, value in given_flags(seen.argv or ()).items()}
    rows = []
    for flag, value in {**asked, **{f: None for f in given if f not in asked and not _skip(f)}}.items():
        field = fields.get(flag) or flag.replace("-", "_")
        values = find(seen.info, field) if seen.info is not None else []
        effective = as_text(values[0]) if values else ABSENT
        want = as_text(value) if flag in asked else ABSENT
        have = given.get(flag, ABSENT)
        compare = want if want != ABSENT else have
        reason, explained = "", True
        if effective not in (ABSENT, compare) and not _alike(effective, compare):
            reason = _why(flag, field, judged.get(flag), changed, seen, stand_in or {})
            explained = bool(reason)
            reason = reason or "the engine changed it and nothing says why"
        elif want != have and want != ABSENT and have != ABSENT and not _alike(want, have):
            reason = (
                _why(flag, field, judged.get(flag), changed, seen, stand_in or {})
                or "the process was given another value"
            )
            explained = reason != "the process was given another value"
        elif have == ABSENT and flag in judged and judged[flag].decision in (Decision.DROP, Decision.REPLACE):
            reason = f"{LEFT[judged[flag].decision]} before launch: {judged[flag].reason}"
        elif flag not in asked:
            reason = "a stand-in of the lab" if flag in (stand_in or {}) else "put in by the deploy"
        rows.append(Row(flag, want, have, effective, reason, explained))
    return tuple(rows)


def given_flags(argv: Iterable[str]) -> dict[str, str]:
    """Flags of a command line -> value as text; a switch is `true`, `--no-x` is x `false`."""
    out: dict[str, str] = {}
    last = ""
    for token in argv:
        if token.startswith("--") and len(token) > 2:
            name, equals, value = token[2:].partition("=")
            if name.startswith("no-") and not equals:
                out[name[3:]] = "false"
                last = ""
                continue
            out[name] = value if equals else "true"
            last = "" if equals else name
        elif last:
            out[last] = token if out[last] == "true" else f"{out[last]} {token}"
    return out


def _skip(flag: str) -> bool:
    return flag in ("host", "port", "model-path", "model", "tokenizer-path", "api-key", "config")


def _alike(a: str, b: str) -> bool:
    """The same but for how it is written."""
    even = [re.sub(r"[\s\"'\[\]]", "", x).lower().replace(",", "") for x in (a, b)]
    if even[0] == even[1]:
        return True
    try:
        return float(even[0]) == float(even[1])
    except ValueError:
        return False


def _changes(seen: Seen) -> dict[str, str]:
    """Field -> the engine's own name for what changed it, where the release tells (0.5.16 and later do, some)."""
    out: dict[str, str] = {}
    for key in ("_resolved_overrides", "_runtime_mutations"):
        for group in find(seen.info or {}, f"internal_states.{key}"):
            for entry in group if isinstance(group, list) else ():
                if isinstance(entry, list) and len(entry) == 2 and isinstance(entry[1], Mapping):
                    out.update({str(field): str(entry[0]) for field in entry[1]})
    return out


def _why(
    flag: str, field: str, verdict: Verdict | None, changed: Mapping[str, str], seen: Seen, stand_in: Mapping[str, Any]
) -> str:
    if flag in stand_in:
        return "a stand-in of the lab, put in after judging"
    if verdict is not None and verdict.decision in (Decision.DROP, Decision.REPLACE):
        return f"{LEFT[verdict.decision]} before launch: {verdict.reason}"
    if verdict is not None and verdict.becomes:
        return f"as judged, it becomes {verdict.becomes}: {verdict.reason}"
    if field in changed:
        return f"the engine's own {changed[field]}"
    words = {flag, field}
    for line in seen.journal.lines if seen.journal else ():
        if line.serving:
            break
        deprecated = _DEPRECATED.search(line.message)
        if deprecated and deprecated["old"] == flag:
            return f"deprecated: stands for --{deprecated['new']}"
        if line.echo or line.message.startswith("server_args="):
            continue
        if _CHANGES.search(line.message) and any(_has(w, line.message) for w in words):
            return f"the engine says: {line.message[:200]}"
    if verdict is not None and str(verdict.value) == "auto":
        return "auto: the engine chose"
    return ""


def _has(word: str, text: str) -> bool:
    return re.search(rf"(?<!\w)(?<!\w-){re.escape(word)}(?![\w-])", text) is not None
