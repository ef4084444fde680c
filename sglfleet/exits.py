"""Exit codes of every `sglfleet` command."""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum


class Exit(IntEnum):
    """What the exit code says. Several at once: 2 before 1 before 4 before 3."""

    FINE = 0
    REFUSED = 1  # refused before launch, or contradicted after it
    BAD_INPUT = 2
    STRICT = 3  # only with --strict: downgraded or not proven
    HOST_FAILED = 4

    @classmethod
    def worst(cls, codes: Iterable[Exit]) -> Exit:
        """The one that is reported."""
        rank = (cls.BAD_INPUT, cls.REFUSED, cls.HOST_FAILED, cls.STRICT)
        seen = set(codes)
        return next((code for code in rank if code in seen), cls.FINE)
