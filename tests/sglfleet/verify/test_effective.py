"""Asked, given, effective: every difference has its reason, or is named as unexplained."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sglfleet.verify.effective import given_flags, table
from sglfleet.verify.evidence import Seen
from sglfleet.verify.journal import from_text
from tests.sglfleet.verify.recorded import FUSION, seen, verdict
from validators.verdict import Decision, Outcome


def rows(asked, evidence=None, verdicts=(), **more):
    return {row.flag: row for row in table(asked, verdicts, evidence or seen("tp2-fusion-on"), **more)}


def test_real_server():
    got = rows({"tp-size": 2, "attention-backend": "triton", "random-seed": 1}, names={"tp": "tp-size"})
    assert (got["tp-size"].given, got["tp-size"].effective, got["tp-size"].reason) == ("2", "2", "")
    assert got["attention-backend"].explained
    assert got["load-format"].asked == "—"


@pytest.mark.parametrize(
    ("asked", "verdicts", "stand_in", "reason", "explained"),
    [
        ({"sampling-backend": "pytorch"}, (), {}, "the engine's own _sampling_backend_default", True),
        ({"chunked-prefill-size": 64}, (), {}, "nothing says why", False),
        ({"chunked-prefill-size": 64}, (), {"chunked-prefill-size": "8192"}, "stand-in of the lab", True),
        (
            {"chunked-prefill-size": 64},
            (replace(verdict("chunked-prefill-size", outcome=Outcome.ALTERED), becomes="8192"),),
            {},
            "as judged, it becomes 8192",
            True,
        ),
        (
            {FUSION: "trtllm"},
            (verdict(FUSION, outcome=Outcome.INERT, decision=Decision.DROP),),
            {},
            "left out before launch",
            True,
        ),
    ],
)
def test_reasons(asked, verdicts, stand_in, reason, explained):
    (flag,) = asked
    got = rows(asked, verdicts=verdicts, stand_in=stand_in)[flag]
    assert reason in got.reason
    assert got.explained is explained


def test_a_deprecated_spelling_names_what_it_stands_for():
    old = "enable-flashinfer-allreduce-fusion"
    evidence = replace(seen("tp2-fusion-on"), info={"enable_flashinfer_allreduce_fusion": False})
    assert rows({old: True}, evidence)[old].reason == "deprecated: stands for --flashinfer-allreduce-fusion-backend"


def test_no_server_info_is_no_difference():
    got = rows({"tp-size": 2}, replace(seen("tp2-fusion-on"), info=None))
    assert got["tp-size"].effective == "—"
    assert got["tp-size"].explained


@pytest.mark.parametrize(
    ("argv", "want"),
    [
        (("--tp", "2", "--x"), {"tp": "2", "x": "true"}),
        (("--a=1", "--no-b", "--c", "1", "2"), {"a": "1", "b": "false", "c": "1 2"}),
        (("python", "-m", "x", "--seed", "-1"), {"seed": "-1"}),
        ((), {}),
    ],
)
def test_given_flags(argv, want):
    assert given_flags(argv) == want


def test_the_engine_names_flags_with_their_dashes():
    log = (
        "[2026-11-29 18:46:30] server_args={'enable_symm_mem': True}\n"
        "[2026-11-29 18:46:32] --enable-symm-mem is not supported on non CUDA/HIP devices. Disabling symmetric memory."
    )
    evidence = Seen(journal=from_text(log), info={"enable_symm_mem": False}, argv=("--enable-symm-mem",))
    (row,) = table({"enable-symm-mem": True}, (), evidence)
    assert row.explained
    assert "Disabling symmetric memory" in row.reason
