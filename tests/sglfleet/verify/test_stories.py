"""The two accidents this project began with, told by the tool: the silent one and the loud one.

Four RTX PRO 6000 Blackwell (SM 12.0) over PCIe, `--enable-flashinfer-allreduce-fusion`.
"""

from __future__ import annotations

from datetime import date

import pytest

from sglfleet.diagnosis import diagnose
from sglfleet.verify.elsewhere import told, works_in
from sglfleet.verify.evidence import Seen
from sglfleet.verify.findings import exit_code, prove
from sglfleet.verify.journal import from_text
from tests.sglfleet.verify.recorded import seen
from validators.case import Case
from validators.judge import judge
from validators.verdict import Decision, Outcome, Status

FLAG = "enable-flashinfer-allreduce-fusion"
TODAY = date(2026, 11, 29)


def case(sglang, sm="12.0", **more):
    raw = {
        "sglang": sglang, "sm": sm, "gpus": 4, "interconnect": "pcie", "model_arch": "Qwen3MoeForCausalLM",
        "args": {"tp-size": 4, FLAG: True}, **more,
    }  # fmt: skip
    return Case.from_json(raw, today=TODAY)


def of(judged):
    return next(v for v in judged.verdicts if v.flag == FLAG)


def test_the_silent_one_is_found_before_launch():
    """0.5.9: parsed, logged, stored, and never applied; benchmarks were "identical, within noise"."""
    judged = judge(case("0.5.9"))
    verdict = of(judged)
    assert (verdict.outcome, verdict.decision) == (Outcome.INERT, Decision.DROP)
    assert f"--{FLAG}" not in judged.argv
    assert verdict.evidence
    (proof,) = prove([verdict], Seen(argv=("python", *judged.argv), traces=seen("tp2-fusion-off").traces))
    assert proof.status is Status.PROVEN  # that nothing of it runs


def test_the_silent_one_forced_through_a_waiver_is_contradicted_after_launch():
    waiver = [{"flag": FLAG, "reason": "the vendor recommends it", "until": "2027-01-01"}]
    judged = judge(case("0.5.9", allow=waiver))
    verdict = of(judged)
    assert verdict.outcome is Outcome.INERT
    assert verdict.decision is Decision.WARN
    assert f"--{FLAG}" in judged.argv
    # the server takes the flag and says so; its kernels are those of a service without fusion
    running = seen("tp2-fusion-off")
    (proof,) = prove([verdict], Seen(argv=("python", *judged.argv), info={"tp_size": 2}, traces=running.traces))
    assert proof.status is Status.CONTRADICTED
    assert proof.forced
    assert "judged inert" in proof.reason
    assert exit_code([proof]) == 1


LOUD = """\
[2026-01-02 03:04:05] server_args=ServerArgs(model_path='/models/x')
[2026-01-02 03:05:05 TP0] Scheduler hit an exception: Traceback (most recent call last):
  File "/opt/env/lib/python3.12/site-packages/sglang/srt/managers/scheduler.py", line 2, in run_scheduler_process
    module = gen_trtllm_comm_module().build_and_load()
  File "/opt/env/lib/python3.12/site-packages/flashinfer/jit/comm.py", line 60, in gen_trtllm_comm_module
    nvcc_flags = current_compilation_context.get_nvcc_flags_list(
  File "/opt/env/lib/python3.12/site-packages/flashinfer/compilation_context.py", line 62, in get_nvcc_flags_list
    raise RuntimeError(
RuntimeError: No supported CUDA architectures found for major versions [9, 10].
"""


def test_the_loud_one_is_told_from_the_journal():
    journal = from_text(LOUD)
    assert not journal.ready
    found = diagnose(journal.text(), {"tp-size": 4, FLAG: True})
    assert found
    assert found[0].flag == FLAG
    assert "9, 10" in str(found[0])
    assert found[0].do


@pytest.mark.parametrize("release", ["0.5.3.post3", "0.5.23"])
def test_the_loud_one_would_have_been_refused(release):
    """The older calls FlashInfer and dies in its build, the newer raises by itself; both at start-up."""
    verdict = of(judge(case(release)))
    assert (verdict.outcome, verdict.decision) == (Outcome.FAILS, Decision.REFUSE)


@pytest.mark.parametrize(("sm", "there", "nowhere"), [("9.0", "0.5.9", False), ("12.0", "", True)])
def test_the_releases_in_which_it_works_are_told(sm, there, nowhere):
    asked = case("0.5.3.post3", sm, interconnect="nvswitch")
    found = works_in(FLAG, asked)
    assert (not found) is nowhere
    assert there in ("", *found)
    assert ("no known release" in told(FLAG, asked)) is nowhere
