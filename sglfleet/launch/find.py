"""Which form a text has, and the launch commands in it."""

from __future__ import annotations

from pathlib import Path

from sglfleet.launch import manifest, shell, unit
from sglfleet.launch.command import Launch

__all__ = ["Launch", "in_file", "in_text"]


def in_text(text: str, file: str = "command") -> list[Launch]:
    """Launch commands in pasted text or the content of a file. Raises manifest.ManifestError for broken YAML files."""
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
    return in_text(path.read_text(encoding="utf-8"), str(path))
