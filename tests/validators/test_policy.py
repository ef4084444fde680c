"""What is done about a flag, by outcome and policy; waivers."""

from __future__ import annotations

from typing import Any

import pytest

from tests.validators.asking import ask, verdict
from validators.policy import decide
from validators.rules.interface import Part
from validators.verdict import Outcome, Policy

OFF = {"off-switch": True}
# outcome -> decision under auto, downgrade, refuse, warn
PLAIN = {
    "active": ("keep", "keep", "keep", "keep"),
    "inert": ("drop", "drop", "refuse", "warn"),
    "altered": ("drop", "drop", "refuse", "warn"),
    "fails": ("refuse", "refuse", "refuse", "refuse"),
    "rejected": ("refuse", "refuse", "refuse", "refuse"),
    "unknown": ("warn", "warn", "refuse", "warn"),
}


@pytest.mark.parametrize("outcome", PLAIN)
def test_table(outcome: str) -> None:
    found = tuple(decide(Part("f", Outcome(outcome), "."), policy)[0].value for policy in Policy)
    assert found == PLAIN[outcome]


@pytest.mark.parametrize(
    ("part", "policy", "decision", "stand_in"),
    [
        (Part("f", Outcome.FAILS, ".", instead=({},)), Policy.DOWNGRADE, "drop", {}),
        (Part("f", Outcome.FAILS, ".", instead=({"f": "b"},)), Policy.DOWNGRADE, "replace", {"f": "b"}),
        (Part("f", Outcome.FAILS, ".", instead=({"f": "b"},)), Policy.AUTO, "refuse", {}),
        (Part("f", Outcome.ALTERED, ".", instead=({"f": "b"},)), Policy.AUTO, "replace", {"f": "b"}),
        (Part("f", Outcome.FAILS, ".", automatic=True, off=OFF), Policy.AUTO, "replace", OFF),
        (Part("f", Outcome.FAILS, ".", automatic=True, off=OFF), Policy.REFUSE, "refuse", {}),
        (Part("f", Outcome.FAILS, ".", automatic=True), Policy.DOWNGRADE, "refuse", {}),
        (Part("f", Outcome.ACTIVE, ".", advice=True), Policy.AUTO, "warn", {}),
        (Part("f", Outcome.UNKNOWN, ".", final=True), Policy.WARN, "refuse", {}),
        (Part("f", Outcome.INERT, ".", refuse=True), Policy.AUTO, "refuse", {}),
        (Part("f", Outcome.INERT, ".", refuse=True), Policy.WARN, "warn", {}),
    ],
)
def test_special(part: Part, policy: Policy, decision: str, stand_in: dict[str, Any]) -> None:
    found, replacement = decide(part, policy)
    assert found == decision
    assert replacement == stand_in


FUSION = "enable-flashinfer-allreduce-fusion"
CASE: dict[str, Any] = {"sglang": "0.5.23", "sm": "12.0", "gpus": 4, "args": {"tp-size": 4, FUSION: True}}


def test_downgrade_drops_what_nothing_turns_on_again() -> None:
    judgement = ask(**CASE, on_unsupported="downgrade")
    assert judgement.decision == "downgrade"
    assert judgement.argv == ("--tp-size", "4")


def test_policy_of_one_flag() -> None:
    judgement = ask(**CASE, on_unsupported={"default": "refuse", FUSION: "downgrade"})
    assert verdict(judgement, FUSION).decision == "drop"


def waived(until: str) -> Any:
    return ask(**CASE, allow=[{"flag": FUSION, "reason": "patched image", "until": until}])


def test_waiver_lets_through_and_is_shown() -> None:
    judgement = waived("2026-11-29")
    found = verdict(judgement, FUSION)
    assert judgement.decision == "warn"
    assert found.waiver == "patched image (until 2026-11-29)"
    assert f"--{FUSION}" in judgement.argv


def test_expired_waiver_refuses_even_under_downgrade() -> None:
    judgement = ask(**CASE, on_unsupported="downgrade", allow=[{"flag": FUSION, "reason": "x", "until": "2026-11-28"}])
    assert verdict(judgement, FUSION).decision == "refuse"
    assert "expired" in verdict(judgement, FUSION).reason
