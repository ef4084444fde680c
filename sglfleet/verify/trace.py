"""Torch profiler traces, read as a stream and reduced to what really ran.

A trace of a few seconds is hundreds of MB of JSON, nearly all of it Python frames. Only events recorded by the device
(`kernel`, `gpu_memcpy`, `gpu_memset`), by the dispatcher (`cpu_op`) and by the CUDA library (`cuda_runtime`,
`cuda_driver`) count. Python frames and annotations carry any text a programmer or a prompt put there and prove nothing.

This module is also sent to hosts and run there by whatever Python 3 they have: standard library only.
"""

from __future__ import annotations

import gzip
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from json import JSONDecodeError, JSONDecoder
from pathlib import Path
from typing import IO, Any

KERNELS = frozenset({"kernel", "gpu_memcpy", "gpu_memset"})
OPERATORS = frozenset({"cpu_op"})
CALLS = frozenset({"cuda_runtime", "cuda_driver"})
STAGES = {"EXTEND": "prefill", "PREFILL": "prefill", "DECODE": "decode"}  # SGLang's words in the file's name
CHUNK = 1 << 20  # bytes read at a time
BROKEN = 8 << 20  # characters behind a value that does not parse: it is broken, not cut
LIMIT = 64 << 20  # characters one event may have; longer is not a trace
_NAME = re.compile(r"(?:^|-)TP-?(\d+)(?:-DP-?(\d+))?(?:-PP-?\d+)?(?:-EP-?\d+)?(?:-(EXTEND|PREFILL|DECODE))?(?=\.|$)")
_BLANK = re.compile(r"[\s,]*")
# torch's own layout: an event of another category begins like this, and between events stands BETWEEN, which cannot be
# inside one: what is nested is indented further, and text has no raw newlines
_IDLE = re.compile(r'\{\s*"ph": "[A-Za-z]", "cat": "(?!kernel"|gpu_mem|cpu_op"|cuda_)\w+", "name": ')
BETWEEN = "\n  },\n  {"


class BadTraceError(ValueError):
    """The file is not a trace, or ends too early: `file: what is wrong: what to do`."""


@dataclass(frozen=True, slots=True)
class Trace:
    """One trace of one rank, reduced: name -> how often it ran."""

    path: str
    rank: int | None  # as torch recorded it, else from the file's name; None where neither tells it
    stage: str  # "prefill", "decode", or "" where the trace holds both
    kernels: Counter[str] = field(default_factory=Counter)
    operators: Counter[str] = field(default_factory=Counter)  # dispatcher operators and CUDA library calls
    devices: tuple[str, ...] = ()  # SM of the devices the trace names, "9.0"
    world_size: int | None = None
    complete: bool = True  # False: the file ended in the middle; what was read is real, absence proves nothing
    replica: int = 0  # data-parallel rank in the file's name: each has ranks of its own

    def to_json(self) -> dict[str, Any]:
        """Plain data, small enough to travel."""
        return {
            "path": self.path, "rank": self.rank, "stage": self.stage, "kernels": dict(self.kernels),
            "operators": dict(self.operators), "devices": list(self.devices), "world_size": self.world_size,
            "complete": self.complete, "replica": self.replica,
        }  # fmt: skip

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Trace:
        """The reverse of `to_json`."""
        counters = {key: Counter({str(k): int(v) for k, v in data[key].items()}) for key in ("kernels", "operators")}
        return cls(
            str(data["path"]), data["rank"], str(data["stage"]), counters["kernels"], counters["operators"],
            tuple(data["devices"]), data["world_size"], bool(data["complete"]), int(data.get("replica", 0)),
        )  # fmt: skip


def read(path: Path | str) -> Trace:
    """Reduce one trace file (JSON, gzip or not). Raises BadTraceError where it is none."""
    path = Path(path)
    head: dict[str, Any] = {}
    kernels: Counter[str] = Counter()
    operators: Counter[str] = Counter()
    complete = True
    try:
        for event in _events(path, head):
            if type(event) is not dict:
                continue
            category, name = event.get("cat"), event.get("name")
            if type(category) is not str or type(name) is not str or event.get("ph") != "X":
                continue
            if category in KERNELS:
                kernels[name] += 1
            elif category in OPERATORS or category in CALLS:
                operators[name] += 1
    except EOFError:
        complete = False
        if "traceEvents" not in head:
            raise BadTraceError(f"{path.name}: ends before its events: profile again") from None
    except (OSError, UnicodeDecodeError, JSONDecodeError) as error:
        raise BadTraceError(f"{path.name}: not a torch trace ({error}): profile again") from error
    if "traceEvents" not in head:
        raise BadTraceError(f"{path.name}: no traceEvents in it: profile again")
    named, stage, replica = _labels(path.name)
    info = head.get("distributedInfo")
    info = info if isinstance(info, dict) else {}
    rank = info["rank"] if isinstance(info.get("rank"), int) else named  # a file can be renamed; the record cannot
    world = info["world_size"] if isinstance(info.get("world_size"), int) else None
    devices = tuple(
        f"{d['computeMajor']}.{d['computeMinor']}" for d in head.get("deviceProperties") or () if "computeMajor" in d
    )
    return Trace(path.name, rank, stage, kernels, operators, devices, world, complete, replica)


def _labels(name: str) -> tuple[int | None, str, int]:
    """Rank, stage and replica as SGLang writes them into the file's name: `<time>-TP-0-DECODE.trace.json.gz`."""
    found = _NAME.search(name)
    if not found:
        return None, "", 0
    return int(found[1]), STAGES.get(found[3] or "", ""), int(found[2] or 0)


def _events(path: Path, head: dict[str, Any]) -> Iterator[Any]:
    """Each event in turn; everything else at the top level goes into `head` (without the events)."""
    with path.open("rb") as raw:
        zipped = raw.read(2) == b"\x1f\x8b"
        raw.seek(0)
        if not zipped:
            yield from _walk(_Text(raw), head)
            return
        with gzip.open(raw) as stream:
            yield from _walk(_Text(stream), head)


def _walk(text: _Text, head: dict[str, Any]) -> Iterator[Any]:
    opening = text.next()
    if opening == "[":  # a bare array of events is a trace too
        head["traceEvents"] = True
        yield from text.items()
        return
    if opening != "{":
        raise JSONDecodeError("neither an object nor an array", opening, 0)
    while (char := text.peek()) != "}":
        if char == ",":
            text.next()
            continue
        key = text.value()
        if text.next() != ":":
            raise JSONDecodeError("a key without a value", str(key), 0)
        if key == "traceEvents":
            if text.next() != "[":
                raise JSONDecodeError("traceEvents is not an array", str(key), 0)
            head["traceEvents"] = True
            yield from text.items()
        else:
            head[key] = text.value()


class _Text:
    """A window on decoded text that grows only as far as one value needs."""

    def __init__(self, stream: IO[bytes] | gzip.GzipFile) -> None:
        import codecs

        self.stream = stream
        self.decode = codecs.getincrementaldecoder("utf-8")("strict").decode
        self.scan = JSONDecoder(strict=False).raw_decode
        self.buffer = ""
        self.at = 0

    def more(self) -> None:
        """Read one more chunk. Raises EOFError at the end of the file, or where the gzip stream is cut."""
        chunk = self.stream.read(CHUNK)
        if not chunk:
            raise EOFError
        self.buffer = self.buffer[self.at :] + self.decode(chunk)
        self.at = 0
        if len(self.buffer) > LIMIT:
            raise JSONDecodeError("one value is larger than 64 MiB", "", 0)

    def peek(self) -> str:
        """The next character that is no white space."""
        while True:
            while self.at < len(self.buffer) and self.buffer[self.at].isspace():
                self.at += 1
            if self.at < len(self.buffer):
                return self.buffer[self.at]
            self.more()

    def next(self) -> str:
        """The same, and go on behind it."""
        char = self.peek()
        self.at += 1
        return char

    def value(self) -> Any:
        """One whole JSON value."""
        while True:
            self.peek()
            try:
                value, end = self.scan(self.buffer, self.at)
            except JSONDecodeError:
                self.more_or_broken()
                continue
            if end == len(self.buffer) and not isinstance(value, dict | list | str):
                self.more()  # a number may go on in the next chunk
                continue
            self.at = end
            return value

    def more_or_broken(self) -> None:
        """Read on; a value that stays broken with much text behind it is broken, not cut."""
        if len(self.buffer) - self.at > BROKEN:
            raise JSONDecodeError("broken JSON", self.buffer[self.at : self.at + 60], 0)
        self.more()

    def items(self) -> Iterator[Any]:
        """The items of an array whose bracket was read."""
        scan, blank, idle = self.scan, _BLANK.match, _IDLE.match
        while True:
            self.at = blank(self.buffer, self.at).end()  # type: ignore[union-attr]
            if self.at >= len(self.buffer):
                self.more()
                continue
            if self.buffer[self.at] == "]":
                self.at += 1
                return
            if idle(self.buffer, self.at):  # nine events of ten: passed over without decoding them
                end = self.buffer.find(BETWEEN, self.at)
                if end >= 0:
                    self.at = end + 4
                    continue
            try:
                value, self.at = scan(self.buffer, self.at)
            except JSONDecodeError:
                self.more_or_broken()
                continue
            yield value


def reduce(folder: Path | str, pattern: str = "*.json*") -> list[dict[str, Any]]:
    """Every trace below a folder, reduced to plain data; a file that is no trace becomes `{"path", "error"}`."""
    out: list[dict[str, Any]] = []
    for path in sorted(p for p in Path(folder).rglob(pattern) if p.is_file()):
        try:
            out.append(read(path).to_json())
        except BadTraceError as error:
            out.append({"path": path.name, "error": str(error)})
    return out
