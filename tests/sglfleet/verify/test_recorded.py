"""What the tool says of evidence recorded on real cards equals what the kernels show."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sglfleet.verify.findings import prove
from tests.sglfleet.verify.recorded import (
    ACTIVE_FUSION,
    FLASHINFER,
    FUSION,
    FUSION_KERNEL,
    FUSION_LINE,
    NO_FUSION,
    TRITON,
    against,
    seen,
    traces,
    verdict,
)
from validators.verdict import Decision, Expectation, Outcome, Status

PROVEN, CONTRADICTED, OPEN = Status.PROVEN, Status.CONTRADICTED, Status.NOT_PROVEN
CASES = [
    # what ran, what it is compared with, what was judged, what must come out
    ("tp2-fusion-on", "tp2-fusion-off", verdict(FUSION, *ACTIVE_FUSION, value="auto"), PROVEN),
    ("tp2-fusion-off", "tp2-fusion-on", verdict(FUSION, *ACTIVE_FUSION, value="auto"), CONTRADICTED),
    ("tp1-fusion-flag", "tp1-triton", verdict(FUSION, *ACTIVE_FUSION, value="auto"), CONTRADICTED),
    ("tp2-fusion-off", "", verdict("enforce-disable-flashinfer-allreduce-fusion", *NO_FUSION), PROVEN),
    ("tp2-fusion-on", "", verdict("enforce-disable-flashinfer-allreduce-fusion", *NO_FUSION), CONTRADICTED),
    ("tp1-triton", "tp1-flashinfer", verdict("attention-backend", *TRITON, value="triton"), PROVEN),
    ("tp1-flashinfer", "tp1-triton", verdict("attention-backend", *FLASHINFER, value="flashinfer"), PROVEN),
    ("tp1-flashinfer", "", verdict("attention-backend", *TRITON, value="triton"), CONTRADICTED),
    ("tp1-triton", "", verdict("attention-backend", *FLASHINFER, value="flashinfer"), CONTRADICTED),
    ("tp1-triton", "", verdict("attention-backend", TRITON[0], value="triton"), PROVEN),
    # judged inert: dropped, the kernel's absence proves it; forced through a waiver, it is contradicted
    ("tp1-triton", "", verdict(FUSION, *NO_FUSION, outcome=Outcome.INERT, decision=Decision.DROP), PROVEN),
    ("tp1-fusion-flag", "", verdict(FUSION, *NO_FUSION, outcome=Outcome.INERT, decision=Decision.WARN), CONTRADICTED),
    ("tp2-fusion-on", "", verdict(FUSION, *NO_FUSION, outcome=Outcome.INERT, decision=Decision.WARN), PROVEN),
    ("tp2-fusion-off", "", verdict(FUSION, *NO_FUSION, outcome=Outcome.ALTERED, decision=Decision.WARN), CONTRADICTED),
    ("tp2-fusion-off", "", verdict(FUSION, *NO_FUSION, outcome=Outcome.ALTERED, decision=Decision.DROP), PROVEN),
    # server_info's own word, in the one service where it is false
    ("tp1-fusion-flag", "", verdict(FUSION, ACTIVE_FUSION[2], value="auto"), OPEN),
    # nothing can be seen
    ("tp1-triton", "", verdict("schedule-policy", value="lpm"), OPEN),
]


@pytest.mark.parametrize(("service", "control", "judged", "status"), CASES)
def test_findings(service, control, judged, status):
    evidence = against(service, control, judged.flag) if control else seen(service)
    (proof,) = prove([judged], evidence)
    assert proof.status is status, [(f.status, f.reason, f.evidence) for f in proof.findings]
    assert proof.reason
    if status is PROVEN:
        assert any(f.evidence for f in proof.findings if f.status is PROVEN)


def test_both_ranks_are_named_with_their_kernels():
    (proof,) = prove([verdict(FUSION, ACTIVE_FUSION[0])], seen("tp2-fusion-on"))
    (finding,) = proof.findings
    assert [e.split(":")[0] for e in finding.evidence] == ["rank 0", "rank 1"]
    assert all("115 x" in e and "oneshot_lamport" in e for e in finding.evidence)


def test_one_rank_without_the_kernel_contradicts():
    mixed = (traces("tp2-fusion-on")[0], traces("tp2-fusion-off")[1])
    (proof,) = prove([verdict(FUSION, ACTIVE_FUSION[0])], replace(seen("tp2-fusion-on"), traces=mixed))
    assert proof.status is CONTRADICTED
    assert "rank 1" in proof.reason


def test_one_rank_that_was_not_profiled_is_not_proven():
    half = replace(seen("tp2-fusion-on"), traces=traces("tp2-fusion-on")[:1])
    (proof,) = prove([verdict(FUSION, ACTIVE_FUSION[0])], half)
    assert proof.status is OPEN
    assert "rank 1 was not profiled" in proof.reason
    (gone,) = prove([verdict("x", NO_FUSION[0])], replace(seen("tp2-fusion-off"), traces=traces("tp2-fusion-off")[:1]))
    assert gone.status is OPEN


def test_the_later_of_two_lines_decides():
    announced = Expectation("log", present="Auto-enabling FlashInfer AllReduce Fusion")
    (proof,) = prove([verdict(FUSION, announced)], seen("tp2-fusion-off"))
    assert proof.status is OPEN
    assert "forcibly disabled" in proof.reason
    assert any("forcibly disabled" in line for line in proof.findings[0].evidence)


def test_an_announcement_alone_proves_nothing():
    line = Expectation("log", present="--enable-flashinfer-allreduce-fusion is deprecated")
    (proof,) = prove([verdict(FUSION, line)], seen("tp2-fusion-on"))
    assert proof.status is OPEN


def test_log_line_is_wanted_from_every_rank():
    evidence = seen("tp2-fusion-on")
    kept = tuple(x for x in evidence.journal.lines if not (x.rank == 1 and x.message.startswith(FUSION_LINE)))
    evidence = replace(evidence, journal=replace(evidence.journal, lines=kept))
    (proof,) = prove([verdict(FUSION, ACTIVE_FUSION[1])], evidence)
    assert proof.status is CONTRADICTED
    assert "rank 1" in proof.reason


def test_a_removed_kernel_needs_the_service_without_the_flag():
    gone = verdict("some-flag", Expectation("kernel", absent="^FusedNothing"))
    (alone,) = prove([gone], seen("tp1-triton"))
    assert alone.status is OPEN
    assert "no profile without the flag" in alone.reason
    (useless,) = prove([gone], against("tp1-triton", "tp1-flashinfer", "some-flag"))
    assert useless.status is OPEN
    assert "does not discriminate" in useless.reason
    real = verdict("some-flag", Expectation("kernel", absent="^_fwd_grouped_kernel_stage1$"))
    (proof,) = prove([real], against("tp1-flashinfer", "tp1-triton", "some-flag"))
    assert proof.status is PROVEN
    assert any("without the flag: " in e for e in proof.findings[0].evidence)


@pytest.mark.parametrize("pattern", ["nvjet_", "CatArray", "Memcpy", ".", "elementwise", "kernel"])
def test_patterns_that_do_not_discriminate_prove_nothing(pattern):
    (proof,) = prove([verdict("x", Expectation("kernel", present=pattern))], seen("tp1-triton"))
    assert proof.status is OPEN
    assert "discriminate" in proof.reason


def test_a_kernel_that_runs_without_the_flag_too_proves_nothing():
    (proof,) = prove(
        [verdict("x", Expectation("kernel", present="fused_moe_kernel"))], against("tp1-fusion-flag", "tp1-triton", "x")
    )
    assert proof.status is OPEN
    assert "without the flag" in proof.reason


def test_broken_expectations_are_named_not_proven():
    for e in (Expectation("kernel", present="("), Expectation("log"), Expectation("log", present="a", absent="b")):
        (proof,) = prove([verdict("x", e)], seen("tp1-triton"))
        assert proof.status is OPEN
        assert "mend the rule" in proof.reason


def test_kernels_outrank_a_line_that_is_missing():
    other_text = Expectation("log", present="FlashInfer fusion of another release is on")
    (proof,) = prove([verdict(FUSION, ACTIVE_FUSION[0], other_text)], seen("tp2-fusion-on"))
    assert proof.status is PROVEN
    assert proof.findings[1].status is OPEN


def test_cuda_graphs():
    on = Expectation("operator", present="^cudaGraphLaunch$", where="decode")
    line = Expectation("log", present="Capture target decode CUDA graph end")
    (proof,) = prove([verdict("cuda-graph-max-bs-decode", on, line)], seen("tp1-triton"))
    assert proof.status is PROVEN
    gone = Expectation("operator", absent="^cudaGraphLaunch$")
    (off,) = prove([verdict("disable-cuda-graph", gone)], seen("tp1-triton"))
    assert off.status is CONTRADICTED


def test_kernel_name_is_in_the_fixture_at_all():
    assert any(FUSION_KERNEL in name for name in traces("tp2-fusion-on")[0].kernels)
    assert not any(FUSION_KERNEL in name for name in traces("tp2-fusion-off")[0].kernels)
