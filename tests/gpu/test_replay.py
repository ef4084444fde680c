"""What real cards showed, replayed: every finding must come out again as the kernels showed it."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest

from sglfleet.diagnosis import diagnose
from sglfleet.verify.correctness import compare
from sglfleet.verify.findings import prove
from sglfleet.verify.gathered import seen
from sglfleet.verify.probe import disagreements
from sglfleet.verify.trace import Trace
from tests.gpu import scenarios
from validators.case import Case
from validators.judge import judge
from validators.knowledge import load_flashinfer
from validators.verdict import Decision, Expectation, Outcome, Status, Verdict

H200 = Path(__file__).parents[1] / "fixtures" / "h200"
RAN = {which: H200 / f"card-{which}" for which in ("one", "two") if (H200 / f"card-{which}").is_dir()}
CASES = [
    (which, s)
    for which, folder in RAN.items()
    for s in scenarios.ALL[which]
    if s.flag and (folder / f"{s.name}.json").exists()
]


def raw(which, name):
    return json.loads((RAN[which] / f"{name}.json").read_text())


def traces(which, name):
    return tuple(Trace.from_json(t) for t in raw(which, name)["traces"])


def verdict(which, s):
    """As judged: acting, or idle and left on the command line by a waiver."""
    value = s.args.get(s.flag, scenarios.FLAGS[which].get(s.flag, "auto"))
    expects = scenarios.EXPECTS[s.flag, value]
    if not s.forced:
        return Verdict(s.flag, value, Outcome.ACTIVE, Decision.KEEP, "as judged", "x", expects=expects)
    idle = tuple(replace(e, present="", absent=e.present) for e in expects)
    return Verdict(s.flag, value, Outcome.INERT, Decision.WARN, "as judged", "x", expects=idle)


def prove_one(which, s):
    controls = {s.flag: traces(which, s.control)} if s.control else {}
    (proof,) = prove([verdict(which, s)], seen(raw(which, s.name), controls))
    return proof


@pytest.mark.parametrize(("which", "s"), CASES, ids=lambda x: getattr(x, "name", x))
def test_findings_are_those_of_the_kernels(which, s):
    proof = prove_one(which, s)
    assert str(proof.status) == s.expected, [(f.status, f.reason) for f in proof.findings]
    assert proof.forced is s.forced


def kernels(name):
    return {k for t in traces("one", name) for k in t.kernels}


def test_the_kernels_themselves_say_so():
    """Looked at without any of our patterns' machinery."""
    assert "_fwd_kernel" in kernels("triton")
    assert "_fwd_kernel" not in kernels("flashinfer")
    assert any("BatchPrefillWithPagedKVCacheKernel" in k for k in kernels("flashinfer"))
    assert not any("KVCacheKernel" in k for k in kernels("triton"))
    assert "triton_per_fused_copy__mul_sum_0" in kernels("triton")
    assert "triton_per_fused_copy__mul_sum_0" not in kernels("moe-sum")
    assert not any("allreduce" in k for k in kernels("fusion-forced"))
    assert any("cudaGraphLaunch" in t.operators for t in traces("one", "triton"))
    assert not any("cudaGraphLaunch" in t.operators for t in traces("one", "no-graph"))


def test_each_attention_backend_is_the_others_negative_control():
    one, other = (s for s in scenarios.ONE if s.name in ("triton", "flashinfer"))
    for mine, wrong in ((one, other), (other, one)):
        (proof,) = prove([verdict("one", wrong)], seen(raw("one", mine.name)))
        assert proof.status is Status.CONTRADICTED


def test_the_same_service_twice_proves_nothing_of_a_flag():
    """A/A: with itself as the control no kernel discriminates."""
    s = next(s for s in scenarios.ONE if s.name == "triton")
    (proof,) = prove([verdict("one", s)], seen(raw("one", "triton"), {s.flag: traces("one", "same")}))
    assert proof.status is Status.NOT_PROVEN
    assert "does not discriminate" in proof.reason


def test_greedy_output_is_equal_with_and_without():
    for name in ("moe-sum", "no-graph", "kv-fp8", "flashinfer", "fusion-forced"):
        assert compare(raw("one", name)["outputs"], raw("one", "triton")["outputs"]).status is Status.PROVEN


def test_a_flag_the_card_refuses_is_named_from_its_log():
    """`--attention-backend trtllm_mha` on SM 9.0, forced: ValueError at argument resolution, exit code 1."""
    log = (H200 / "failures" / "refused-sm90.log").read_text()
    found = diagnose(log, {"attention-backend": "trtllm_mha"})
    assert [d.flag for d in found][:1] == ["attention-backend"]
    assert "SM100" in found[0].because


PROBE = json.loads((H200 / "probe.json").read_text())


def test_generators_asked_on_the_card_are_those_of_the_knowledge():
    """SM 9.0 by the card itself, 8.9, 10.0 and 12.0 with the arch list set."""
    known = load_flashinfer("0.6.14").generators.values()
    majors = {g.name: g.majors for g in known if g.certain and not g.archs}  # the others do not look at the GPU
    asked = {(sm, key.rpartition(".")[2]) for sm, rows in PROBE["generators"].items() for key in rows}
    assert {sm for sm, _ in asked} == {"8.9", "9.0", "10.0", "12.0"}
    assert len([1 for _, name in asked if name in majors]) > 100
    assert len([1 for _, name in asked if majors.get(name) is not None]) > 30
    assert disagreements(PROBE, [], majors=majors) == ()
    assert "[9, 10]" in PROBE["generators"]["12.0"]["jit.comm.gen_trtllm_comm_module"]


def test_the_engines_own_resolution_agrees_with_the_judgement():
    """TP 2 with data-parallel attention and the fusion flag: it resolves, and raises nothing."""
    assert PROBE["arguments"]["raised"] == ""
    resolved = PROBE["arguments"]["resolved"]
    asked = Verdict("attention-backend", "triton", Outcome.ACTIVE, Decision.KEEP, "", "x")
    assert disagreements(PROBE, [asked]) == ()
    assert (resolved["tp_size"], resolved["dp_size"]) == (2, 2)


def test_the_off_switch_is_the_negative_control_of_the_fusion():
    for name in ("on", "automatic"):
        assert {t.rank for t in traces("two", name) if any("allreduce_fusion" in k for k in t.kernels)} == {0, 1}
    assert not any("allreduce_fusion" in k for name in ("off", "dp") for t in traces("two", name) for k in t.kernels)
    log = raw("two", "off")["log"]
    assert log.index("Auto-enabling FlashInfer AllReduce Fusion") < log.index("forcibly disabled")
    announced = Expectation("log", present="Auto-enabling FlashInfer AllReduce Fusion")
    claim = Verdict(scenarios.FUSION, "auto", Outcome.ACTIVE, Decision.KEEP, "", "x", expects=(announced,))
    (proof,) = prove([claim], seen(raw("two", "off")))
    assert proof.status is Status.NOT_PROVEN
    assert "forcibly disabled" in proof.reason


JUDGED = {
    ("one", "triton"): "active",
    ("one", "fusion-forced"): "inert",
    ("one", "moe-sum"): "active",
    ("one", "refused"): "fails",
    ("one", "rejected"): "rejected",
    ("two", "off"): "active",
    ("two", "dp"): "inert",
    ("two", "on"): "active",
    ("two", "automatic"): "active",
}


@pytest.mark.parametrize(("which", "name"), JUDGED)
def test_the_gate_says_before_launch_what_the_card_did(which, name):
    s = next(s for s in scenarios.ALL[which] if s.name == name)
    waiver = [{"flag": s.flag, "reason": "to see what it really does", "until": "2099-01-01"}] if s.forced else []
    case = {
        "sglang": scenarios.RELEASES[which][0], "sm": "9.0", "gpus": 2 if which == "two" else 1,
        "interconnect": "nvswitch", "model_arch": scenarios.ARCH, "allow": waiver,
        "args": {**scenarios.FLAGS[which], **s.args},
    }  # fmt: skip
    judged = judge(Case.from_json(case, today=date(2026, 11, 29)))
    verdict = next(v for v in judged.verdicts if v.flag == s.flag)
    assert str(verdict.outcome) == JUDGED[which, name]
    if name == "on":  # the engine turns it on by itself here: no run is worth the comparison
        assert verdict.redundant
    if name == "automatic":
        assert verdict.automatic
