"""Running programs of the machine: one place, so that every failure names the program and what it said."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Sequence

from lab.settings import LabError


def run(argv: Sequence[str], stdin: str = "", timeout: float = 60) -> str:
    """Standard output of a program. Raises LabError with its message when it fails or takes longer than `timeout` s."""
    try:
        done = subprocess.run(list(argv), input=stdin, capture_output=True, text=True, timeout=timeout, check=False)
    except FileNotFoundError:
        raise LabError(f"{argv[0]}: not installed: `make setup` installs what the lab needs") from None
    except subprocess.TimeoutExpired:
        raise LabError(f"{' '.join(argv)}: no end after {timeout:g} s: look at what it waits for") from None
    if done.returncode:
        said = (done.stderr or done.stdout).strip()
        raise LabError(f"{' '.join(argv)}: exit {done.returncode}: {said}")
    return done.stdout


def succeeds(argv: Sequence[str], timeout: float = 60) -> bool:
    """Whether a program ended with 0."""
    try:
        run(argv, timeout=timeout)
    except LabError:
        return False
    return True


def wait_until(condition: Callable[[], bool], seconds: float, pause: float = 0.02) -> bool:
    """Ask again and again; False where the condition did not come true in time."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(pause)
    return True
