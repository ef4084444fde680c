"""The journal as evidence: invocations, processes, ranks, and lines that lie."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from sglfleet.verify.evidence import Seen
from sglfleet.verify.findings import prove
from sglfleet.verify.journal import from_journalctl, from_text
from tests.sglfleet.verify.recorded import FUSION, FUSION_LINE, H200, verdict
from validators.verdict import Expectation, Status

MAIN, WORKER = 100, 200
T = "2026-11-29 16:27:4"
START = [
    (MAIN, f"[{T}0] server_args=ServerArgs(model_path='/models/x')"),
    (WORKER, f"[{T}1 TP0] Load weight begin. avail mem=138.21 GB"),
]
END = [(MAIN, f"[{T}5] The server is fired up and ready to roll!")]
LINE = f"{FUSION_LINE}trtllm, rank=0, world_size=1"
BACK = "Disabling FlashInfer allreduce fusion permanently"
EXPECTED = Expectation("log", present=FUSION_LINE)


def journal(rows, invocation="now", **more):
    out = []
    for pid, message in rows:
        entry = {"_SYSTEMD_INVOCATION_ID": invocation, "_PID": str(pid), "MESSAGE": message, **more}
        out.append(json.dumps(entry))
    return "\n".join(out)


def status(output, main=MAIN):
    (proof,) = prove([verdict(FUSION, EXPECTED)], Seen(journal=from_journalctl(output, "now", main)))
    return proof.status


def test_a_line_about_something_else_takes_nothing_back():
    captured = Expectation("log", present="Capture target decode CUDA graph end")
    rows = [
        *START,
        (WORKER, f"[{T}2 TP0] Capture target decode CUDA graph end. elapsed=2.07 s, mem usage=0.04 GB"),
        (WORKER, f"[{T}3 TP0] Disable prefill CUDA graph because cuda_graph_config resolved so"),
        (WORKER, f"[{T}3 TP0] FlashInfer TRTLLM MoE deferred finalize is disabled"),
        *END,
    ]
    (proof,) = prove([verdict("x", captured)], Seen(journal=from_journalctl(journal(rows), "now", MAIN)))
    assert proof.status is Status.PROVEN


def test_a_line_of_a_scheduler_counts():
    assert status(journal([*START, (WORKER, f"[{T}2 TP0] {LINE}"), *END])) is Status.PROVEN


ANSWERED = (MAIN, f'[{T}6] INFO:     127.0.0.1:3 - "POST /generate HTTP/1.1" 200 OK')
LIES = {
    "previous start": journal([(WORKER, f"[{T}2 TP0] {LINE}")], "before") + "\n" + journal([*START, *END]),
    "logged request": journal([*START, *END, (MAIN, f"[{T}7] Receive: obj=GenerateReqInput(text='{LINE}')")]),
    "prompt with newline": journal([*START, *END, (MAIN, f"[{T}7] Receive: obj=X(text='\n[{T}7 TP0] {LINE}')")]),
    "prompt as a line of its own": journal([*START, *END, ANSWERED, (MAIN, f"[{T}7 TP0] {LINE}")]),
    "no prefix": journal([*START, (WORKER, LINE), *END]),
    "prefix in the middle": journal([*START, (WORKER, f"text [{T}2 TP0] {LINE}"), *END]),
    "in the middle of a message": journal([*START, (WORKER, f"[{T}2 TP0] bad grammar: {LINE}"), *END]),
    "another unit's field": journal([*START, *END]) + "\n" + journal([(9, f"[{T}2 TP0] {LINE}")], "x", UNIT="now"),
    "taken back": journal([*START, (WORKER, f"[{T}2 TP0] {LINE}"), (WORKER, f"[{T}3 TP0] {BACK}"), *END]),
    "server_args": journal([*START, (MAIN, f"[{T}2] server_args=ServerArgs(served_model_name='{LINE}')"), *END]),
    "no JSON": journal([*START, *END]) + f"\n[{T}2 TP0] {LINE}",
}


@pytest.mark.parametrize("lie", LIES)
def test_lies_prove_nothing(lie):
    assert status(LIES[lie]) is not Status.PROVEN


def test_lies_in_a_plain_file_prove_nothing():
    start, end = (line for _, line in START), [line for _, line in END]
    served = f'[{T}6] INFO:     127.0.0.1:3 - "POST /generate HTTP/1.1" 200 OK'
    echo = f"[{T}6] Receive: obj=GenerateReqInput(text='"
    text = "\n".join([*start, *end, served, echo, f"[{T}7 TP0] {LINE}"])
    (proof,) = prove([verdict(FUSION, EXPECTED)], Seen(journal=from_text(text)))
    assert proof.status is not Status.PROVEN


@pytest.mark.parametrize(
    ("output", "why"),
    [
        ("", "nothing of invocation"),
        (journal([*START, *END], "before"), "only of others"),
        (journal([START[1], (WORKER, f"[{T}2 TP0] x"), *END]), "does not reach back"),
        (journal(START), "never said that it was ready"),
    ],
)
def test_missing_evidence_is_not_a_contradiction(output, why):
    (proof,) = prove([verdict(FUSION, EXPECTED)], Seen(journal=from_journalctl(output, "now", MAIN)))
    assert proof.status is Status.NOT_PROVEN
    assert why in proof.reason


def test_complete_journal_without_the_line_contradicts():
    assert status(journal([*START, *END])) is Status.CONTRADICTED


def test_quiet_server_is_not_a_contradiction():
    seen = Seen(journal=from_journalctl(journal([*START, *END]), "now", MAIN), info={"log_level": "error"})
    (proof,) = prove([verdict(FUSION, EXPECTED)], seen)
    assert proof.status is Status.NOT_PROVEN


def test_no_forged_line_can_contradict():
    absent = Expectation("log", absent="Failed to initialize")
    rows = [*START, *END, ANSWERED, (MAIN, f"[{T}7 TP0] Failed to initialize it all")]
    (proof,) = prove([verdict("x", absent)], Seen(journal=from_journalctl(journal(rows), "now", MAIN)))
    assert proof.status is not Status.CONTRADICTED


def test_bytes_and_progress_bars():
    bar = [*f"Capturing:  10%| | 1/58 [00:00<?, ?it/s][{T}2 TP0] {LINE}".encode(), 0xFF]
    rows = [*START, *END]
    text = journal(rows[:2]) + "\n" + json.dumps({"_SYSTEMD_INVOCATION_ID": "now", "_PID": "200", "MESSAGE": bar})
    assert status(text + "\n" + journal(rows[2:])) is Status.PROVEN


@pytest.mark.parametrize("service", sorted(p.parent.name for p in H200.glob("tp*/server.log")))
def test_real_logs(service):
    got = from_text((H200 / service / "server.log").read_text())
    assert got.ready
    assert got.from_start
    assert not got.echoes
    assert got.ranks == (frozenset({0, 1}) if service.startswith("tp2") else frozenset())
    assert sum(line.serving for line in got.lines) > 5
    assert all(replace(line, number=0).message for line in got.lines)
