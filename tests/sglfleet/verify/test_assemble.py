"""From a host's answer to a proof: what is judged, what is compared with, and what a dead server says."""

from __future__ import annotations

import json
from dataclasses import asdict

import pytest

from sglfleet.verify import earlier
from sglfleet.verify.gathered import seen as gather
from sglfleet.verify.gathered import unpack
from sglfleet.verify.prove import assemble
from tests.sglfleet.verify.recorded import FUSION_KERNEL, H200, seen, traces, verdict
from validators.expectations import for_flag
from validators.verdict import Expectation, Judgement, Outcome, Overall, Status

PACKAGES = {"sglang": "0.5.16", "torch": "2.11.0"}
SUM = "enable-fused-moe-sum-all-reduce"


def answer(service, *verdicts, release="now", **more):
    """A host's answer with the evidence recorded of a service on H200."""
    evidence = seen(service)
    return {
        "gaps": {}, "seconds": {"process": 0.1}, "url": "http://127.0.0.1:30000", "packages": PACKAGES,
        "process": {"pid": 7, "argv": list(evidence.argv), "env": {}},
        "server_info": dict(evidence.info or {"version": "0.5.16"}), "log": (H200 / service / "server.log").read_text(),
        "traces": [t.to_json() for t in evidence.traces],
        "outputs": [{"name": f"{n}", "status": 200, "ids": [n, 2, 3], "text": "a b c"} for n in (3, 17, 64)],
        "manifest": {
            "release": release, "sglang": "0.5.16",
            "verdicts": Judgement(Overall.ACCEPT, verdicts, (), {}).to_json()["verdicts"],
        },
        **more,
    }  # fmt: skip


def past(service, release="before", **more):
    """What an earlier proof of another service left behind."""
    evidence = seen(service)
    record = {"release": release, "time": 1, "argv": list(evidence.argv), "packages": PACKAGES}
    return {**record, "traces": [t.to_json() for t in evidence.traces], **more}


def test_recorded_service_with_its_earlier_release_as_control():
    fusion = verdict("enable-flashinfer-allreduce-fusion", Expectation("kernel", present=FUSION_KERNEL))
    proof = assemble(answer("tp2-fusion-on", fusion, earlier=[past("tp2-fusion-off")]), "gpu-1", "moe")
    assert proof.status is Status.PROVEN
    assert proof.release == "now"
    assert "not in the service without the flag" in proof.proofs[0].reason
    assert json.loads(json.dumps(proof.to_json()))["status"] == "proven"


def test_an_earlier_release_of_another_engine_or_model_is_no_control():
    raw = answer("tp2-fusion-on")
    assert len(earlier.usable({**raw, "earlier": [past("tp2-fusion-off")]})) == 1
    other_engine = past("tp2-fusion-off", packages={**PACKAGES, "torch": "2.12.0"})
    other_model = past("tp2-fusion-off", argv=["--model-path", "/other"])
    same_release = past("tp2-fusion-off", release="now")
    assert earlier.usable({**raw, "earlier": [other_engine, other_model, same_release]}) == []


def test_the_nearest_earlier_release_counts():
    raw = answer("tp2-fusion-on")
    near, far = past("tp2-fusion-off", release="near"), past("tp1-triton", release="far")
    far["argv"] = [*near["argv"], "--page-size", "64"]
    found = earlier.usable({**raw, "earlier": [far, near]})
    assert [r["release"] for r in found] == ["near", "far"]
    flag = verdict("enforce-disable-flashinfer-allreduce-fusion")
    assert earlier.control(flag, found) == traces("tp2-fusion-off")
    assert earlier.control(verdict("tp"), found) == ()


def test_outputs_are_compared_with_the_earlier_release():
    rows = answer("tp2-fusion-on")["outputs"]
    same = assemble(answer("tp2-fusion-on", earlier=[past("tp2-fusion-off", outputs=rows)]), "h", "s")
    assert same.correctness.status is Status.PROVEN
    wrong = [{**row, "ids": [9, 9, 8]} for row in rows]
    other = assemble(answer("tp2-fusion-on", earlier=[past("tp2-fusion-off", outputs=wrong)]), "h", "s")
    assert other.correctness.status is Status.CONTRADICTED
    assert other.status is Status.CONTRADICTED


def test_a_server_that_died_is_diagnosed():
    log = (H200 / "failures" / "badflag.log").read_text()
    raw = {"gaps": {"server_info": "connection refused"}, "log": log, "manifest": {"verdicts": []}}
    proof = assemble(raw, "gpu-1", "moe")
    assert proof.error == "connection refused"
    assert any("no-such-flag" in text for text in proof.diagnosis)
    assert proof.status is Status.NOT_PROVEN


def test_a_host_that_was_not_reached():
    assert assemble({"error": "no route"}, "h", "s").error == "no route"


@pytest.mark.parametrize("printed", ["", "hello", "aGVsbG8=", "e30="])
def test_what_is_no_answer_is_said(printed):
    with pytest.raises(ValueError, match=r"\w"):
        unpack(printed)


def test_largest_prefill_is_read_from_the_log_behind_our_own_requests():
    ready = "[2026-11-29 17:46:30] The server is fired up and ready to roll!"
    line = "[2026-11-29 17:46:33] Prefill batch, #new-seq: 1, #new-token: {}, #cached-token: 0"
    start = "[2026-11-29 17:46:00] server_args={}"
    raw = {"responses": {"long_prompt": 96}, "log": "\n".join([start, ready, line.format(64), line.format(32)])}
    assert gather(raw).responses["largest_prefill"] == 64
    assert "long_prompt" not in gather(raw).responses
    nothing = {"responses": {"long_prompt": 96}, "log": start}
    assert "largest_prefill" not in gather(nothing).responses


def test_plain_flags_get_their_expectations_and_others_none():
    kinds = {flag: for_flag(flag, value) for flag, value in [("chunked-prefill-size", 64), ("schedule-policy", "lpm")]}
    assert kinds["chunked-prefill-size"] == (Expectation("response", present="largest_prefill=64"),)
    assert kinds["schedule-policy"] == ()
    assert for_flag("disable-radix-cache", False) == ()
    assert for_flag("served-model-name", "a.b")[0].present == r"served_model=a\.b"
    assert asdict(for_flag("disable-cuda-graph", True)[0])["absent"] == "^cudaGraphLaunch$"


def test_a_flag_judged_inert_and_forced_needs_no_expectation_of_the_plain_list():
    idle = verdict(SUM, outcome=Outcome.INERT)
    proof = assemble(answer("tp1-triton", idle), "h", "s")
    assert proof.proofs[0].status is Status.NOT_PROVEN


STAND_IN = "stand-in of the lab, after judging: attention-backend=torch_native, device=cpu; left out: tp-size"


def test_a_lab_host_that_plays_a_gpu_says_nothing_against_a_flag_and_nothing_for_it():
    fusion = verdict(
        "flashinfer-allreduce-fusion-backend", Expectation("log", present="FlashInfer AllReduce Fusion on")
    )
    asked = verdict("attention-backend", Expectation("kernel", present="^_fwd_kernel$"), value="triton")
    raw = answer("tp1-triton", fusion, asked)
    assert [p.status for p in assemble(raw, "h", "s").proofs] == [Status.CONTRADICTED, Status.PROVEN]
    raw["manifest"]["stand_in"] = [STAND_IN]
    assert assemble(raw, "h", "s").proofs[0].status is Status.CONTRADICTED  # it does run on a GPU
    raw["server_info"]["device"] = "cpu"
    lab = assemble(raw, "h", "s", asked={"attention-backend": "fa3"})
    assert lab.proofs[0].status is Status.NOT_PROVEN
    assert "stands in" in lab.proofs[0].reason
    (row,) = [r for r in lab.rows if r.flag == "attention-backend"]
    assert row.explained
    assert "stand-in of the lab" in row.reason
