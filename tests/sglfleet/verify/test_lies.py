"""Evidence that agrees with a flag and proves nothing: the server's own word, a command line, half a trace."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglfleet.verify.evidence import Seen, find, metrics
from sglfleet.verify.findings import exit_code, prove, worst
from sglfleet.verify.trace import Trace
from tests.sglfleet.verify.recorded import ACTIVE_FUSION, FUSION, FUSION_KERNEL, NO_FUSION, seen, traces, verdict
from validators.verdict import Decision, Expectation, Outcome, Status

PROVEN, CONTRADICTED, OPEN = Status.PROVEN, Status.CONTRADICTED, Status.NOT_PROVEN


def status(evidence, *expects, **more):
    (proof,) = prove([verdict("some-flag", *expects, **more)], evidence)
    return proof.status


@pytest.mark.parametrize(
    ("expectation", "evidence"),
    [
        (Expectation("server_info", present="some_flag=true"), Seen(info={"some_flag": True})),
        (Expectation("server_info", present="internal_states.x=1"), Seen(info={"internal_states": [{"x": 1}]})),
        (Expectation("process", present="--some-flag"), Seen(argv=("--some-flag",), env={})),
        (Expectation("process", present="NCCL=1"), Seen(argv=(), env={"NCCL": "1"})),
        (Expectation("kernel", present="k"), Seen()),
        (Expectation("log", present="k"), Seen()),
        (Expectation("metric", present="k=1"), Seen()),
        (Expectation("response", present="k=1"), Seen()),
        (Expectation("metric", present="k=1"), Seen(metrics={})),
        (Expectation("server_info", present="k=1"), Seen(info={})),
        (Expectation("process", absent="x"), Seen(env={})),
        (Expectation("kernel", absent="k"), Seen()),
    ],
)
def test_agreement_is_no_proof(expectation, evidence):
    assert status(evidence, expectation) is OPEN


def test_a_chunk_that_replicas_share():
    wanted = Expectation("response", present="largest_prefill=64")
    info = {"dp_size": 2, "enable_dp_attention": True}
    assert status(Seen(info=info, responses={"largest_prefill": 32}), wanted) is PROVEN
    assert status(Seen(info=info, responses={"largest_prefill": 16}), wanted) is CONTRADICTED
    assert status(Seen(info={"dp_size": 2}, responses={"largest_prefill": 32}), wanted) is CONTRADICTED


def test_a_server_info_that_says_otherwise_contradicts():
    assert status(Seen(info={"a": "triton"}), Expectation("server_info", present="a=fa3")) is CONTRADICTED


def test_what_the_scheduler_measured_counts():
    info = {"internal_states": [{"effective_max_running_requests_per_dp": 8}], "max_total_num_tokens": 16384.0}
    for name in ("internal_states.effective_max_running_requests_per_dp=8", "max_total_num_tokens=16384"):
        assert status(Seen(info=info), Expectation("server_info", present=name)) is PROVEN
    two = {"internal_states": [{"memory_usage": {"graph": 1}}, {"memory_usage": {"graph": 0}}]}
    assert find(two, "internal_states.memory_usage.graph") == [1, 0]
    assert (
        status(Seen(info=two), Expectation("server_info", present="internal_states.memory_usage.graph=1"))
        is CONTRADICTED
    )


def test_a_trace_that_was_cut_cannot_say_what_did_not_run():
    cut = tuple(replace(t, complete=False) for t in traces("tp2-fusion-off"))
    evidence = replace(seen("tp2-fusion-off"), traces=cut)
    assert status(evidence, NO_FUSION[0]) is OPEN
    assert status(evidence, ACTIVE_FUSION[0]) is OPEN


def test_the_kernel_in_another_rank_twice_is_still_one_rank():
    twice = (traces("tp2-fusion-on")[1], replace(traces("tp2-fusion-on")[1], path="1-TP-0.trace.json.gz"))
    assert status(replace(seen("tp2-fusion-on"), traces=twice), ACTIVE_FUSION[0]) is OPEN


def test_a_trace_without_a_rank_counts_only_alone():
    lost = tuple(replace(t, rank=None) for t in traces("tp2-fusion-on"))
    assert status(replace(seen("tp2-fusion-on"), traces=lost), ACTIVE_FUSION[0]) is OPEN
    alone = tuple(replace(t, rank=None) for t in traces("tp1-triton"))
    assert status(replace(seen("tp1-triton"), traces=alone), Expectation("kernel", present="^_fwd_kernel$")) is PROVEN


def test_operators_on_a_cpu_say_nothing_of_kernels():
    cpu = Trace("x", 0, "", operators=traces("tp1-triton")[0].operators - traces("tp1-triton")[0].operators)
    cpu.operators.update({"aten::add": 3, "aten::mm": 2})
    evidence = Seen(traces=(cpu,))
    assert status(evidence, Expectation("kernel", absent=FUSION_KERNEL)) is OPEN
    assert status(evidence, Expectation("kernel", present=FUSION_KERNEL)) is OPEN
    assert status(evidence, Expectation("operator", absent="^cudaGraphLaunch$")) is OPEN
    both = Seen(traces=(replace(cpu, stage="prefill"), replace(cpu, stage="decode")))
    for value in (True, False):  # an off switch of what cannot run here anyway
        off = verdict("disable-cuda-graph", Expectation("operator", absent="^cudaGraphLaunch$"), value=value)
        assert prove([off], both)[0].status is OPEN


def test_a_dropped_flag_must_be_gone_from_the_process():
    gone = {"outcome": Outcome.INERT, "decision": Decision.DROP}
    assert status(Seen(argv=("python", "--tp-size", "2")), **gone) is PROVEN
    assert status(Seen(argv=("python", "--some-flag")), **gone) is CONTRADICTED
    assert status(Seen(argv=("python", "--some-flag=1")), **gone) is CONTRADICTED
    assert status(Seen(argv=("python", "--some-flag-too")), **gone) is PROVEN
    assert status(Seen(), **gone) is OPEN


def test_refused_flags_never_ran():
    assert prove([verdict("x", outcome=Outcome.FAILS, decision=Decision.REFUSE)], Seen()) == ()


def test_worst_and_exit_codes():
    proofs = prove([verdict("a"), verdict(FUSION, *ACTIVE_FUSION)], seen("tp1-fusion-flag"))
    assert worst(proofs) is CONTRADICTED
    assert exit_code(proofs) == 1
    assert exit_code(proofs[:1]) == 0
    assert exit_code(proofs[:1], strict=True) == 3
    assert worst(()) is PROVEN


kinds = st.sampled_from(["log", "server_info", "kernel", "operator", "metric", "process", "response"])
patterns = st.sampled_from(["x", "some-flag", "x=1", ".*", "(", "", "a=.*", "^$", "cudaGraphLaunch"])


@given(
    st.lists(st.tuples(kinds, patterns, st.booleans()), max_size=4), st.sampled_from(Outcome), st.sampled_from(Decision)
)
def test_nothing_seen_proves_nothing(rows, outcome, decision):
    expects = [Expectation(k, present=p) if here else Expectation(k, absent=p) for k, p, here in rows]
    for proof in prove([verdict("some-flag", *expects, outcome=outcome, decision=decision)], Seen()):
        assert proof.status is OPEN
        assert proof.reason


@given(st.text(max_size=80))
def test_metrics_never_raise(text):
    assert all(isinstance(v, tuple) for v in metrics(text).values())


def test_metrics():
    text = '# HELP a b\nsglang:x{model="m",tp="0"} 3.0\nsglang:x{tp="1"} 4\nsglang:bad nan?\nplain 1e3\n'
    assert metrics(text) == {"sglang:x": (3.0, 4.0), "plain": (1000.0,)}
