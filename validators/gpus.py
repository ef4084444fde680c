"""Names of NVIDIA GPUs and their compute capability, for hardware that is declared before a host exists.

Source: NVIDIA's list of CUDA GPUs. A measured host never needs this table: the driver tells.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

# Longest names first where one begins another: "rtx 6000 ada" is not "rtx 6000".
_SM = {
    "12.1": ("gb10", "dgx spark"),
    "12.0": (
        "rtx pro 6000", "rtx pro 5000", "rtx pro 4500", "rtx pro 4000", "rtx pro 2000", "rtx 6000d",
        "rtx 5090", "rtx 5080", "rtx 5070", "rtx 5060", "rtx 5050",
    ),
    "11.0": ("thor", "jetson thor"),
    "10.3": ("b300", "gb300"),
    "10.0": ("b200", "gb200", "b100"),
    "9.0": ("h200", "h100", "h800", "h20", "gh200"),
    "8.9": (
        "l40s", "l40", "l4", "l20", "l2", "rtx 6000 ada", "rtx 5000 ada", "rtx 4500 ada", "rtx 4000 ada",
        "rtx 2000 ada", "rtx 4090", "rtx 4080", "rtx 4070", "rtx 4060",
    ),
    "8.7": ("orin", "jetson orin"),
    "8.6": (
        "a40", "a10", "a10g", "a16", "a2", "a6000", "a5000", "a4000", "rtx a6000", "rtx a5000", "rtx a4500",
        "rtx a4000", "rtx 3090", "rtx 3080", "rtx 3070", "rtx 3060",
    ),
    "8.0": ("a100", "a800", "a30"),
    "7.5": ("t4", "rtx 2080", "rtx 8000", "quadro rtx 8000", "titan rtx"),
}  # fmt: skip
SMS = ("7.5", "8.0", "8.6", "8.7", "8.9", "9.0", "10.0", "10.3", "11.0", "12.0", "12.1")  # as releases are read for
NAMES = {name: sm for sm, names in _SM.items() for name in names}
_WORD = re.compile(r"[a-z]+\d+[a-z]*|[a-z]+|\d+[a-z]*")
_COUNT = re.compile(r"^(?:(\d+)\s*[x×*]\s*)?(.*?)(?:(?:[\s_-]+|(?<=\d))[x×*]\s*(\d+))?$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Declared:
    """GPUs as a person names them."""

    name: str  # as in NAMES
    sm: str
    count: int
    counted: bool = True  # whether the text says how many; else one is taken


def sm_of(name: str) -> str | None:
    """Compute capability of a product name as people and drivers write it, or None.

    «NVIDIA H200», «NVIDIA RTX PRO 6000 Blackwell Server Edition», «rtx-pro-6000», «H100 80GB HBM3», «A100-SXM4-80GB».
    """
    known = _known(name)
    return NAMES[known] if known else None


def declared(text: str) -> Declared | None:
    """«rtx-pro-6000 x4», «8x H100», «h200» as name, SM and count; None for a name that is not known."""
    match = _COUNT.match(text.strip())
    if match is None:
        return None
    before, name, after = match.groups()
    known = _known(name)
    if known is None or (before and after):
        return None
    return Declared(known, NAMES[known], int(before or after or 1), bool(before or after))


def _known(text: str) -> str | None:
    words = _WORD.findall(text.lower().replace("geforce", ""))
    best = ""
    for name in NAMES:
        parts = _WORD.findall(name)
        for start in range(len(words) - len(parts) + 1):
            if words[start : start + len(parts)] == parts and len(parts) >= len(best.split()) and len(name) > len(best):
                best = name
    return best or None
