"""Writing what `--output` asks for: a path that cannot be written is bad input, not a crash."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from sglfleet.exits import Exit


def write_out(path: str | Path, text: str, *, folders: bool = False) -> None:
    """Write the text (`folders`: make the path's folders, too), or end with one line and exit 2."""
    try:
        if folders:
            Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_text(text, encoding="utf-8")
    except OSError as error:
        what = (error.strerror or str(error)).lower()
        click.echo(f"{path}: cannot be written: {what}: check path and permissions", err=True)
        sys.exit(Exit.BAD_INPUT)
