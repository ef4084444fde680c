"""What holds of every judgement, whatever is asked."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.validators.asking import TODAY
from validators.case import Case
from validators.judge import judge
from validators.verdict import Decision, Outcome, Overall

SMS = ("8.0", "8.6", "8.9", "9.0", "10.0", "10.3", "11.0", "12.0", "12.1")
RELEASES = ("0.4.9.post6", "0.5.3.post3", "0.5.9", "0.5.12", "0.5.16", "0.5.23")
ARCHS = ("Qwen3MoeForCausalLM", "DeepseekV3ForCausalLM", "LlamaForCausalLM", "GptOssForCausalLM", "")
VALUES: dict[str, tuple[Any, ...]] = {
    "tp-size": (1, 2, 4, 8),
    "dp-size": (1, 4),
    "enable-dp-attention": (True,),
    "enable-flashinfer-allreduce-fusion": (True, False),
    "enforce-disable-flashinfer-allreduce-fusion": (True,),
    "flashinfer-allreduce-fusion-backend": ("auto", "trtllm", "mnnvl", "cutedsl"),
    "attention-backend": ("triton", "flashinfer", "fa3", "trtllm_mha", "trtllm_mla", "nonsense"),
    "prefill-attention-backend": ("trtllm_mha", "fa3"),
    "mm-attention-backend": ("fa3", "triton_attn"),
    "kv-cache-dtype": ("auto", "fp8_e4m3", "mxfp8"),
    "enable-pdmux": (True,),
    "enable-torch-symm-mem": (True,),
    "enable-fused-moe-sum-all-reduce": (True,),
    "moe-a2a-backend": ("none", "deepep"),
    "moe-runner-backend": ("auto", "triton", "flashinfer_trtllm"),
    "quantization": ("fp8", "w8a8_fp8", "modelopt_fp4"),
    "ep-size": (1, 4),
    "no-such-flag": (1,),
    "chunked-prefill-size": (-1, 8192),
    "enable-hierarchical-cache": (True,),
    "hicache-ratio": (3.0,),
    "lora-backend": ("triton",),
    "speculative-num-steps": (3,),
    "load-balance-method": ("round_robin",),
}
FLAGS = st.lists(st.sampled_from(sorted(VALUES)), unique=True, max_size=6)


@st.composite
def cases(draw: st.DrawFn) -> dict[str, Any]:
    flags = draw(FLAGS)
    return {
        "sglang": draw(st.sampled_from(RELEASES)),
        "sm": draw(st.sampled_from(SMS)),
        "model_arch": draw(st.sampled_from(ARCHS)),
        "gpus": draw(st.sampled_from((1, 4, 8))),
        "interconnect": draw(st.sampled_from((None, "nvlink", "pcie", "nvswitch"))),
        "nnodes": draw(st.sampled_from((1, 2))),
        "args": {flag: draw(st.sampled_from(VALUES[flag])) for flag in flags},
        "on_unsupported": draw(st.sampled_from(("auto", "downgrade", "refuse", "warn"))),
    }


def answer(raw: dict[str, Any]) -> Any:
    return judge(Case.from_json(raw, today=TODAY))


@given(cases(), st.randoms(use_true_random=False))
def test_order_of_flags_does_not_matter(raw: dict[str, Any], random: Any) -> None:
    flags = list(raw["args"].items())
    random.shuffle(flags)
    assert answer({**raw, "args": dict(flags)}).to_json() == answer(raw).to_json()


@given(cases())
@settings(max_examples=200)
def test_the_effective_command_line_has_nothing_new_to_say(raw: dict[str, Any]) -> None:
    first = answer(raw)
    if first.decision is Overall.REFUSE:
        return
    second = answer({**raw, "args": first.args})
    kept = {(one.flag, one.outcome) for one in first.verdicts if one.decision in (Decision.KEEP, Decision.WARN)}
    assert second.argv == first.argv
    assert second.decision in (Overall.ACCEPT, Overall.WARN)
    for one in second.verdicts:
        assert one.decision in (Decision.KEEP, Decision.WARN)
        known = one.flag in dict(kept) or one.flag in {f for v in first.verdicts for f in (*v.replacement, v.flag)}
        assert known or one.automatic, one


@given(cases())
def test_a_policy_that_refuses_lets_through_only_what_runs(raw: dict[str, Any]) -> None:
    judgement = answer({**raw, "on_unsupported": "refuse"})
    for one in judgement.verdicts:
        if one.outcome is not Outcome.ACTIVE and not one.automatic:
            assert one.decision is Decision.REFUSE, one


@given(cases())
def test_every_flag_gets_one_verdict_and_a_reason(raw: dict[str, Any]) -> None:
    judgement = answer(raw)
    names = [one.flag for one in judgement.verdicts]
    assert len(names) == len(set(names))
    given_twice_is_one = set(raw["args"]) <= set(names)
    assert given_twice_is_one
    for one in judgement.verdicts:
        assert one.reason.endswith((".", "?"))
        if one.outcome in (Outcome.FAILS, Outcome.INERT, Outcome.ALTERED):
            assert one.steps


@given(cases())
def test_less_knowledge_never_makes_anything_run(raw: dict[str, Any]) -> None:
    """Without knowledge of the release every flag is unknown and refused, whatever it was with knowledge."""
    judgement = answer({**raw, "sglang": "0.0.1"})
    assert judgement.decision is Overall.REFUSE
    assert {one.outcome for one in judgement.verdicts} == {Outcome.UNKNOWN}
    assert judgement.argv == ()
