"""Architecture tests in FlashInfer's own C++: modules that are built for any GPU and refuse to run on most."""

from __future__ import annotations

import re
from typing import Any

from sglfleet.extract.tree import SourceTree

RUNNER = "trtllm/fmha/fmhaRunner.cuh"
_TEST = re.compile(r"FLASHINFER_CHECK\(([^;]*?),\s*\"Unsupported architecture\"", re.DOTALL)
_SM = re.compile(r"kSM_(\d+)(\d)\b")


def runners(tree: SourceTree) -> list[dict[str, Any]]:
    """The runner behind the trtllm-gen attention, with the SMs that its constructor lets through.

    A row like those of the generators: `archs` names exact SMs, `majors` theirs. None where the release has no such
    test; not certain where it is written in another way.
    """
    found = []
    for path in tree.list("", RUNNER):
        text = tree.read(path)
        match = _TEST.search(text)
        archs = [f"{major}.{minor}" for major, minor in _SM.findall(match[1])] if match else []
        row: dict[str, Any] = {
            "key": "TllmGenFmhaRunner",
            "name": "TllmGenFmhaRunner",
            "majors": sorted({int(arch.split(".")[0]) for arch in archs}) or None,
            "archs": archs,
            "always": True,
            "cuda_min": {},
            "source": re.sub(r"\s+", " ", match[1]) if match else "",
            "certain": bool(archs),
            "path": path,
            "symbol": "TllmGenFmhaRunner",
            "line": text[: match.start()].count("\n") + 1 if match else 1,
        }
        found.append(row)
    return found[:1]
