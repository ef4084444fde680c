"""Forged and weak evidence, in every mixture: none of it, and no sum of it, proves a flag.

Each item is something that has looked like a proof, or that a client, another process or an earlier start can make
look like one. The raw answer of a host is put together from a random choice of them and goes the whole way.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglfleet.verify.findings import prove
from sglfleet.verify.gathered import seen
from sglfleet.verify.trace import read
from tests.sglfleet.verify.recorded import verdict
from tests.sglfleet.verify.test_trace import event, write
from validators.verdict import Decision, Expectation, Outcome, Status

MAIN, WORKER, T = 100, 200, "2026-11-29 16:27:4"
FLAG, KERNEL = "enable-fast-path", "fast_path_kernel<1024>"
LINE = "Fast path workspace initialized: backend=trtllm, rank=0, world_size=2"
EXPECTS = (
    Expectation("log", present=r"Fast path workspace initialized: backend=", where="every rank"),
    Expectation("kernel", present=r"fast_path_kernel"),
    Expectation("operator", present=r"^sgl::fast_path$"),
    Expectation("server_info", present="enable_fast_path=true"),
    Expectation("server_info", present="internal_states.fast_path=true"),
    Expectation("process", present="--enable-fast-path"),
    Expectation("metric", present="sglang:fast_path=1.0"),
    Expectation("response", present="fast_path=true"),
    Expectation("log", absent="Fast path .*disabled"),
    Expectation("kernel", absent="slow_path_kernel"),
)
START = [(MAIN, f"[{T}0] server_args=ServerArgs(enable_fast_path=True)"), (WORKER, f"[{T}1 TP0] Load weight begin.")]
READY = [(MAIN, f"[{T}5] The server is fired up and ready to roll!")]
ASKED = (MAIN, f'[{T}6] INFO:     127.0.0.1:3 - "POST /generate HTTP/1.1" 200 OK')
GRAMMAR = (WORKER, f"[{T}7 TP0] skip invalid regex: (")

# (when, process, message): "boot" before the server is ready, "late" after it
LOG_LIES: dict[str, tuple[str, list[tuple[int, str]]]] = {
    "intent": ("boot", [(WORKER, f"[{T}2 TP0] Enabling fast path by default")]),
    "auto": ("boot", [(MAIN, f"[{T}2] Auto-enabling Fast path workspace initialized later")]),
    "no prefix": ("boot", [(WORKER, LINE)]),
    "in the middle": ("boot", [(WORKER, f"[{T}2 TP0] note: {LINE}")]),
    "prefix in the middle": ("boot", [(WORKER, f"x [{T}2 TP0] {LINE}")]),
    "in the arguments": ("boot", [(MAIN, f"[{T}2] server_args=ServerArgs(served_model_name='{LINE}')")]),
    "one rank of two": ("boot", [(WORKER, f"[{T}2 TP0] {LINE}")]),
    "the same rank twice": ("boot", [(WORKER, f"[{T}2 TP0] {LINE}"), (WORKER, f"[{T}3 TP0] {LINE}")]),
    "logged request": ("late", [(MAIN, f"[{T}7] Receive: obj=GenerateReqInput(text='{LINE}')")]),
    "lines of a prompt": ("late", [ASKED, (MAIN, f"[{T}7 TP0] {LINE}"), (MAIN, f"[{T}7 TP1] {LINE}")]),
    "lines of a grammar": ("late", [ASKED, GRAMMAR, (WORKER, f"[{T}7 TP0] {LINE}"), (WORKER, f"[{T}7 TP1] {LINE}")]),
}
OTHERS = [(WORKER, f"[{T}2 TP0] {LINE}"), (WORKER + 1, f"[{T}2 TP1] {LINE}")]
TRACE_LIES: dict[str, list[Any]] = {
    "frames": [event("python_function", KERNEL), event("python_function", "sgl::fast_path")],
    "annotations": [event("user_annotation", KERNEL), event("gpu_user_annotation", "sgl::fast_path")],
    "arguments": [event("cpu_op", "aten::add", args={"x": KERNEL, "inner": [event("kernel", KERNEL)]})],
    "wrong phase": [{"ph": "i", "cat": "kernel", "name": KERNEL}, {"ph": "X", "cat": "Kernel", "name": KERNEL}],
    "nested": [[event("kernel", KERNEL), event("cpu_op", "sgl::fast_path")]],
    "quoted": [event("python_function", f'x", "cat": "kernel", "name": "{KERNEL}')],
}
SERVER_INFO_LIES = {
    "told back": {"enable_fast_path": True},
    "state": {"internal_states": [{"fast_path": True}]},
    "nested": {"x": {"enable_fast_path": True, "memory_usage": {"fast_path": True}}},
}


def journal(rows, invocation):
    out = [{"_SYSTEMD_INVOCATION_ID": invocation, "_PID": str(pid), "MESSAGE": text} for pid, text in rows]
    return "\n".join(map(json.dumps, out))


@pytest.fixture(scope="module")
def reduced(tmp_path_factory):
    """Each trace lie, read from a real file of each rank; the kernel itself too, as if of another rank."""
    folder = tmp_path_factory.mktemp("traces")
    real = [event("kernel", f"gemm_{i}") for i in range(4)] + [event("cpu_op", f"aten::op{i}") for i in range(4)]
    lies = {**TRACE_LIES, "none": [], "other rank": [event("kernel", KERNEL), event("cpu_op", "sgl::fast_path")]}
    out = {}
    for name, events in lies.items():
        for rank in (0, 1):
            told = events if name != "other rank" or rank == 1 else []
            info = {"rank": rank, "world_size": 2}
            file = folder / f"{name.replace(' ', '-')}-TP-{rank}.trace.json.gz"
            out[name, rank] = read(write(file, [*real, *told], distributedInfo=info)).to_json()
    return out


subset = st.sets
raws = st.fixed_dictionaries(
    {
        "logs": subset(st.sampled_from(sorted(LOG_LIES))),
        "earlier": st.booleans(),
        "unlabelled": st.booleans(),
        "info": subset(st.sampled_from(sorted(SERVER_INFO_LIES))),
        "process": st.booleans(),
        "metrics": st.sampled_from(["", "# sglang:fast_path 1.0\n", 'sglang:other{x="sglang:fast_path 1.0"} 2\n']),
        "trace": st.sampled_from(["", "none", "other rank", *sorted(TRACE_LIES)]),
        "cut": st.booleans(),
    }
)


def answer(drawn, reduced):
    boot = [row for name in sorted(drawn["logs"]) if LOG_LIES[name][0] == "boot" for row in LOG_LIES[name][1]]
    late = [row for name in sorted(drawn["logs"]) if LOG_LIES[name][0] == "late" for row in LOG_LIES[name][1]]
    lines = journal([*START, *boot, *READY, *late], "now")
    if drawn["earlier"]:
        lines = journal([*START, *OTHERS, *READY], "before") + "\n" + lines
    if drawn["unlabelled"]:
        lines += "\n" + "\n".join(text for _, text in OTHERS)
    info: dict[str, Any] = {"tp_size": 2}
    for name in sorted(drawn["info"]):
        info |= SERVER_INFO_LIES[name]
    raw = {"journal": lines, "unit": {"InvocationID": "now"}, "server_info": info, "metrics": drawn["metrics"]}
    raw["process"] = {"pid": MAIN, "argv": ["python"], "env": {}}
    if drawn["process"]:
        raw["process"] = {"pid": MAIN, "argv": ["python", f"--{FLAG}"], "env": {"SGLANG_FAST_PATH": "1"}}
    if drawn["trace"]:
        raw["traces"] = [{**reduced[drawn["trace"], rank], "complete": not drawn["cut"]} for rank in (0, 1)]
    return raw


@given(
    drawn=raws, wanted=st.sets(st.sampled_from(range(len(EXPECTS))), min_size=1), decision=st.sampled_from(["k", "w"])
)
def test_no_mixture_of_weak_evidence_proves_a_flag(reduced, drawn, wanted, decision):
    expects = [EXPECTS[i] for i in sorted(wanted)]
    positive = [e for e in expects if e.present]
    kept = Decision.KEEP if decision == "k" else Decision.WARN
    judged = [verdict(FLAG, *expects, outcome=outcome, decision=kept) for outcome in (Outcome.ACTIVE, Outcome.UNKNOWN)]
    for proof in prove(judged, seen(answer(drawn, reduced))):
        if positive or not drawn["trace"]:
            assert proof.status is not Status.PROVEN, proof


def honest(reduced, **more):
    """The same host when the flag really acts: the test above could otherwise pass because nothing is ever proven."""
    raw = answer({"logs": set(), "earlier": False, "unlabelled": False, "info": set(), "process": True, "metrics": "",
                  "trace": "none", "cut": False}, reduced)  # fmt: skip
    raw["journal"] = journal([*START, *OTHERS, *READY], "now")
    real = reduced["other rank", 1]
    raw["traces"] = [{**real, "rank": rank} for rank in (0, 1)]
    return seen({**raw, **more})


@pytest.mark.parametrize("expectation", [EXPECTS[0], EXPECTS[1], EXPECTS[2]])
def test_the_real_thing_is_proven(reduced, expectation):
    (proof,) = prove([verdict(FLAG, expectation)], honest(reduced))
    assert proof.status is Status.PROVEN, proof


@pytest.mark.parametrize("expectation", [EXPECTS[0], EXPECTS[1], EXPECTS[2]])
@pytest.mark.parametrize("missing", ["journal", "traces"])
def test_one_missing_layer_leaves_the_flag_open(reduced, expectation, missing):
    raw_less = honest(reduced, **{missing: "" if missing == "journal" else []})
    (proof,) = prove([verdict(FLAG, *EXPECTS[:3])], raw_less)
    assert proof.status is not Status.PROVEN
