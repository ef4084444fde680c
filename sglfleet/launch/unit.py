"""Launch commands in systemd units, hand-written ones included: ExecStart, Environment, and the script it calls."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from sglfleet.launch import shell
from sglfleet.launch.command import Launch, expand, from_words


def is_unit(text: str) -> bool:
    return bool(re.search(r"^\[Service\]\s*$", text, re.MULTILINE))


def find(text: str, file: str) -> list[Launch]:
    """The launch command of every ExecStart. A script that it calls is read if it lies beside the unit."""
    env: dict[str, str] = {}
    out: list[Launch] = []
    for line, key, value in _settings(text):
        if key == "Environment":
            for word in _split(value):
                name, equals, rest = word.partition("=")
                if equals:
                    env[name] = rest
        if key != "ExecStart" or not value:
            continue
        words = [expand(w.replace("%%", "%"), env) for w in _split(re.sub(r"^[-@:+!]+", "", value))]
        launch = from_words(words, f"{file}:{line}", dict(env), "unit") if not _bare(words) else None
        if launch:
            out.append(launch)
        elif len(words) > 1 and words[1] in ("-c", "-lc"):
            out += [_with_env(found, env) for found in shell.find(words[-1], f"{file}:{line}", "unit")]
        else:
            out += _script(words, file, env)
    return out


def _bare(words: list[str]) -> bool:
    return not words or words[0].startswith("-")


def _script(words: list[str], file: str, env: dict[str, str]) -> list[Launch]:
    named = next((w for w in reversed(words) if w.endswith(".sh")), words[-1] if words else "")
    beside = Path(file).parent / Path(named).name
    if not named or not beside.is_file():
        return []
    found = shell.find(beside.read_text(encoding="utf-8", errors="replace"), str(beside), "unit", env)
    return [_with_env(launch, env) for launch in found]


def _with_env(launch: Launch, env: dict[str, str]) -> Launch:
    from dataclasses import replace

    return replace(launch, env={**env, **launch.env})


def _settings(text: str) -> list[tuple[int, str, str]]:
    """(line, key, value) with continued lines joined."""
    out: list[tuple[int, str, str]] = []
    held: tuple[int, str] | None = None
    for number, raw in enumerate(text.splitlines(), 1):
        if held is None and raw.lstrip()[:1] in ("#", ";", "["):
            continue
        start, before = held or (number, "")
        if held and raw.lstrip()[:1] in ("#", ";"):
            continue
        joined = before + raw.strip()
        if joined.endswith("\\"):
            held = (start, joined[:-1].rstrip() + " ")
            continue
        held = None
        key, equals, value = joined.partition("=")
        if equals:
            out.append((start, key.strip(), value.strip()))
    return out


def _split(value: str) -> list[str]:
    try:
        return shlex.split(value)
    except ValueError:
        return value.split()
