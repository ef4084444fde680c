"""Templates, strict: a name that is not given is an error, never an empty text."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from sglfleet import systemd

_PLACES = (Path(__file__).parent.parent / "templates", Path(__file__).parent / "_templates")  # checkout, wheel


@cache
def _environment() -> Any:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    # No autoescape: these are units, not HTML; every value passes one of the filters or is checked where it is made.
    env = Environment(  # noqa: S701
        loader=FileSystemLoader([str(p) for p in _PLACES if p.is_dir()]),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    env.filters.update(path=systemd.path, comment=systemd.comment, commandline=systemd.commandline)
    env.globals.update(assignment=systemd.assignment)
    return env


def fill(name: str, /, **values: Any) -> str:
    """The text of one template. Raises jinja2.UndefinedError when the template wants more than is given."""
    text: str = _environment().get_template(name).render(values)
    return text


@cache
def _pages() -> Any:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    return Environment(
        loader=FileSystemLoader([str(p) for p in _PLACES if p.is_dir()]),
        undefined=StrictUndefined,
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def page(name: str, /, **values: Any) -> str:
    """An HTML page: every value is escaped."""
    text: str = _pages().get_template(name).render(values)
    return text
