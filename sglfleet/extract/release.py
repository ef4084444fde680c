"""From a release number, a file or a folder to its knowledge file: fetch, extract, write or compare."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from sglfleet.extract import document, fetch, kernels, pipeline
from sglfleet.extract.gates import gates
from sglfleet.extract.tree import ExtractError, open_tree
from validators.knowledge.loader import FORMAT, SHIPPED

Subject = Literal["sglang", "flashinfer", "kernels"]
PACKAGES: dict[Subject, str] = {"sglang": "sglang", "flashinfer": "flashinfer-python"}
KERNELS = ("sglang-kernel", "sgl-kernel")
FILE = re.compile(r"^(?P<name>[A-Za-z0-9]+(?:[-_.][A-Za-z][A-Za-z0-9]*)*)-(?P<version>\d[^-]*?)(?:-.*\.whl|\.tar\.gz)$")
NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._+-]*$")
DOWNLOAD_LIMIT = 3  # times a kernel wheel's size that must be free; they have up to 1.1 GB


@dataclass(frozen=True, slots=True)
class Target:
    """One knowledge file to make."""

    subject: Subject
    package: str
    version: str
    source: Path | None = None  # a file or folder that is there; None: fetch it

    @property
    def stem(self) -> str:
        return f"{self.package}-{self.version}" if self.subject == "kernels" else self.version

    def path(self, root: Path) -> Path:
        return root / self.subject / f"{self.stem}.json"


def target(package: str, version: str, source: Path | None = None) -> Target:
    """Raises ExtractError for a package nobody knows, and for names that are no file names."""
    normal = re.sub(r"[-_.]+", "-", package).lower()
    version = version if source else released(version)
    if not NAME.match(version):
        raise ExtractError(f"{package} {version}: not a release number or name: letters, digits and . _ + - only")
    for subject, known in PACKAGES.items():
        if normal == known:
            return Target(subject, known, version, source)
    if normal in KERNELS:
        return Target("kernels", normal, version, source)
    known_names = ", ".join((*PACKAGES.values(), *KERNELS))
    raise ExtractError(f"{package} {version}: not a package that can be read: give one of {known_names}")


def released(text: str) -> str:
    """The canonical form of a release number, `v0.5.09` is `0.5.9`; a name that is none stays as it is."""
    from packaging.version import InvalidVersion, Version

    try:
        return str(Version(text))
    except InvalidVersion:
        return text


def from_file(path: Path, name: str | None = None) -> Target:
    """A wheel or sdist by its file name; `name` stands for its version. Raises ExtractError."""
    match = FILE.match(path.name)
    if not match:
        raise ExtractError(f"{path}: its name says no package and version: give a wheel or sdist, or `--tree … --as …`")
    return target(match["name"], name or match["version"], path)


def home(directory: Path) -> Path:
    """Where new knowledge goes: the shipped folder inside a checkout of sglfleet, else `knowledge/` of the project."""
    checkout = SHIPPED.parents[2]
    inside = directory.resolve().is_relative_to(checkout) and (checkout / "pyproject.toml").is_file()
    return SHIPPED if inside else directory / "knowledge"


def extract(wanted: Target, cache: Path, progress: fetch.Progress | None = None) -> dict[str, Any]:
    """The knowledge file's contents. Raises ExtractError, and then nothing was written anywhere."""
    path = wanted.source or fetch.fetch(wanted.package, wanted.version, cache, progress)
    if wanted.subject == "kernels":
        head = {"format": FORMAT, "subject": "kernels", "extractor": pipeline.EXTRACTOR}
        try:
            return kernels.document(path, wanted.package, wanted.version, head)
        finally:
            if wanted.source is None:  # up to 1.1 GB: only the result is kept
                path.unlink(missing_ok=True)
    tree = open_tree(path, wanted.package, wanted.version)
    return pipeline.sglang(tree, gates) if wanted.subject == "sglang" else pipeline.flashinfer(tree)


def add(wanted: Target, root: Path, cache: Path, progress: fetch.Progress | None = None) -> tuple[Path, bool]:
    """Extract and write; returns the file and whether it changed. Raises ExtractError."""
    made = extract(wanted, cache, progress)
    path = wanted.path(root)
    text = document.dump(made)
    if path.is_file() and path.read_text(encoding="utf-8") == text:
        return path, False
    try:
        document.write(made, path)
    except OSError as error:
        raise ExtractError(f"{path}: cannot be written ({error}): check rights and space") from None
    return path, True


def needs(made: dict[str, Any], root: Path, *, with_kernels: bool) -> list[Target]:
    """FlashInfer (and the kernel package) that a SGLang release pins, as far as nothing is known of them yet."""
    found = []
    for row in made.get("pins", ()):
        version = row.get("specifier", "").removeprefix("==")
        if not row.get("specifier", "").startswith("==") or "," in version or "*" in version:
            continue
        if row["name"] == PACKAGES["flashinfer"] or (with_kernels and row["name"] in KERNELS):
            wanted = target(row["name"], version)
            if not wanted.path(root).is_file() and not wanted.path(SHIPPED).is_file():
                found.append(wanted)
    return found


def shipped(root: Path, subjects: tuple[Subject, ...]) -> list[Target]:
    """Everything that has a file below `root`, to make it again."""
    found = []
    for subject in subjects:
        for path in sorted((root / subject).glob("*.json")):
            if subject == "kernels":
                package = next(k for k in KERNELS if path.stem.startswith(f"{k}-"))
                found.append(Target(subject, package, path.stem.removeprefix(f"{package}-")))
            else:
                found.append(Target(subject, PACKAGES[subject], path.stem))
    return found
