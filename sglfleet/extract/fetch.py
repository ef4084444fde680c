"""Gets a published artifact with pip, into a cache. Nothing of it is run: sdists are fetched, never built."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from sglfleet.extract.tree import ExtractError

Progress = Callable[[str, int, int], None]  # file or release, bytes so far, bytes in all (0: not known)
PYTHON = "3.11"  # where wheels differ by platform, CPython 3.11 on Linux x86-64 is read
PLATFORMS = (
    *(f"manylinux_2_{glibc}_x86_64" for glibc in range(39, 16, -1)),
    *("manylinux2014_x86_64", "manylinux2010_x86_64", "manylinux1_x86_64", "linux_x86_64"),
)
NO_NETWORK = re.compile(
    r"Retrying \(|NewConnectionError|ConnectTimeoutError|ReadTimeoutError|name resolution|ProxyError|Connection refused"
    r"|Network is unreachable|SSLError|Could not fetch URL"
)
SDIST = re.compile(r"Skipping link: No sources permitted for \S+: ([^\s#]+)")
VERSIONS = re.compile(r"\(from versions: (.*?)\)")
CHUNK = 1 << 20


def cache_folder() -> Path:
    """Where fetched artifacts stay: `$SGLFLEET_CACHE/wheels`, else below the user's cache folder."""
    named = os.environ.get("SGLFLEET_CACHE")
    base = Path(named) if named else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "sglfleet"
    return base / "wheels"


def fetch(package: str, version: str, cache: Path, progress: Progress | None = None) -> Path:
    """The wheel for CPython 3.11 on Linux x86-64, the sdist where there is none; from the cache where it is there.

    Raises ExtractError: no such release, no network, no pip, no space. The cache only ever holds whole files.
    """
    kept = cached(package, version, cache)
    if kept is not None:
        return kept
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache, prefix=".fetch-") as name:
        folder = Path(name)
        code, text = _pip_download(package, version, folder, progress)
        if code:
            _sdist(package, version, text, folder, progress)
        found = [p for p in folder.iterdir() if p.suffix == ".whl" or p.name.endswith(".tar.gz")]
        if len(found) != 1:
            raise ExtractError(f"{package} {version}: pip fetched {len(found)} files: report this release")
        target = cache / found[0].name
        found[0].replace(target)
        return target


def cached(package: str, version: str, cache: Path) -> Path | None:
    """A file of that release that is there already, the wheel first."""
    if not cache.is_dir():
        return None
    stem = re.sub(r"[-_.]+", "_", package)
    wheels = sorted(p for p in cache.glob("*.whl") if p.name.startswith(f"{stem}-{version}-"))
    sdists = [cache / f"{name}-{version}.tar.gz" for name in (stem, package)]
    return next((p for p in (*wheels, *sdists) if p.is_file()), None)


def available(package: str) -> list[str]:
    """All releases on the index, newest first. Raises ExtractError."""
    code, text = _run([*_pip(), "index", "versions", package])
    found = re.search(r"^Available versions: (.*)$", text, re.MULTILINE)
    if code or not found:
        raise ExtractError(f"{package}: {_reason(text)}")
    return [v.strip() for v in found[1].split(",")]


def _pip() -> list[str]:
    return [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", "--retries", "2"]


def _pip_download(package: str, version: str, folder: Path, progress: Progress | None) -> tuple[int, str]:
    command = [*_pip(), "download", "-vv", "--no-deps", "--only-binary", ":all:", "--progress-bar", "raw"]
    command += ["--implementation", "cp", "--python-version", PYTHON, "--dest", str(folder)]
    for platform in PLATFORMS:
        command += ["--platform", platform]
    return _run([*command, f"{package}=={version}"], lambda done, of: progress and progress(package, done, of))


def _run(command: list[str], progress: Callable[[int, int], object] | None = None) -> tuple[int, str]:
    """Exit code and everything pip said. pip's raw progress lines go to `progress` instead."""
    lines: list[str] = []
    try:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
        )
    except OSError as error:
        raise ExtractError(f"pip: cannot be started ({error}): install pip for {sys.executable}") from None
    with process:
        for line in process.stdout or ():
            match = re.match(r"Progress (\d+) of (\d+)", line)
            if not match:
                lines.append(line)
            elif progress:
                progress(int(match[1]), int(match[2]))
    text = "".join(lines)
    if "No module named pip" in text:
        raise ExtractError(f"pip: not installed for {sys.executable}: install it there (`python -m ensurepip`)")
    return process.returncode, text


def _sdist(package: str, version: str, text: str, folder: Path, progress: Progress | None) -> None:
    """pip would build an sdist to read its metadata, so its link is taken from what pip found, and only fetched."""
    wanted = re.compile(rf"/{re.sub(r'[-_.]+', '[-_.]+', package)}-{re.escape(version)}\.tar\.gz$", re.IGNORECASE)
    link = next((url for url in SDIST.findall(text) if wanted.search(url)), None)
    if link is None:
        raise ExtractError(f"{package} {version}: {_reason(text)}")
    import urllib.error
    import urllib.request

    target = folder / link.rpartition("/")[2]
    try:
        with urllib.request.urlopen(link, timeout=60) as response, target.open("wb") as out:  # noqa: S310 - pip's own link
            size, done = int(response.headers.get("Content-Length") or 0), 0
            while block := response.read(CHUNK):
                out.write(block)
                done += len(block)
                if progress:
                    progress(package, done, size)
    except (urllib.error.URLError, OSError) as error:
        raise ExtractError(f"{package} {version}: its sdist cannot be fetched ({error}): try again") from None
    if size and done != size:
        raise ExtractError(f"{target.name}: {done} of {size} bytes came: try again")


def _reason(text: str) -> str:
    """Why pip found nothing, in one line with what to do."""
    listed = VERSIONS.search(text)
    known = [v.strip() for v in listed[1].split(",")] if listed and listed[1] != "none" else []
    if known:
        return f"no such release for Linux x86-64; the newest on the index is {known[-1]}: check the number"
    if NO_NETWORK.search(text):
        return "the package index cannot be reached: check network and pip's settings, or give a wheel or a folder"
    if "No matching distribution" in text:
        return "the package index has nothing of that name: check name and pip's index settings"
    last = next((line.strip() for line in reversed(text.splitlines()) if "ERROR" in line), "no output")
    return f"pip failed ({last[:200]}): run `pip download` by hand to see more"


def free_bytes(folder: Path) -> int:
    """Space left where a folder is or will be."""
    while not folder.exists():
        folder = folder.parent
    return shutil.disk_usage(folder).free
