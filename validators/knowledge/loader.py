"""Reads one knowledge file per release; plain JSON, parsed on demand, kept for the life of the process.

Two folders are searched: `knowledge/` of the working directory (forks, local builds, newer releases that a project
added itself), then the data shipped here. A release number in the first hides the shipped one.
"""

from __future__ import annotations

import json
import re
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from validators.knowledge import build
from validators.knowledge.model import Flashinfer, Kernels, Sglang

SHIPPED = Path(__file__).parent / "data"
FORMAT = 2  # of the knowledge files; a file of another format is refused, never half understood
Subject = Literal["sglang", "flashinfer", "kernels"]


class UnknownReleaseError(LookupError):
    """Nothing is known of a release; the message says which command adds it."""


class BrokenKnowledgeError(ValueError):
    """A knowledge file cannot be read; the message names it."""


def roots() -> tuple[Path, ...]:
    """Folders that hold knowledge, the first one wins."""
    return tuple(dict.fromkeys(p.resolve() for p in (Path("knowledge"), SHIPPED) if p.is_dir()))


def path_of(subject: Subject, release: str) -> Path | None:
    """The file that holds a release, or None."""
    if "/" in release or release.startswith("."):
        return None
    return next((p for root in roots() if (p := root / subject / f"{release}.json").is_file()), None)


def releases(subject: Subject = "sglang") -> tuple[str, ...]:
    """All releases with knowledge, oldest first; names that are no release numbers come last."""
    names = {p.stem for root in roots() for p in (root / subject).glob("*.json")}
    return tuple(sorted(names, key=_order))


def load_sglang(release: str) -> Sglang:
    """One SGLang release. Raises UnknownReleaseError."""
    path = path_of("sglang", release)
    if path is None:
        raise UnknownReleaseError(f"sglang {release}: {_unknown(release)}")
    return _sglang(path, path.stat().st_mtime_ns)


def _unknown(release: str) -> str:
    """Why nothing is known, and what to do. `latest` and the tag of an image are nothing that could be fetched."""
    number = re.match(r"v?(\d+\.\d+\.\d+(?:\.?(?:post|rc)\d+)?)(?![.\w])", release)
    if number and number[0] == release == number[1]:
        return f"no knowledge of this release: run `sglfleet knowledge add {release}`"
    if number:
        return f"no release's number: write {number[1]}"
    example = next((r for r in reversed(releases()) if r[:1].isdigit()), "0.5.23")
    return (
        f"not one exact release: write its number, such as {example} (`sglfleet knowledge list`), "
        "or add your build with `sglfleet knowledge add --tree PATH --as NAME`"
    )


def load_flashinfer(release: str) -> Flashinfer:
    """One FlashInfer release. Raises UnknownReleaseError."""
    path = path_of("flashinfer", release)
    if path is None:
        raise UnknownReleaseError(
            f"flashinfer-python {release}: no knowledge of this release: "
            f"run `sglfleet knowledge add --flashinfer {release}`"
        )
    return _flashinfer(path, path.stat().st_mtime_ns)


def load_kernels(package: str, release: str) -> Kernels:
    """One release of `sgl-kernel` or `sglang-kernel`. Raises UnknownReleaseError."""
    path = path_of("kernels", f"{package}-{release}")
    if path is None:
        raise UnknownReleaseError(
            f"{package} {release}: no knowledge of this release: "
            f"run `sglfleet knowledge add --kernel {package}=={release}`"
        )
    return _kernels(path, path.stat().st_mtime_ns)


@lru_cache(maxsize=64)
def _sglang(path: Path, _changed: int) -> Sglang:
    return build.sglang(_read(path))


@lru_cache(maxsize=64)
def _flashinfer(path: Path, _changed: int) -> Flashinfer:
    return build.flashinfer(_read(path))


@lru_cache(maxsize=16)
def _kernels(path: Path, _changed: int) -> Kernels:
    return build.kernels(_read(path))


def _read(path: Path) -> dict[str, Any]:
    try:
        raw = json.loads(path.read_bytes())
    except ValueError as error:
        raise BrokenKnowledgeError(f"{path}: not a knowledge file: {error}: extract it again") from None
    if not isinstance(raw, dict) or raw.get("format") != FORMAT:
        found = raw.get("format") if isinstance(raw, dict) else None
        raise BrokenKnowledgeError(f"{path}: format {found!r}, this version reads {FORMAT}: extract it again")
    return raw


def _order(name: str) -> tuple[Any, ...]:
    from packaging.version import InvalidVersion, Version

    number = name.rsplit("-", 1)[-1] if name.startswith(("sgl-kernel-", "sglang-kernel-")) else name
    try:
        return (0, Version(number), name)
    except InvalidVersion:
        return (1, name)
