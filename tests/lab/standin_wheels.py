"""Wheels of a stand-in engine, for deploys where the real one would take minutes a host.

They carry the names and versions that release 0.5.23 pins, and nothing of its code: `sglang.launch_server` is
standin_server.py. Its summary says so. No test takes it as proof of what the engine does.
"""

from __future__ import annotations

import io
import tarfile
import zipfile
from pathlib import Path

SGLANG = "0.5.23"
SERVER = Path(__file__).with_name("standin_server.py").read_text(encoding="utf-8")
LAUNCH = """\
import runpy, sys
from pathlib import Path
words = sys.argv[1:]
keep = [w for flag in ("--port", "--mode", "--cut") if flag in words for w in (flag, words[words.index(flag) + 1])]
sys.argv = [sys.argv[0], *keep]
runpy.run_path(str(Path(__file__).with_name("standin_server.py")), run_name="__main__")
"""


def wheel(name: str, version: str, files: dict[str, str], requires: tuple[str, ...] = ()) -> tuple[str, bytes]:
    """(file name, content) of one pure wheel."""
    folder = f"{name.replace('-', '_')}-{version}.dist-info"
    metadata = (
        f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\nSummary: a stand-in for tests, not the engine\n"
    )
    metadata += "".join(f"Requires-Dist: {one}\n" for one in requires)
    everything = {
        **files,
        f"{folder}/METADATA": metadata,
        f"{folder}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    everything[f"{folder}/RECORD"] = "".join(f"{path},,\n" for path in [*everything, f"{folder}/RECORD"])
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for path, text in everything.items():
            archive.writestr(path, text)
    return f"{name.replace('-', '_')}-{version}-py3-none-any.whl", buffer.getvalue()


def wheels(pins: dict[str, str]) -> dict[str, bytes]:
    """All wheels: the stand-in for sglang, and an empty one for each pin."""
    found = dict(wheel(name, version, {}) for name, version in pins.items())
    server = {"sglang/__init__.py": "", "sglang/launch_server.py": LAUNCH, "sglang/standin_server.py": SERVER}
    found.update([wheel("sglang", SGLANG, server, tuple(f"{name}=={version}" for name, version in pins.items()))])
    return found


def archive(files: dict[str, bytes]) -> bytes:
    """The same as a tar, to be unpacked on a host."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return buffer.getvalue()
