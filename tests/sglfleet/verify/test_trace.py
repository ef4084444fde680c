"""The stream reader: real traces, traces that lie, broken ones, and its cost."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sglfleet.verify import trace
from sglfleet.verify.trace import BadTraceError, read
from tests.sglfleet.verify.recorded import H200, traces

KERNEL = "flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport"


def event(cat, name, **more):
    return {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": 1, "ts": 1.5, "dur": 2, **more}


def write(path, events, **head):
    body = json.dumps({"schemaVersion": 1, **head, "traceEvents": events, "traceName": "x"}, indent=1)
    path.write_bytes(gzip.compress(body.encode()) if path.suffix == ".gz" else body.encode())
    return path


@pytest.mark.parametrize(
    ("service", "name", "index"),
    [
        ("tp2-fusion-on", "1795969679.05815-TP-1.trace.json.gz", 1),
        ("tp1-fusion-flag", "1795967947.06-TP-0-DECODE.trace.json.gz", 1),
    ],
)
def test_real_traces(service, name, index):
    got, want = read(H200 / service / name), traces(service)[index]
    assert got.kernels == want.kernels
    assert (got.rank, got.stage, got.world_size, got.devices) == (want.rank, want.stage, want.world_size, want.devices)
    assert trace.Trace.from_json(json.loads(json.dumps(got.to_json()))) == got


LIES = [
    event("python_function", KERNEL),
    event("user_annotation", KERNEL),
    event("gpu_user_annotation", KERNEL),
    event("Kernel", KERNEL),
    event("overhead", "x", args={"cat": "kernel", "name": KERNEL, "ph": "X"}),
    event("python_function", f'x", "cat": "kernel", "name": "{KERNEL}'),
    event("cpu_op", "aten::add", args={"Concrete Inputs": [KERNEL], "inner": [event("kernel", KERNEL)]}),
    {"ph": "i", "cat": "kernel", "name": KERNEL, "ts": 1},
    {"ph": "M", "cat": "kernel", "name": KERNEL},
    [event("kernel", KERNEL)],
    "kernel",
]


@pytest.mark.parametrize("lie", LIES)
def test_only_what_ran_counts(tmp_path, lie):
    got = read(write(tmp_path / "1-TP-0.trace.json.gz", [event("kernel", "real"), lie], note=event("kernel", KERNEL)))
    assert got.kernels == Counter(real=1)
    assert not any(KERNEL in name for name in got.operators)


def test_rank_is_what_torch_recorded_not_what_a_file_is_called(tmp_path):
    path = write(tmp_path / "9-TP-1.trace.json", [], distributedInfo={"rank": 0, "world_size": 2})
    assert read(path).rank == 0


@pytest.mark.parametrize(
    ("name", "rank", "stage", "replica"),
    [
        ("1795967246.02-TP-0-DECODE.trace.json.gz", 0, "decode", 0),
        ("1795967246.02-TP-3-EXTEND.trace.json.gz", 3, "prefill", 0),
        ("1795967246.02-TP-1-DP-2.trace.json.gz", 1, "", 2),
        ("1795967246.02-TP-12-DP-1-PP-0-EP-3-DECODE.trace.json.gz", 12, "decode", 1),
        ("profile.json", None, "", 0),
    ],
)
def test_names(tmp_path, name, rank, stage, replica):
    got = read(write(tmp_path / name, [event("kernel", "k")]))
    assert (got.rank, got.stage, got.replica) == (rank, stage, replica)


@pytest.mark.parametrize("body", [b"", b"hello", b'{"a": 1}', b'{"traceEvents": 3}', b"\xff\xfe", b"{1: 2}", b"3"])
def test_what_is_no_trace_is_said(tmp_path, body):
    path = tmp_path / "x.json"
    path.write_bytes(body)
    with pytest.raises(BadTraceError, match=r"^x\.json: .*: profile again$"):
        read(path)


@pytest.mark.parametrize("body", [b"[1, 2", b'{"traceEvents": [{]}', b'{"traceEvents": [{"a'])
def test_what_ends_in_the_middle_is_not_complete(tmp_path, body):
    path = tmp_path / "x.json"
    path.write_bytes(body)
    assert not read(path).complete


def test_a_cut_trace_is_not_complete(tmp_path):
    whole = write(tmp_path / "w.json.gz", [event("kernel", f"k{i}") for i in range(20000)]).read_bytes()
    cut = tmp_path / "c-TP-0.json.gz"
    cut.write_bytes(whole[: len(whole) // 2])
    got = read(cut)
    assert not got.complete
    assert 0 < len(got.kernels) < 20000


def test_a_folder(tmp_path):
    write(tmp_path / "a-TP-0.trace.json.gz", [event("kernel", "k")])
    (tmp_path / "b.json").write_text("no")
    first, second = trace.reduce(tmp_path)
    assert first["kernels"] == {"k": 1}
    assert "not a torch trace" in second["error"]


CATEGORIES = ["kernel", "cpu_op", "python_function", "ac2g"]
names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=20)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(st.sampled_from(CATEGORIES), names), max_size=30), st.integers(1, 64))
def test_chunks_do_not_matter(tmp_path_factory, events, size):
    path = write(tmp_path_factory.mktemp("t") / "x.json", [event(c, n) for c, n in events])
    before, trace.CHUNK = trace.CHUNK, size
    try:
        got = read(path)
    finally:
        trace.CHUNK = before
    assert got.kernels == Counter(n for c, n in events if c == "kernel")
    assert got.operators == Counter(n for c, n in events if c == "cpu_op")


def torch_layout(events):
    """As torch writes it: two spaces before an event, its first keys on one line."""
    rows = []
    for e in events:
        first = ", ".join(f"{json.dumps(k)}: {json.dumps(e[k])}" for k in ("ph", "cat", "name") if k in e)
        rest = json.dumps({"args": e.get("args", {})}, indent=2)[1:-1].replace("\n", "\n  ").rstrip()
        rows.append(f"  {{\n    {first},{rest}\n  }}")
    return '{"schemaVersion": 1,\n  "traceEvents": [\n' + ",\n".join(rows) + "\n  ]\n}"


more = st.sampled_from([*CATEGORIES, "cuda_runtime", "kernel2"])


@given(st.lists(st.tuples(more, names), max_size=30), st.integers(1, 90))
def test_events_passed_over_are_never_ours(tmp_path_factory, events, size):
    rows = [
        event(c, n, args={"x": f"{n}\n  }},\n  {{", "y": [{"cat": "kernel", "name": "lie", "ph": "X"}]})
        for c, n in events
    ]
    path = tmp_path_factory.mktemp("t") / "x.json"
    path.write_text(torch_layout(rows))
    assert json.loads(path.read_text())
    before, trace.CHUNK = trace.CHUNK, size
    try:
        got = read(path)
    finally:
        trace.CHUNK = before
    assert got.complete
    assert got.kernels == Counter(n for c, n in events if c == "kernel")
    assert got.operators == Counter(n for c, n in events if c in ("cpu_op", "cuda_runtime"))


@pytest.mark.full
def test_300_mb_of_trace_in_300_mb_of_memory(tmp_path):
    """Written in torch's own layout: mostly Python frames with indented arguments. Its speed is in benchmarks/."""
    frame = event("python_function", "a.py(3): f", args={"Python id": 3, "Python parent id": 2})
    kernel = event("kernel", "k" * 120, args={"grid": [2, 1, 1], "block": [128, 1, 1]})
    block = ",\n".join("  " + json.dumps(e, indent=1) for e in [frame] * 9 + [kernel])
    path = tmp_path / "big-TP-0.trace.json.gz"
    blocks = 300_000_000 // len(block) + 1
    with gzip.open(path, "wt", compresslevel=1) as out:
        out.write('{"schemaVersion": 1, "traceEvents": [\n' + block)
        for _ in range(blocks - 1):
            out.write(",\n" + block)
        out.write("\n]}")
    code = (
        "import sys; from sglfleet.verify.trace import read; x = read(sys.argv[1]);"  # ru_maxrss counts the parent too
        "own = open('/proc/self/status').read().split('VmHWM:')[1].split()[0];"
        "print(sum(x.kernels.values()), int(own) / 1024)"
    )
    out = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, check=True).stdout.split()
    assert int(out[0]) == blocks
    assert float(out[1]) < 300
