"""Templates of Helm and Jinja around launch commands: lines that only steer are left out, values stay as they are."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from sglfleet.launch.command import Launch

_LINE = re.compile(r"^(\s*)(\{\{.*\}\}|\{%.*%\}|\{#.*#\})\s*(\\?)\s*$")
_STEERS = re.compile(r"\{\{-?\s*(?:if|else|end|range|with|define|block|/\*|\$\w+\s*:?=)|\{%-?\s*\w+|\{#")
_BRANCHES = re.compile(r"\{[{%]-?\s*(?:if|elif|else|range|for|with)\b")
_VALUE = re.compile(r"\{\{(?:[^{}]|\{(?!\{)|\}(?!\}))*\}\}")
_MARK = "SGLFLEETTEMPLATE{}X"
_MARKED = re.compile(r"SGLFLEETTEMPLATE(\d+)X")

SKIP = "#{{"  # how a line that was left out begins: a comment to YAML, and nothing at all to a shell


@dataclass
class Template:
    """The text that is read instead, and what its marks stand for."""

    text: str
    values: list[str] = field(default_factory=list)
    notes: list[tuple[int, str]] = field(default_factory=list)  # line, what

    def back(self, file: str, launch: Launch) -> Launch:
        """The launch with the template's own words in the places of the marks."""

        def word(text: str) -> str:
            return _MARKED.sub(lambda match: self.values[int(match[1])], text)

        notes = (*map(word, launch.notes), *(f"{file}:{line}: {what}" for line, what in self.notes[:1]))
        env = {name: word(value) for name, value in launch.env.items()}
        return replace(launch, tokens=tuple(map(word, launch.tokens)), env=env, notes=notes)


def is_template(text: str) -> bool:
    """Whether there are lines that only steer, or values that YAML would take for mappings."""
    return any(_LINE.match(line) for line in text.splitlines()) or bool(re.search(r"(?m)^[^#'\"]*:\s*\{\{", text))


def read(text: str, yaml: bool) -> Template:
    """`yaml`: values are marked, as YAML takes braces for a mapping."""
    out = Template("")
    lines = []
    for number, line in enumerate(text.splitlines(), 1):
        alone = _LINE.match(line)
        if alone and _STEERS.match(alone[2]):
            if _BRANCHES.match(alone[2]):
                out.notes.append((number, "a branch or a loop of a template: judged as if every one of them ran, once"))
            lines.append(f"{alone[1]}{SKIP} {alone[3]}".rstrip())
        elif alone and yaml and not alone[3]:
            lines.append(_inserted(lines, alone[1], _mark(out, alone[2])))
        else:
            lines.append(_VALUE.sub(lambda match: _mark(out, match[0]), line) if yaml else line)
    out.text = "\n".join(lines) + "\n"
    return out


def _mark(out: Template, value: str) -> str:
    out.values.append(value)
    return _MARK.format(len(out.values) - 1)


def _inserted(before: list[str], indent: str, mark: str) -> str:
    """Lines that a template inserts: one more item of the list around them, or of the text; else nobody can tell."""
    last = next((line for line in reversed(before) if line.strip() and not line.lstrip().startswith(SKIP)), "")
    if last.lstrip().startswith("- ") and not last.rstrip().endswith(("|", ">", "|-", ">-")):
        return f"{last[: len(last) - len(last.lstrip())]}- {mark}"
    if re.search(r"\b(?:args|command):\s*$", last):
        return f"{last[: len(last) - len(last.lstrip())]}  - {mark}"
    return f"{indent}{SKIP}"


Find = Callable[[str, str], list[Launch]]


def through(text: str, file: str, find: Find, yaml: bool) -> list[Launch]:
    """What `find` finds in the text without its template."""
    template = read(text, yaml)
    return [template.back(file, launch) for launch in find(template.text, file)]
