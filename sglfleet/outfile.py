"""Writing what `--output` asks for: a path that cannot be written is bad input, not a crash."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import NoReturn

import click

from sglfleet.exits import Exit


def write_out(path: str | Path, text: str, *, folders: bool = False) -> None:
    """Write the text (`folders`: make the path's folders, too), or end with one line and exit 2."""
    try:
        if folders:
            Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_text(text, encoding="utf-8")
    except OSError as error:
        end(path, error)


def rewrite(path: Path, text: str) -> None:
    """Put the text in the place of a person's file: all of it, or the file stays, one line is said, and exit 2."""
    real = path.resolve()
    beside = real.with_name(f".{real.name}.new")
    try:
        beside.write_text(text, encoding="utf-8")
        beside.chmod(real.stat().st_mode & 0o7777)
        beside.replace(real)
    except OSError as error:
        beside.unlink(missing_ok=True)
        end(path, error)


def end(path: str | Path, error: OSError) -> NoReturn:
    """One line about a path that cannot be written, and exit 2."""
    what = (error.strerror or str(error)).lower()
    click.echo(f"{path}: cannot be written: {what}: check path and permissions", err=True)
    sys.exit(Exit.BAD_INPUT)
