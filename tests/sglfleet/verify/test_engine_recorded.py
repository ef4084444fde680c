"""What the real engine showed on a CPU (SGLang 0.5.23 in a systemd unit), replayed: 23 flags, both ways."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sglfleet.verify.prove import assemble
from tests.sglfleet.verify.test_engine import ACT, CANNOT
from validators.expectations import _SHOWS
from validators.verdict import Decision, Outcome, Status, Verdict

ANSWER = json.loads((Path(__file__).parents[2] / "fixtures" / "cpu" / "server-0.5.23.json").read_text())


def status(flag, value, answer=ANSWER):
    asked = Verdict(flag, value, Outcome.ACTIVE, Decision.KEEP, "as asked", "test")
    (one,) = assemble(answer, "h1", "handmade", judged=(asked,)).proofs
    return one.status


@pytest.mark.parametrize("flag", ACT)
def test_flags_that_act_are_proven(flag):
    assert status(flag, ACT[flag]) is Status.PROVEN


@pytest.mark.parametrize("flag", CANNOT)
def test_flags_that_cannot_act_are_never_proven(flag):
    assert status(flag, CANNOT[flag]) is not Status.PROVEN


OTHER = {
    "chunked-prefill-size": 128,
    "max-running-requests": 8,
    "max-total-tokens": 8192,
    "stream-interval": 1,
    "context-length": 2048,
    "served-model-name": "other",
    "dtype": "bfloat16",
    "disable-radix-cache": True,
    "enable-deterministic-inference": True,
}


@pytest.mark.parametrize("flag", OTHER)
def test_what_this_server_does_not_do_is_contradicted(flag):
    assert status(flag, OTHER[flag]) is Status.CONTRADICTED


@pytest.mark.parametrize("value", [7, 99999, "other", "fp8_e4m3", "10.1.2.3", "triton"])
@pytest.mark.parametrize(
    "flag", sorted({flag for flag, value in _SHOWS if value is None} | {"dtype", "kv-cache-dtype"})
)
def test_no_other_value_than_the_one_given_is_proven(flag, value):
    assert status(flag, value) is not Status.PROVEN


def test_without_a_profile_the_attention_backend_is_not_proven():
    answer = {**ANSWER, "traces": [], "gaps": {"profile": "no profile was asked for"}}
    assert status("attention-backend", "torch_native", answer) is Status.NOT_PROVEN


def test_a_cache_of_another_type_says_nothing_of_the_model():
    other = {**ANSWER, "journal": ANSWER["journal"].replace("dtype: torch.float32,", "dtype: torch.float8_e4m3fn,")}
    assert other != ANSWER
    assert status("dtype", "float32", other) is Status.NOT_PROVEN
    assert status("kv-cache-dtype", "fp8_e4m3", other) is Status.PROVEN
    assert status("kv-cache-dtype", "fp8_e4m3") is Status.CONTRADICTED


@pytest.mark.parametrize(
    ("flag", "value", "info", "state", "proven"),
    [
        ("max-total-tokens", 16400, {"page_size": 64, "max_total_num_tokens": 16384}, {}, True),
        ("max-total-tokens", 16448, {"page_size": 64, "max_total_num_tokens": 16384}, {}, False),
        ("max-running-requests", 8, {"dp_size": 2}, {"effective_max_running_requests_per_dp": 4}, True),
        ("max-running-requests", 8, {"dp_size": 1}, {"effective_max_running_requests_per_dp": 4}, False),
    ],
)
def test_numbers_in_whole_pages_and_shared_by_replicas(flag, value, info, state, proven):
    told = {**ANSWER["server_info"], **info}
    told["internal_states"] = [{**one, **state} for one in told["internal_states"]]
    got = status(flag, value, {**ANSWER, "server_info": told})
    assert got is (Status.PROVEN if proven else Status.CONTRADICTED)


def test_a_release_that_does_not_log_a_thing_contradicts_nothing():
    old = {
        **ANSWER,
        "journal": ANSWER["journal"].replace("KV Cache is allocated. dtype: torch.float32, ", "KV Cache: "),
    }
    assert status("dtype", "float32", old) is Status.NOT_PROVEN
    assert status("kv-cache-dtype", "fp8_e4m3", old) is Status.NOT_PROVEN
