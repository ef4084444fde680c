"""Text from outside inside Markdown: nothing in it becomes markup, mentions anyone, or ends what it stands in."""

from __future__ import annotations

import re

from validators.source import printable


def esc(text: str) -> str:
    """Text in which nothing is markup, no one is mentioned and no table cell ends."""
    text = printable(re.sub(r"\s+", " ", text))
    text = text.replace("&", "&amp;").replace("<", "&lt;")
    return re.sub(r"([\\`*_{}\[\]|~#])", r"\\\1", text).replace("@", "@\u200b")


def code(text: str) -> str:
    """A code span that its content cannot leave."""
    text = printable(re.sub(r"\s+", " ", text)).replace("|", "\\|")
    runs = [len(run) for run in re.findall(r"`+", text)]
    fence = "`" * (max(runs, default=0) + 1)
    pad = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{fence}{pad}{text}{pad}{fence}"
