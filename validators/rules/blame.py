"""Which of the flags in a condition led to a stop: the one without which it would not be met for certain."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import lru_cache

from validators.rules.context import Context

_WORD = re.compile(r"[\w-]+")


def blamed(c: Context, text: str, concerned: Iterable[str], met: Callable[[Context], bool], symbol: str = "") -> str:
    """The likeliest cause by the text that is raised, among flags whose absence would let the start go on; else "".

    `symbol` is the function that raises: one about speculative decoding refuses its own settings first.
    """
    ours = "speculative-" if any(word in symbol for word in ("speculative", "eagle")) else "-"

    def order(name: str) -> tuple[bool, int, int, str]:
        return (not (name.startswith(ours) and name != "speculative-algorithm"), *_weight(c, name, text), name)

    for flag in sorted(concerned, key=order):
        rest = {name: value for name, value in c.args.items() if name != flag}
        if not met(Context(c.case, c.release, rest, c.sm_text)):
            return flag
    return ""


@lru_cache(maxsize=4096)
def _words(text: str) -> tuple[str, ...]:
    return tuple(word.strip("-").replace("_", "-") for word in _WORD.findall(text.lower()))


def _weight(c: Context, flag: str, text: str) -> tuple[int, int]:
    """A flag whose name or value the text names is the likelier cause, and the first named is what it is about."""
    words = _words(text)
    value = str(c.args.get(flag)).lower().replace("_", "-")
    for rank, word in enumerate((flag, value)):
        if word in words:
            return rank, words.index(word)
    return 2, 0
