"""What is remembered of one case must never answer for another one that it does not fit."""

from __future__ import annotations

import random

from validators.case import Case
from validators.judge import judge
from validators.knowledge.loader import load_sglang
from validators.rules import context, reach

CONFIGS = (
    {"architectures": ["Qwen3MoeForCausalLM"], "num_experts": 64},
    {"architectures": ["Qwen3MoeForCausalLM"], "num_experts": 64, "quantization_config": {"quant_method": "fp8"}},
    {"architectures": ["LlamaForCausalLM"]},
)


def cases(count):
    """Cases of a few flags each, which share some of them with each other."""
    pick = random.Random(7)
    flags = [
        (flag.name, value)
        for flag in load_sglang("0.5.16").flags.values()
        if not flag.refused and any(word in flag.name for word in ("backend", "overlap", "moe", "speculative", "dtype"))
        for value in ([True] if not flag.takes_value else [one for one in flag.choices or () if one])
    ]
    for _ in range(count):
        config = pick.choice(CONFIGS)
        yield Case.from_json(
            {
                "sglang": "0.5.16", "sm": pick.choice(("9.0", "12.0")), "gpus": 4, "checkpoint": config,
                "model_arch": config["architectures"][0],
                "args": {"tp-size": pick.choice((1, 4)), **dict(pick.sample(flags, pick.choice((1, 2, 3))))},
            }
        )  # fmt: skip


def forget():
    reach._KEPT.clear()
    context._HELD.clear()


def test_an_answer_does_not_depend_on_what_was_asked_before():
    asked = list(cases(150))
    forget()
    together = [judge(case).to_json() for case in asked]
    alone = []
    for case in asked:
        forget()
        alone.append(judge(case).to_json())
    assert together == alone


def test_checkpoints_of_one_architecture_are_told_apart():
    """The same question of two checkpoints, in both orders."""
    asked = {"sglang": "0.5.16", "sm": "9.0", "gpus": 4, "model_arch": "Qwen3MoeForCausalLM"}
    args = {"tp-size": 4, "moe-runner-backend": "marlin"}
    forget()
    one, other = (judge(Case.from_json({**asked, "args": args, "checkpoint": c})).to_json() for c in CONFIGS[:2])
    forget()
    other_first = judge(Case.from_json({**asked, "args": args, "checkpoint": CONFIGS[1]})).to_json()
    assert (other_first, judge(Case.from_json({**asked, "args": args, "checkpoint": CONFIGS[0]})).to_json()) == (
        other,
        one,
    )
