"""The real engine on a CPU: flags that act there come out proven, flags that cannot are never proven.

One hand-written unit on a lab host, asked past the network by the script that also goes over SSH, then once by
`sglfleet doctor`.
"""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from sglfleet.verify.doctor import judged_as_it_stands
from sglfleet.verify.prove import assemble
from tests.sglfleet.verify import handmade
from validators.verdict import Decision, Expectation, Outcome, Status, Verdict

pytestmark = [pytest.mark.lab, pytest.mark.engine]

# seen on this engine to do on a CPU what they say
ACT = {
    "attention-backend": "torch_native",
    "chunked-prefill-size": 64,
    "max-running-requests": 4,
    "max-total-tokens": 16384,
    "stream-interval": 4,
    "context-length": 1024,
    "served-model-name": "lab",
    "enable-cache-report": True,
    "enable-metrics": True,
    "log-requests": True,
    "dtype": "float32",
}
# need a GPU, several of them, or another model
CANNOT = {
    "enable-flashinfer-allreduce-fusion": True,
    "enable-fused-moe-sum-all-reduce": True,
    "cuda-graph-max-bs-decode": 8,
    "enable-nccl-nvls": True,
    "enable-symm-mem": True,
    "enable-torch-symm-mem": True,
    "enable-mscclpp": True,
    "triton-attention-num-kv-splits": 16,
    "moe-runner-backend": "triton",
    "disable-custom-all-reduce": True,
    "enable-p2p-check": True,
    "schedule-policy": "lpm",
}
LINE = "FlashInfer AllReduce Fusion enabled and workspace initialized: backend=trtllm, rank=0"
FORGED = f"hello\n[2026-11-29 18:00:00 TP0] {LINE}\n[2026-11-29 18:00:00] {LINE}"
CPU_NEEDS = ("attention-backend", "max-total-tokens", "enable-metrics")  # in every hand-made unit already


def flags(args):
    return " ".join(f"--{n}" if v is True else f"--{n} {v}" for n, v in args.items() if n not in CPU_NEEDS)


@pytest.fixture(scope="module")
def answer(lab, engine):
    host = lab.host("h1")
    try:
        handmade.start(host, engine, flags({**ACT, **CANNOT}))
        body = json.dumps({"text": FORGED, "sampling_params": {"max_new_tokens": 1}})
        host.exec("curl", "-s", "--json", body, "http://127.0.0.1:30000/generate")
        yield handmade.collect(host, engine, unit="handmade.service")
    finally:
        handmade.stop(host)


@pytest.fixture(scope="module")
def proof(answer):
    asked = [Verdict(n, v, Outcome.ACTIVE, Decision.KEEP, "as asked", "test") for n, v in {**ACT, **CANNOT}.items()]
    return assemble(answer, "h1", "handmade", judged=tuple(asked))


@pytest.mark.parametrize("flag", ACT)
def test_flags_that_act_are_proven(proof, flag):
    (one,) = [p for p in proof.proofs if p.flag == flag]
    assert one.status is Status.PROVEN, one.reason
    assert any(f.evidence for f in one.findings)


@pytest.mark.parametrize("flag", CANNOT)
def test_flags_that_cannot_act_are_never_proven(proof, flag):
    (one,) = [p for p in proof.proofs if p.flag == flag]
    assert one.status is not Status.PROVEN, one
    assert one.reason


def test_what_was_asked_of_a_stranger_is_read_from_its_process(answer):
    from sglfleet.verify.doctor import asked_tokens

    tokens = asked_tokens(answer)
    judged, args, _ = judged_as_it_stands("0.5.23", tokens, answer, "9.0", 1)
    assert args["chunked-prefill-size"] == 64
    assert {v.flag for v in judged} >= {"chunked-prefill-size", "max-running-requests"}
    assert not any(v.decision in (Decision.DROP, Decision.REPLACE, Decision.REFUSE) for v in judged)


def test_a_prompt_in_the_log_is_no_evidence(answer):
    assert LINE in answer["journal"]  # the server wrote the prompt into its log
    claim = Verdict("x", True, Outcome.ACTIVE, Decision.KEEP, "", "", expects=(Expectation("log", present=LINE),))
    (one,) = assemble(answer, "h1", "handmade", judged=(claim,)).proofs
    assert one.status is Status.CONTRADICTED


def test_evidence_is_of_this_process_and_this_start(answer):
    assert answer["unit"]["InvocationID"]
    assert answer["process"]["pid"] == int(answer["unit"]["MainPID"])
    assert answer["packages"]["sglang"] == "0.5.23"
    assert {t["stage"] for t in answer["traces"]} == {"prefill", "decode"}
    assert all(not t["kernels"] and t["operators"] for t in answer["traces"])


def test_nothing_is_left_behind(lab, answer):
    host = lab.host("h1")
    assert host.exec("sh", "-c", "find /tmp -name run.pyz -o -name 'sglfleet-profile*'").stdout == ""
    inside = "ls -d /proc/$(systemctl show -p MainPID --value handmade)/root/tmp/sglfleet-profile*"
    assert host.exec("sh", "-c", inside).returncode != 0
    assert len(json.dumps(answer)) < 20_000_000


def test_doctor_over_ssh_and_the_server_still_serves(lab, answer):
    command = ["doctor", "--host", "h1", "--unit", "handmade.service", "--ssh-config", str(lab.ssh_config)]
    more = ["--sm", "9.0", "--gpus", "1", "--no-profile", "--format", "json"]
    # in a process of its own: reaching hosts patches the standard library for good
    argv = [sys.executable, "-m", "sglfleet", *command, *more]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode in (0, 1), done.stderr
    (server,) = json.loads(done.stdout)["hosts"]
    status = {p["flag"]: p["status"] for p in server["proofs"]}
    assert status["chunked-prefill-size"] == "proven"
    assert status["attention-backend"] == "not proven"  # no profile was taken
    assert server["gaps"]["profile"] == "no profile was asked for"
