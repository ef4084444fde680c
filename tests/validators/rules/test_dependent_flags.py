"""Flags whose master is off: cases read in three releases by hand, both ways, and what holds in every release."""

from __future__ import annotations

import ast
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.validators.opening import stands
from validators.case import Case
from validators.judge import judge
from validators.knowledge import load_sglang, releases
from validators.rules import dependent_flags, reads
from validators.rules.context import Context
from validators.verdict import Decision, Outcome

PLAIN = "LlamaForCausalLM"


def cases() -> Iterator[Any]:
    for line in Path(__file__).with_name("dependent_flags.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        yield pytest.param(row, id=row["id"])


@pytest.mark.parametrize("row", list(cases()))
def test_case(row: dict[str, Any]) -> None:
    case = {key: value for key, value in row.items() if key not in ("why", "expect")}
    found = [v for v in judge(Case.from_json(case)).verdicts if v.flag == row["expect"]["flag"]]
    assert len(found) == 1, f"{len(found)} verdicts"
    assert found[0].outcome == row["expect"]["outcome"], found[0].reason
    if found[0].outcome is Outcome.INERT:
        assert found[0].rule == "dependent-flags"
        assert found[0].decision is Decision.DROP
        assert row["expect"]["master"] in found[0].reason
        assert found[0].evidence
        assert not found[0].evidence[0].condition.startswith("--")
        assert found[0].todo


def told(release: str, args: dict[str, Any], arch: str = PLAIN) -> set[str]:
    """Flags that the rule calls inert."""
    case = Case.from_json({"sglang": release, "sm": "9.0", "model_arch": arch, "args": args})
    return {part.flag for part in dependent_flags.judge(Context(case, load_sglang(release), args, "9.0"))}


def value(flag: Any) -> Any:
    """Something that a person could give for it."""
    if flag.kind != "value":
        return True
    if flag.choices:
        return next((one for one in flag.choices if one != flag.default), flag.choices[0])
    return {"int": 3, "float": 0.25, "json": "{}"}.get(flag.type, "x")


def masters(release: str, text: str) -> Iterator[dict[str, Any]]:
    """Flags that make one way of a condition true, where one flag alone does."""
    known = load_sglang(release)
    of_field = {flag.field: flag for flag in known.flags.values() if flag.field}
    tree = ast.parse(text, mode="eval").body
    for way in tree.values if isinstance(tree, ast.BoolOp) and isinstance(tree.op, ast.Or) else [tree]:
        owner = way.left if isinstance(way, ast.Compare) else way
        flag = (
            of_field.get(owner.attr)
            if isinstance(owner, ast.Attribute) and ast.unparse(owner.value) == "args"
            else None
        )
        if flag is None:
            continue
        if not isinstance(way, ast.Compare):
            yield {flag.name: value(flag)}
        elif isinstance(way.ops[0], ast.Eq) and isinstance(way.comparators[0], ast.Constant):
            yield {flag.name: way.comparators[0].value}
        elif isinstance(way.ops[0], ast.Gt) and isinstance(way.comparators[0], ast.Constant):
            yield {flag.name: ast.literal_eval(way.comparators[0]) + 1}
        elif isinstance(way.ops[0], ast.IsNot):
            yield {flag.name: value(flag)}


@pytest.mark.parametrize("release", releases("sglang"))
def test_giving_the_master_takes_the_reason_away(release: str) -> None:
    known = load_sglang(release)
    table = reads.of(release)
    assert table is not None, "a shipped release that nobody has read"
    tried = 0
    for flag in known.flags.values():
        for condition in table.behind.get(flag.field, ()):
            for master in masters(release, condition.text):
                args = {flag.name: value(flag), **master}
                assert flag.name not in told(release, args), (flag.name, master)
                tried += 1
    assert tried > 20


@pytest.mark.parametrize("release", releases("sglang"))
def test_alone_it_is_said_of_the_families_that_every_release_has(release: str) -> None:
    known = load_sglang(release)
    names = ("lora-backend", "max-lora-rank", "hicache-ratio", "eplb-algorithm", "tbo-token-distribution-threshold")
    alone = {name: value(known.flags[name]) for name in names if name in known.flags}
    missing = {name for name, given in alone.items() if name not in told(release, {name: given})}
    assert missing == set()


@pytest.mark.parametrize("release", releases("sglang"))
def test_every_flag_of_the_table_can_be_asked_for_alone(release: str) -> None:
    known = load_sglang(release)
    table = reads.of(release)
    assert table is not None
    alone = [flag for flag in known.flags.values() if flag.field in table.behind]
    said = [flag.name for flag in alone if told(release, {flag.name: value(flag)})]
    assert len(said) > len(alone) / 2


@pytest.mark.parametrize("release", releases("sglang"))
def test_a_model_that_nobody_named_is_not_taken_for_a_plain_one(release: str) -> None:
    known = load_sglang(release)
    asked = {name: value(flag) for name, flag in known.flags.items() if name.startswith(("mamba-", "nsa-", "dsa-"))}
    for arch in ("", "Qwen3NextForCausalLM", "DeepseekV32ForCausalLM"):
        assert told(release, asked, arch) == set()


@pytest.mark.parametrize("release", releases("sglang"))
def test_what_serves_is_never_called_ignored(release: str) -> None:
    """Flags of every launch: a table that has one of them was read wrongly."""
    always = {
        *("tp_size", "dp_size", "ep_size", "pp_size", "nnodes", "model_path", "host", "port", "attention_backend"),
        *("kv_cache_dtype", "quantization", "mem_fraction_static", "max_running_requests", "chunked_prefill_size"),
        *("enable_hierarchical_cache", "enable_lora", "speculative_algorithm", "disaggregation_mode", "enable_eplb"),
        *("moe_runner_backend", "moe_a2a_backend", "enable_metrics", "log_requests", "context_length", "dtype"),
        *(
            "tool_call_parser",
            "reasoning_parser",
            "trust_remote_code",
            "served_model_name",
            "page_size",
            "chat_template",
        ),
    }
    table = reads.of(release)
    assert table is not None
    assert always & set(table.behind) == set()


def test_a_release_that_nobody_has_read_says_nothing() -> None:
    assert reads.of("0.0.1") is None


@pytest.mark.skipif("SGLFLEET_TREES" not in os.environ, reason="SGLFLEET_TREES: folder of unpacked artifacts, by name")
@pytest.mark.full
@pytest.mark.parametrize("release", releases("sglang"))
def test_the_places_stand_in_the_unpacked_releases(release: str) -> None:
    root = Path(os.environ["SGLFLEET_TREES"]) / f"sglang-{release}"
    assert [proof for proof in reads.places(release) if not stands(root, proof)] == []
