"""Packs the modules that run on hosts into one file of plain Python, so that asking a host takes one command."""

from __future__ import annotations

import base64
import io
import shlex
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
MODULES = ("client", "trace", "workload", "profiler", "process", "collect")


def bundle(modules: tuple[str, ...] = MODULES, entry: str = "collect") -> bytes:
    """A zip that `python3 FILE ARGUMENT` runs. The same input gives the same bytes."""
    files = {"sglfleet/__init__.py": "", "sglfleet/verify/__init__.py": ""}
    files["__main__.py"] = f"from sglfleet.verify.{entry} import main\nmain()\n"
    for name in modules:
        files[f"sglfleet/verify/{name}.py"] = (HERE / f"{name}.py").read_text(encoding="utf-8")
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in sorted(files.items()):
            archive.writestr(zipfile.ZipInfo(name, (2024, 1, 1, 0, 0, 0)), text)
    return out.getvalue()


def script(
    argument: str,
    python: str = "python3",
    modules: tuple[str, ...] = MODULES,
    entry: str = "collect",
    seconds: float = 600,
    nice: int = 0,
) -> str:
    """POSIX sh text that runs the bundle with one argument and leaves nothing behind.

    The argument is on the command line of a short-lived root process of ours: no secrets in it. After `seconds` the
    process and all it started are ended on the host itself, whatever became of the connection. With `nice`, a server
    on the host goes first.
    """
    packed = base64.encodebytes(bundle(modules, entry)).decode()
    return (
        "set -eu\nd=$(mktemp -d)\ntrap 'rm -rf \"$d\"' EXIT\ntrap 'exit 143' HUP INT TERM\n"
        f"base64 -d > \"$d/run.pyz\" <<'END_OF_BUNDLE'\n{packed}END_OF_BUNDLE\n"
        f'p={shlex.quote(python)}\n[ -x "$p" ] || p=$(command -v python3)\n'
        # it leads a group of its own, and the signals go to the whole group
        f'code=0\ntimeout -k 5 {seconds:.0f} nice -n {nice} "$p" -I "$d/run.pyz" {shlex.quote(argument)} || code=$?\n'
        f'[ $code != 124 ] && [ $code != 137 ] || echo "it took longer than {seconds:.0f} s and was ended" >&2\n'
        "exit $code\n"
    )
