"""Seconds until N lab hosts answer on SSH, and until the lab is gone. Needs root: `lab_up.py [N …]`, else 3 and 20."""

from __future__ import annotations

import os
import sys
import time

sys.path.insert(0, os.path.abspath(f"{__file__}/../.."))  # noqa: PTH100

from lab import machine
from lab.fleet import Lab
from lab.settings import settings


def main(counts: list[int]) -> int:
    """Print one line a size."""
    why = machine.cannot_hold_a_lab()
    if why:
        print("not measured:", "; ".join(why))
        return 0
    lab = Lab(settings(name="bench", network="10.77.248.0/24"))
    for count in counts:
        try:
            start = time.monotonic()
            lab.up(count)
            up = time.monotonic() - start
        finally:
            start = time.monotonic()
            lab.down()
        print(f"{count:3} hosts: up {up:5.1f} s, down {time.monotonic() - start:4.1f} s, load {os.getloadavg()[0]:.1f}")
    return 0


if __name__ == "__main__":
    sys.exit(main([int(one) for one in sys.argv[1:]] or [3, 20]))
