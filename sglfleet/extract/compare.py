"""What changed from one SGLang release to another, for review: flags, defaults, choices, pins, variables, gates."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from validators.knowledge.model import Flag, Sglang


@dataclass(frozen=True, slots=True)
class Change:
    """One difference."""

    part: str  # "flag", "pin", "env", "gate", "predicate", "automatic"
    kind: (
        str  # "added", "removed", "renamed", "choices", "default", "deprecated", "opened", "closed", "moved", "changed"
    )
    name: str
    text: str = ""

    def __str__(self) -> str:
        return f"{self.part} {self.kind}: {self.name}" + (f": {self.text}" if self.text else "")


def compare(old: Sglang, new: Sglang) -> list[Change]:
    """All changes, by part, kind and name."""
    found = [*flags(old, new), *pins(old, new), *variables(old, new), *predicates(old, new), *gates(old, new)]
    order = ("pin", "flag", "env", "predicate", "gate", "automatic")
    return sorted(found, key=lambda c: (order.index(c.part), c.kind, c.name, c.text))


def flags(old: Sglang, new: Sglang) -> Iterator[Change]:
    """A flag is the same one as long as any of its old spellings is still understood."""
    seen: set[str] = set()
    for flag in old.flags.values():
        now = next((f for s in flag.spellings if (f := new.flag(s))), None)
        if now is None:
            other = _renamed(flag, old, new)
            if other:
                seen.add(other.name)
                yield Change("flag", "renamed", flag.name, f"now {other.name}; the old spelling is refused")
            else:
                yield Change("flag", "removed", flag.name)
            continue
        seen.add(now.name)
        yield from _changed(flag, now)
    for flag in new.flags.values():
        if flag.name not in seen:
            yield Change("flag", "added", flag.name, flag.help)
    yield from abbreviations(old, new)


def _renamed(flag: Flag, old: Sglang, new: Sglang) -> Flag | None:
    """An added flag with the same field, or with exactly the same help."""
    added = [f for f in new.flags.values() if not any(old.flag(s) for s in f.spellings)]
    same_field = [f for f in added if f.field and f.field == flag.field]
    same_help = [f for f in added if f.help and f.help == flag.help]
    return next(iter([*same_field, *same_help]), None)


def _changed(flag: Flag, now: Flag) -> Iterator[Change]:
    if now.name != flag.name:
        yield Change("flag", "renamed", flag.name, f"now {now.name}; the old spelling still works")
    if (flag.choices is None) != (now.choices is None):
        yield Change("flag", "choices", now.name, f"{_shown(flag.choices)} → {_shown(now.choices)}")
    elif flag.choices is not None and now.choices is not None and set(flag.choices) != set(now.choices):
        gone, come = set(flag.choices) - set(now.choices), set(now.choices) - set(flag.choices)
        parts = [f"+{c}" for c in sorted(map(str, come))] + [f"-{c}" for c in sorted(map(str, gone))]
        yield Change("flag", "choices", now.name, " ".join(parts))
    if (flag.default, flag.default_source) != (now.default, now.default_source):
        before, after = (f.default_source or repr(f.default) for f in (flag, now))
        yield Change("flag", "default", now.name, f"{before} → {after}")
    if (flag.kind, flag.type, flag.nargs) != (now.kind, now.type, now.nargs):
        before, after = (f"{f.kind} {f.type}" + (f" nargs={f.nargs}" if f.nargs else "") for f in (flag, now))
        yield Change("flag", "changed", now.name, f"{before} → {after}")
    if now.refused and not flag.refused:
        yield Change("flag", "removed", now.name, f"stops the start: {now.refused}")
    elif now.deprecated and not flag.deprecated:
        yield Change("flag", "deprecated", now.name, f"use {now.replacement}" if now.replacement else "")


def abbreviations(old: Sglang, new: Sglang) -> Iterator[Change]:
    """Full spellings of the old release that the new one only understands as a prefix, or no longer can tell apart."""
    for flag in old.flags.values():
        for spelling in flag.spellings:
            resolved = new.resolve_spelling(spelling)
            if resolved.ambiguous:
                yield Change("flag", "changed", spelling, f"now ambiguous: {', '.join(resolved.candidates)}")


def pins(old: Sglang, new: Sglang) -> Iterator[Change]:
    for name, kind in _keys(old.pins, new.pins):
        before, after = old.pins.get(name), new.pins.get(name)
        if kind != "both":
            held = after or before
            yield Change("pin", kind, name, held.specifier if held else "")
        elif before and after and before.specifier != after.specifier:
            yield Change("pin", "changed", name, f"{before.specifier or 'any'} → {after.specifier or 'any'}")
    if old.python != new.python:
        yield Change("pin", "changed", "python", f"{old.python} → {new.python}")


def variables(old: Sglang, new: Sglang) -> Iterator[Change]:
    for name, kind in _keys(old.env, new.env):
        if kind != "both":
            yield Change("env", kind, name)
        elif (old.env[name].default, old.env[name].type) != (new.env[name].default, new.env[name].type):
            yield Change("env", "changed", name, f"{old.env[name].default!r} → {new.env[name].default!r}")


def predicates(old: Sglang, new: Sglang) -> Iterator[Change]:
    """What a name for a set of GPUs means: `is_blackwell` has meant three things."""
    before, after = ({(p["file"], p["name"]): p for p in release.predicates} for release in (old, new))
    for key, kind in _keys(before, after):
        if kind == "both" and before[key].get("sms") != after[key].get("sms"):
            yield Change("predicate", "changed", key[1], f"{_sms(before[key])} → {_sms(after[key])} ({key[0]})")


def gates(old: Sglang, new: Sglang) -> Iterator[Change]:
    """Sites by function and what they raise; a site that only went to another file counts as moved."""
    before, after = _sites(old), _sites(new)
    gone = {key: row for key, row in before.items() if key not in after}
    for key, row in after.items():
        label = f"{row['symbol']}: {row.get('text') or row.get('condition', '')}"[:160]
        if key in before:
            yield from _gate(label, before[key], row)
            continue
        moved = next((k for k, r in gone.items() if k[1:] == key[1:] or _same(r, row)), None)
        if moved is None:
            yield Change("gate", "added", label, f"passes {_sms(row)} ({row['file']}:{row['line']})")
        else:
            was = gone.pop(moved)
            yield Change("gate", "moved", label, f"{was['file']} → {row['file']}")
            yield from _gate(label, was, row)
    for row in gone.values():
        label = f"{row['symbol']}: {row.get('text') or row.get('condition', '')}"[:160]
        yield Change("gate", "removed", label, f"{row['file']}:{row['line']}")


def _gate(label: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Change]:
    if before.get("sms") == after.get("sms"):
        return
    if before.get("sms") is None or after.get("sms") is None:
        yield Change("gate", "changed", label, f"{_sms(before)} → {_sms(after)}")
        return
    come, gone = set(after["sms"]) - set(before["sms"]), set(before["sms"]) - set(after["sms"])
    if come:
        yield Change("gate", "opened", label, "for " + ", ".join(sorted(come, key=float)))
    if gone:
        yield Change("gate", "closed", label, "for " + ", ".join(sorted(gone, key=float)))


def _sites(release: Sglang) -> dict[tuple[Any, ...], Mapping[str, Any]]:
    """Rows by file, function, and what they say; repeated ones are numbered in source order."""
    raised = release.sites.get("raises", []) if isinstance(release.sites, Mapping) else release.sites
    found: dict[tuple[Any, ...], Mapping[str, Any]] = {}
    for row in raised:
        base = (row["file"], row["symbol"], row.get("text") or row.get("condition", ""))
        number = 0
        while (*base, number) in found:
            number += 1
        found[(*base, number)] = row
    return found


def _same(left: Mapping[str, Any], right: Mapping[str, Any]) -> bool:
    return bool(left.get("text")) and left.get("text") == right.get("text")


def _keys(old: Mapping[Any, Any], new: Mapping[Any, Any]) -> Iterator[tuple[Any, str]]:
    for name in sorted({*old, *new}):
        yield name, "both" if name in old and name in new else "added" if name in new else "removed"


def _shown(choices: tuple[Any, ...] | None) -> str:
    return "any value" if choices is None else ", ".join(map(str, choices))


def _sms(row: Mapping[str, Any]) -> str:
    sms = row.get("sms")
    return "unknown" if sms is None else ", ".join(sms) or "none"
