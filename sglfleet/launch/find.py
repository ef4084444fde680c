"""Which form a text has, and the launch commands in it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from sglfleet.launch import manifest, python, shell, template, unit
from sglfleet.launch.command import Launch

__all__ = ["Launch", "in_file", "in_text"]


def in_text(text: str, file: str = "command") -> list[Launch]:
    """Launch commands in pasted text or the content of a file. Raises manifest.ManifestError for broken YAML files."""
    in_python = python.find(text, file)
    if in_python is not None:
        return in_python
    yaml = file.endswith((".yaml", ".yml"))
    if template.is_template(text):
        found = template.through(text, file, _plain, yaml)
        return found if found or yaml else template.through(text, file, _plain, True)
    return _plain(text, file)


def _plain(text: str, file: str) -> list[Launch]:
    """In a text that is no template."""
    if unit.is_unit(text):
        return unit.find(text, file)
    if file.endswith((".yaml", ".yml")):
        return manifest.find(text, file)
    found = shell.find(text, file)
    if found or "\n" not in text or ":" not in text:
        return found
    try:
        return manifest.find(text, file)
    except manifest.ManifestError:
        return []


def in_file(path: Path) -> list[Launch]:
    """Launch commands in a file. Raises OSError, UnicodeDecodeError, manifest.ManifestError."""
    raw = path.read_bytes()
    found = in_text(raw.decode("utf-8").replace("\r\n", "\n"), str(path))
    if b"\r\n" not in raw:
        return found
    note = f"{path}: line ends of Windows: a shell takes them for part of the last word: convert the file"
    return [replace(one, notes=(*one.notes, note)) if one.form == "script" else one for one in found]
