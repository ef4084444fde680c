"""Lines of the journal: who wrote them, when, and which of two lines that disagree has the last word."""

from __future__ import annotations

import re

from sglfleet.verify.evidence import Seen
from sglfleet.verify.journal import Journal, Line
from sglfleet.verify.sight import Sight, contradicted, open_, proven
from validators.verdict import Expectation

# says what is meant to happen, before anything has
_INTENT = re.compile(
    r"auto-?\s?enabl|^enabling\b|\bwill be\b|\bis deprecated\b|\bplease use\b|\bset to\b|\bdefault(s|ing) to\b", re.I
)
_RETRACTS = re.compile(
    r"\bdisabl(e|ed|ing)\b|\bfall(s|ing)? ?back\b|\bfell back\b|\bskip(s|ped|ping)?\b"
    r"|\bnot (available|supported|enabled)\b|\bunsupported\b|\bfailed to initiali[sz]e\b"
    r"|\bturn(ed|ing)? off\b|\bignor(ed|ing)\b",
    re.I,
)
SHARED = 3  # words two lines must share to be about the same thing
_WORD = re.compile(r"[A-Za-z][A-Za-z]{3,}")
_COMMON = frozenset(
    """enabled enable disabled disable disabling forcibly workspace initialized initialize backend rank world size token
    with from this that because using used model server default torch dtype none true false falling back skipping
    available supported failed permanently please instead auto enabling autoenabling""".split()  # noqa: SIM905
)


def log(expectation: Expectation, seen: Seen) -> Sight:
    """Kind `log`. A line that must be there is matched from the start of the message; one that must not, anywhere."""
    journal = seen.journal
    if journal is None or journal.error:
        return open_(journal.error if journal else seen.gap("journal", "the journal was not read"))
    if expectation.absent:
        return _absent(expectation.absent, journal)
    return _present(expectation, journal, seen)


def _absent(pattern: str, journal: Journal) -> Sight:
    for line in journal.lines:
        if journal.trusted(line) and re.search(pattern, line.message):
            return contradicted("the journal says so", (_show(line),))
    if why := _incomplete(journal):
        return open_(why)
    return proven("not in the journal of this start", (f"{len(journal.lines)} records read",), decisive=False)


def _present(expectation: Expectation, journal: Journal, seen: Seen) -> Sight:
    pattern = expectation.present
    said = [line for line in journal.lines if journal.trusted(line) and re.match(pattern, line.message)]
    hits = [line for line in said if not line.late]
    if not hits and said:
        # some back ends log a refused grammar as the client wrote it, newlines and all, from the scheduler's process
        why = "said only after clients could send requests, whose text some lines repeat: no proof"
        return open_(why, (_show(said[-1]),))
    if not hits:
        return _missing(expectation, journal, seen)
    last = hits[-1]
    if _INTENT.search(last.message) and not re.search(r"\binitiali[sz]ed\b|\bended?\b|\ballocated\b", last.message):
        later = _retraction(last, journal)
        shown = (_show(last), *((_show(later),) if later else ()))
        if later:
            return open_(f"announced, then taken back; the later line decides: {later.message[:120]}", shown)
        return open_("the line announces, it does not say that anything happened", shown)
    ranks = seen.ranks()
    ranked = any(line.rank is not None for line in hits)
    every = "every rank" in expectation.where or (ranked and "rank" in pattern)
    evidence: list[str] = []
    for rank in ranks if every and len(ranks) > 1 else (None,):
        mine = [line for line in hits if rank is None or line.rank == rank]
        if not mine:
            return contradicted(f"rank {rank} never said so", tuple(evidence))
        evidence.append(_show(mine[-1]))
        if later := _retraction(mine[-1], journal):
            shown = (_show(mine[-1]), _show(later))
            return contradicted(f"said, then taken back; the later line decides: {later.message[:120]}", shown)
    return proven("the journal says so" + (", every rank" if every and len(ranks) > 1 else ""), tuple(evidence))


def _missing(expectation: Expectation, journal: Journal, seen: Seen) -> Sight:
    pattern = expectation.present
    if "if told" in expectation.where:
        kind = re.split("[:=]", pattern)[0]
        if not any(journal.trusted(line) and re.match(kind, line.message) for line in journal.lines):
            return open_("this release does not log it in a line that is known")
    doubtful = next((line for line in journal.lines if re.search(pattern, line.message)), None)
    shown = (f"not counted: {_show(doubtful)}",) if doubtful else ()
    if why := _incomplete(journal):
        return open_(why, shown)
    level = str((seen.info or {}).get("log_level", "info")).lower()
    if level not in ("info", "debug", "notset"):
        return open_(f"the server logs at level {level} only: the line could not be there", shown)
    if doubtful:
        return contradicted("only a line that a client could have written says so", shown)
    return contradicted("not in the journal of this start", (f"{len(journal.lines)} records read",))


def _incomplete(journal: Journal) -> str:
    if not journal.from_start:
        return "the journal does not reach back to this start: what is missing proves nothing"
    if not journal.ready:
        return "the server never said that it was ready: its journal is not complete"
    return ""


def _retraction(line: Line, journal: Journal) -> Line | None:
    """A later line, of the same rank or of the whole server, that takes back what this one says."""
    subject = _subject(line.message)
    for later in journal.lines:
        if later.number <= line.number or not journal.trusted(later) or not _RETRACTS.search(later.message):
            continue
        if later.rank is not None and line.rank is not None and later.rank != line.rank:
            continue
        if subject and len(subject & _subject(later.message)) >= min(SHARED, len(subject)):
            return later
    return None


def _subject(message: str) -> set[str]:
    """What a line is about: its longer words, spelling evened out (all-reduce, allreduce, AllReduce)."""
    text = message.replace("-", "").replace("_", "").lower()
    return {word for word in _WORD.findall(text) if word not in _COMMON}


def _show(line: Line) -> str:
    rank = f" TP{line.rank}" if line.rank is not None else ""
    pid = f" pid {line.pid}" if line.pid is not None else ""
    return f"[{line.time}{rank}{pid}] {line.message[:220]}"
