"""What a clean stop looks like per SGLang release. Read in srt/managers/tokenizer_manager.py, `sigterm_watchdog`.

Up to 0.5.18 a drained server ends itself by SIGKILL (`kill_process_tree(os.getpid(), include_parent=True)`); from
0.5.19 it ends its children first and leaves with code 0.
"""

from __future__ import annotations

from dataclasses import dataclass

from packaging.version import InvalidVersion, Version

MARGIN_SEC = 90  # after the last request: 15 s for schedulers, up to 60 s for the rest (0.5.23), and the 5 s poll
_CLEAN = Version("0.5.19")


@dataclass(frozen=True)
class Stopping:
    """Settings of the unit."""

    restart: str
    success: str = ""  # SuccessExitStatus
    reason: str = ""


def of(release: str) -> Stopping:
    """How a release stops; one that is no release number is taken for a new one."""
    try:
        clean = Version(release) >= _CLEAN
    except InvalidVersion:
        clean = True
    if clean:
        return Stopping("on-failure")
    return Stopping(
        "always",
        "SIGKILL",
        f"SGLang {release} ends a clean stop by SIGKILL on itself, so that is no failure; hence Restart=always, as a"
        " kill by the kernel looks the same.",
    )
