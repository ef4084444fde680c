"""The server's log as evidence: lines of this invocation only, each with its time, process and rank.

A log can lie. A prompt may be echoed into it, a unit's journal holds earlier starts, and one line may take back what an
earlier one announced. So a line counts only with the logger's own prefix, only of the invocation asked for, and lines
that repeat what a client sent are set aside.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

# "[2026-11-29 16:27:44 TP1] text", also after a progress bar on the same line; ranks: TP, DP, PP, EP in any order
_PREFIX = re.compile(r"\[(?P<time>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)(?P<ranks>(?: (?:DP|TP|PP|EP|ATTN_CP|MOE_DP)\d+)*)\] ")
_TP = re.compile(r"\bTP(\d+)\b")
_ECHO = re.compile(r"(Receive|Finish): |(Receive|Finish) (request|batch)|.*\bobj=\w+ReqInput\(|.*\bprompt\s*[=:]", re.I)
READY = "The server is fired up and ready to roll!"
_REQUEST = re.compile(r'INFO:\s+\S+:\d+ - "POST /(?!start_profile|stop_profile|flush_cache)|(Prefill|Decode) batch')


@dataclass(frozen=True, slots=True)
class Line:
    """One record of SGLang's logger."""

    message: str
    time: str = ""  # as the logger wrote it
    rank: int | None = None  # tensor-parallel rank in the prefix; None where the process has none
    pid: int | None = None  # process that wrote it, as the journal saw it; None in a plain file
    number: int = 0  # 1-based, in what was read
    echo: bool = False  # repeats what a client sent: no evidence
    serving: bool = False  # written after the first request was taken
    late: bool = False  # written after the server said that it was ready: clients are there


@dataclass(frozen=True, slots=True)
class Journal:
    """The records of one invocation."""

    lines: tuple[Line, ...]
    main_pid: int | None = None  # the unit's main process: HTTP server and tokenizer, never a scheduler
    from_start: bool = True  # False: the beginning is missing, so the absence of a line proves nothing
    echoes: bool = False  # the server logs its requests
    stray: tuple[str, ...] = ()  # lines without the logger's prefix: warnings of libraries, tracebacks
    error: str = ""  # why there is no journal
    pids: frozenset[int] = field(default_factory=frozenset)

    @property
    def ready(self) -> bool:
        """Whether the server said that it was ready. Also said by one that dies on a taken port: no proof of health."""
        return any(line.message.startswith(READY) for line in self.lines)

    @property
    def ranks(self) -> frozenset[int]:
        """Ranks that wrote anything."""
        return frozenset(line.rank for line in self.lines if line.rank is not None)

    def trusted(self, line: Line) -> bool:
        """Whether a line may be evidence of what a scheduler did.

        Before the first request nothing a client sent can be in the log. Afterwards only a process that is not the
        HTTP server's counts, or, where processes are not known, a log into which no request is written.
        """
        if line.echo:
            return False
        if not line.serving:
            return True
        if line.pid is not None and self.main_pid is not None:
            return line.pid != self.main_pid
        return not self.echoes

    def text(self) -> str:
        """Everything as text, for the diagnosis of a failed start."""
        return "\n".join([*(line.message for line in self.lines), *self.stray])


def from_text(text: str, since: str = "") -> Journal:
    """A log file, or the output of a container: no processes known.

    `since`: when the process started, as its logger writes times. A file that is appended to holds earlier starts:
    their lines are left out, but what they served still counts against lines that a client could have written.
    """
    journal = _build((None, raw) for raw in text.splitlines())
    if not since:
        return journal
    lines = tuple(line for line in journal.lines if line.time >= since)
    begun = any(line.message.startswith("server_args=") for line in lines)
    error = "" if lines else f"the log holds nothing of this start, which was at {since}"
    return replace(journal, lines=lines, from_start=begun, error=error)


def from_journalctl(output: str, invocation: str, main_pid: int | None = None) -> Journal:
    """Output of `journalctl -o json` (one object a line), of which only records of `invocation` count."""
    rows: list[tuple[int | None, str]] = []
    foreign = started = False
    for raw in output.splitlines():
        try:
            entry = json.loads(raw)
        except ValueError:
            continue
        if not isinstance(entry, dict):
            continue
        mine = {entry.get("_SYSTEMD_INVOCATION_ID"), entry.get("INVOCATION_ID"), entry.get("USER_INVOCATION_ID")}
        if invocation not in mine:
            foreign = True
            continue
        if entry.get("_SYSTEMD_INVOCATION_ID") != invocation:  # systemd about the unit, not the unit itself
            started = started or "Starting " in _message(entry) or "Started " in _message(entry)
            continue
        pid = str(entry.get("_PID", ""))
        # a message of several lines is one write of one process: only its first line can carry the logger's prefix
        first, *rest = _message(entry).split("\n")
        rows.append((int(pid) if pid.isdigit() else None, first))
        rows += [(None, "\t" + line) for line in rest]
    journal = _build(iter(rows), main_pid)
    if not rows:
        why = f"the journal holds nothing of invocation {invocation}" + (", only of others" if foreign else "")
        return Journal((), main_pid, from_start=False, error=why)
    if not started and not any(line.message.startswith("server_args=") for line in journal.lines):
        return Journal(journal.lines, main_pid, False, journal.echoes, journal.stray, "", journal.pids)
    return journal


def _message(entry: dict[str, object]) -> str:
    """MESSAGE is text, or an array of bytes where it is no clean UTF-8 (colours, progress bars)."""
    value = entry.get("MESSAGE")
    if isinstance(value, list):
        return bytes(b for b in value if isinstance(b, int)).decode(errors="replace")
    return value if isinstance(value, str) else ""


def _build(rows: Iterable[tuple[int | None, str]], main_pid: int | None = None) -> Journal:
    lines: list[Line] = []
    stray: list[str] = []
    serving = echoes = begun = late = False
    for number, (pid, raw) in enumerate(rows, 1):
        found = _prefix(raw)
        if not found:
            stray.append(raw)
            continue
        message = raw[found.end() :]
        echo = bool(_ECHO.match(message)) and not message.startswith("server_args=")
        echoes = echoes or echo
        begun = begun or message.startswith("server_args=")
        rank = _TP.search(found["ranks"])
        lines.append(Line(message, found["time"], int(rank[1]) if rank else None, pid, number, echo, serving, late))
        late = late or message.startswith(READY)
        serving = serving or message.startswith(READY) or bool(_REQUEST.match(message)) or echo
    pids = frozenset(line.pid for line in lines if line.pid is not None)
    return Journal(tuple(lines), main_pid, begun, echoes, tuple(stray), "", pids)


def _prefix(raw: str) -> re.Match[str] | None:
    """The logger's prefix at the start of a line, or behind a progress bar that was not ended by a newline."""
    found = _PREFIX.match(raw)
    if found:
        return found
    if "it/s]" not in raw and "?it/s" not in raw and "s/it]" not in raw:
        return None
    found = _PREFIX.search(raw)
    return found if found and re.search(r"(it/s|s/it)\]\s*$", raw[: found.start()]) else None
