"""A published artifact as a tree of source files: a wheel, an sdist, or an unpacked folder. Read, never executed."""

from __future__ import annotations

import ast
import hashlib
import tarfile
import warnings
import zipfile
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path, PurePosixPath

Reader = Callable[[str], bytes]
# what extraction may look at
TEXT = (".py", ".pyi", ".toml", ".txt", ".cfg", "METADATA", "PKG-INFO", "trtllm/fmha/fmhaRunner.cuh")


class ExtractError(Exception):
    """Something cannot be extracted; the message is `where: what is wrong: what to do`, on one line."""


class SourceTree:
    """Files of one artifact, by path below the folder that holds the package: `sglang/srt/server_args.py`.

    `list` and `read` never leave the artifact. Parsed modules are kept, so that every extractor can ask again.
    """

    def __init__(self, package: str, version: str, file: str, sha256: str, paths: Iterable[str], reader: Reader):
        self.package = package  # distribution name, "flashinfer-python"
        self.version = version
        self.file = file
        self.sha256 = sha256
        self._paths = tuple(sorted(paths))
        self._known = frozenset(self._paths)
        self._reader = reader
        self._parsed: dict[str, ast.Module] = {}
        self._texts: dict[str, str] = {}

    @property
    def name(self) -> str:
        """ "sglang-0.5.9": how evidence names it."""
        return f"{self.package}-{self.version}"

    def list(self, prefix: str = "", suffix: str = ".py") -> tuple[str, ...]:
        """Paths that start and end so, sorted."""
        return tuple(p for p in self._paths if p.startswith(prefix) and p.endswith(suffix))

    def has(self, path: str) -> bool:
        return path in self._known

    def read_bytes(self, path: str) -> bytes:
        """Contents of one file. Raises KeyError when it is not there, ExtractError when it cannot be unpacked."""
        if path not in self._known:
            raise KeyError(path)
        try:
            return self._reader(path)
        except (zipfile.BadZipFile, tarfile.TarError, zlib.error, EOFError, OSError) as error:
            raise ExtractError(f"{self.file}: {path}: cannot be unpacked ({error}): fetch it again") from None

    def read(self, path: str) -> str:
        if path not in self._texts:
            self._texts[path] = self.read_bytes(path).decode("utf-8", "replace")
        return self._texts[path]

    def ast(self, path: str) -> ast.Module:
        """The parsed module. Raises KeyError; ExtractError for syntax that this Python does not know."""
        if path not in self._parsed:
            source = self.read(path)
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # invalid escapes are the release's business
                    self._parsed[path] = ast.parse(source, path)
            except (SyntaxError, ValueError) as error:
                raise ExtractError(syntax_message(self.name, path, error)) from None
        return self._parsed[path]

    def module(self, dotted: str) -> str | None:
        """Path of a module or package, or None when it is not in here."""
        base = dotted.replace(".", "/")
        return next((p for p in (f"{base}.py", f"{base}/__init__.py") if p in self._known), None)


def syntax_message(name: str, path: str, error: SyntaxError | ValueError) -> str:
    import platform

    line = getattr(error, "lineno", None) or 0
    what = getattr(error, "msg", None) or str(error)
    return (
        f"{name}: {path}:{line}: Python {platform.python_version()} cannot parse it ({what}): "
        "if the release is written for a newer Python, run sglfleet on that one"
    )


def open_tree(path: Path, package: str, version: str) -> SourceTree:
    """A wheel, an sdist or a folder. Raises ExtractError for anything else and for a file that is cut off."""
    if path.is_dir():
        return _folder(path, package, version)
    if not path.is_file():
        raise ExtractError(f"{path}: no such file or folder: give a wheel, an sdist or an unpacked tree")
    if path.suffix == ".whl":
        return _wheel(path, package, version)
    if path.name.endswith((".tar.gz", ".tgz")):
        return _sdist(path, package, version)
    raise ExtractError(f"{path}: neither a wheel (.whl) nor an sdist (.tar.gz) nor a folder: give one of those")


def _wheel(path: Path, package: str, version: str) -> SourceTree:
    try:
        archive = zipfile.ZipFile(path)
    except (zipfile.BadZipFile, EOFError) as error:
        raise ExtractError(f"{path.name}: not a whole wheel ({error}): fetch it again") from None
    names = [n for n in archive.namelist() if n.endswith(TEXT)]
    return SourceTree(package, version, path.name, file_sha256(path), names, archive.read)


def _sdist(path: Path, package: str, version: str) -> SourceTree:
    contents: dict[str, bytes] = {}
    try:
        with tarfile.open(path, "r:gz") as archive:
            for member in archive:
                inner = member.name.partition("/")[2]
                if member.isfile() and inner.endswith(TEXT):
                    handle = archive.extractfile(member)
                    contents[inner] = handle.read() if handle else b""
    except (tarfile.TarError, EOFError, zlib.error, OSError) as error:
        raise ExtractError(f"{path.name}: not a whole sdist ({error}): fetch it again") from None
    stripped = _below_package(contents, package)
    return SourceTree(package, version, path.name, file_sha256(path), stripped, lambda p: contents[stripped[p]])


def _folder(path: Path, package: str, version: str) -> SourceTree:
    """A checkout or an unpacked wheel; the digest is over all files that may be read, so edits show."""
    files = {
        str(PurePosixPath(found.relative_to(path))): found
        for found in sorted(path.rglob("*"))
        if found.name.endswith(TEXT) and found.is_file() and ".git" not in found.parts
    }
    stripped = _below_package(files, package)
    digest = hashlib.sha256()
    for inner in sorted(stripped):
        digest.update(f"{inner}\0{hashlib.sha256(files[stripped[inner]].read_bytes()).hexdigest()}\n".encode())
    return SourceTree(
        package, version, path.resolve().name, digest.hexdigest(), stripped, lambda p: files[stripped[p]].read_bytes()
    )


def _below_package(names: Iterable[str], package: str) -> dict[str, str]:
    """Path below the import folder -> path in the artifact; `python/sglang/…` of a checkout becomes `sglang/…`."""
    top = {"flashinfer-python": "flashinfer"}.get(package, package.replace("-", "_"))
    names = list(names)
    inits = sorted((n for n in names if n.endswith(f"{top}/__init__.py")), key=lambda n: (n.count("/"), n))
    if not inits:
        raise ExtractError(f"{package}: no folder `{top}` with an __init__.py in it: is this the right artifact?")
    prefix = inits[0].removesuffix(f"{top}/__init__.py")
    kept = {n.removeprefix(prefix): n for n in names if n.startswith(prefix)}
    for outer in names:  # the project's own files of a checkout: README aside, only pyproject.toml says the pins
        if not outer.startswith(prefix) and PurePosixPath(outer).name in ("pyproject.toml", "PKG-INFO"):
            kept.setdefault(outer, outer)
    return kept


def file_sha256(path: Path) -> str:
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()
