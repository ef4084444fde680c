"""The real SGLang router for lab hosts: built once on the machine, seen by all hosts. A download of some 30 MB.

`python -m lab.router` builds it; tests that need it do so by themselves and skip where nothing can be downloaded.
"""

from __future__ import annotations

import fcntl
import shutil
import subprocess
import sys
from pathlib import Path

from lab.settings import LabError, settings

VERSION = "0.3.2"


def path(cache: Path) -> Path:
    """Where it lies in a cache, built or not."""
    return cache / f"router-{VERSION}"


def build(cache: Path) -> Path:
    """The router's environment, built where it is missing. Raises LabError where it cannot be."""
    venv = path(cache)
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / ".router.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if (venv / "bin" / "python").exists() and _version(venv) == VERSION:
            return venv
        shutil.rmtree(venv, ignore_errors=True)
        # an interpreter that hosts see at the same path and that other users may run
        base = "/usr/bin/python3" if Path("/usr/bin/python3").exists() else sys.executable
        for command in (
            [base, "-m", "venv", str(venv)]
            if not (uv := shutil.which("uv"))
            else [uv, "venv", "-q", "-p", base, str(venv)],
            [uv, "pip", "install", "-q", "-p", f"{venv}/bin/python", f"sglang-router=={VERSION}"]
            if uv
            else [f"{venv}/bin/python", "-m", "pip", "install", "-q", f"sglang-router=={VERSION}"],
        ):
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                last = (done.stderr or done.stdout).strip().splitlines()
                raise LabError(f"{venv}: cannot be built: {last[-1] if last else command}")
        subprocess.run(["chmod", "-R", "a+rX", str(venv)], check=True)
    return venv


def _version(venv: Path) -> str:
    ask = "import importlib.metadata as m; print(m.version('sglang-router'))"
    return subprocess.run([f"{venv}/bin/python", "-c", ask], capture_output=True, text=True, check=False).stdout.strip()


def main() -> None:
    try:
        print(build(settings().cache))
    except LabError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
