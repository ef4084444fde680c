# ruff: noqa: E501 - a table
"""2,000 mutated service files: never a traceback, always a located message or a clean verdict."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from datetime import date

import pytest

from sglfleet import gate
from sglfleet.intent import Placement
from sglfleet.inventory import Host
from validators.flagtypes import flag_types
from validators.hardware import declared
from validators.load import load
from validators.verdict import Overall

GOOD = """\
# a whole service file
service: qwen35-122b
engine: {sglang: 0.5.23, pins: {flashinfer: 0.7.4}, venv: managed}
model: {path: /models/Qwen3.5-122B-A10B, arch: Qwen3MoeForCausalLM}
gpus: [0, 1, 2, 3]
args:
  tp-size: 4
  port: 30001
  flashinfer-allreduce-fusion-backend: auto
  enable-fused-moe-sum-all-reduce: true
  mem-fraction-static: 0.85
  kv-cache-dtype: fp8_e4m3
  tool-call-parser: "qwen3_coder"
  cuda-graph-bs-decode: [1, 2, 4, 8]
  json-model-override-args: {rope_scaling: {factor: 2.0}}
env: {NCCL_P2P_LEVEL: SYS, OMP_NUM_THREADS: 8}
secrets: {api-key: {env: QWEN_API_KEY}}
on_unsupported: {default: auto, flags: {kv-cache-dtype: warn}}
allow:
  - {flag: kv-cache-dtype, reason: "measured, no loss", until: 2027-01-31}
rollout: {canary: [gpu-7], max_unavailable: 25%, soak: 30s, on_failure: rollback}
verify:
  benchmark: {input_len: 1000, output_len: 1000, concurrency: [1, 16, 64], repeats: 5}
"""
ODD = ["", "~", "on", "010", "1:30", "-1", "1e400", "[]", "{}", "'", '"', "%", "${HOME}", "\n", "\t", "&a", "*a", "!!x 1", "|", "é",
       "\x00", "\x1b[2J", "null", "true", "x" * 5000, "../..", "a: b", "- a", "9" * 30, "<<: *x", "\u202e", "\ud7ff", "0x1F"]  # fmt: skip
Mutation = Callable[[random.Random, str], str | bytes]


def swap_value(rng: random.Random, text: str) -> str:
    hits = list(re.finditer(r"(?<=: )[^,{}\[\]\n]+", text))
    if not hits:
        return rng.choice(ODD)
    hit = rng.choice(hits)
    return text[: hit.start()] + rng.choice(ODD) + text[hit.end() :]


def swap_key(rng: random.Random, text: str) -> str:
    hits = list(re.finditer(r"[a-zA-Z_-]+(?=: )", text))
    if not hits:
        return rng.choice(ODD)
    hit, other = rng.choice(hits), rng.choice(hits)
    new = rng.choice([other[0], hit[0] + "s", hit[0].replace("-", "_"), hit[0][:-1], rng.choice(ODD)])
    return text[: hit.start()] + new + text[hit.end() :]


def cut_line(rng: random.Random, text: str) -> str:
    lines = text.splitlines(keepends=True) or [""]
    del lines[rng.randrange(len(lines))]
    return "".join(lines)


def double_line(rng: random.Random, text: str) -> str:
    lines = text.splitlines(keepends=True) or [""]
    lines.insert(rng.randrange(len(lines)), rng.choice(lines))
    return "".join(lines)


def indent(rng: random.Random, text: str) -> str:
    lines = text.splitlines(keepends=True) or [""]
    i = rng.randrange(len(lines))
    lines[i] = rng.choice([" ", "   ", "\t", "- "]) + lines[i]
    return "".join(lines)


def insert(rng: random.Random, text: str) -> str:
    i = rng.randrange(len(text) + 1)
    return text[:i] + rng.choice(ODD) + text[i:]


def cut(rng: random.Random, text: str) -> str:
    return text[: rng.randrange(len(text) + 1)]


def flip_byte(rng: random.Random, text: str) -> bytes:
    raw = bytearray(text.encode("utf-8", "surrogatepass"))
    raw = raw or bytearray(b" ")
    raw[rng.randrange(len(raw))] = rng.randrange(256)
    return bytes(raw)


MUTATIONS: list[Mutation] = [swap_value, swap_key, cut_line, double_line, indent, insert, cut, flip_byte]
LOCATED = re.compile(r"s\.yaml:\d+:\d+: .+")


def judged(raw: str | bytes) -> str:
    """`bad input` with located messages, or the gate's decision."""
    loaded = load(raw, "s.yaml", flag_types)
    if loaded.service is None:
        assert loaded.problems
        for problem in loaded.problems:
            assert LOCATED.fullmatch(str(problem)), str(problem)
            assert str(problem).isprintable()
        return "bad input"
    assert not loaded.problems
    host = Host("h", (), ())
    placement = Placement(host, loaded, loaded.service)
    judgement = gate.judge(placement, declared("h", "rtx-pro-6000 x4"), date(2026, 11, 29))
    assert isinstance(judgement.decision, Overall)
    assert all(verdict.reason for verdict in judgement.verdicts)
    return judgement.decision.value


def test_the_file_itself_is_right() -> None:
    assert load(GOOD, "s.yaml", flag_types).problems == ()


@pytest.mark.parametrize("seed", range(20))
def test_mutated(seed: int) -> None:
    rng = random.Random(seed)
    seen = []
    for _ in range(100):
        text: str | bytes = GOOD
        for _ in range(rng.choice([1, 1, 1, 2, 3])):
            if isinstance(text, str):
                text = rng.choice(MUTATIONS)(rng, text)
        seen.append(judged(text))
    assert {"bad input", "refuse"} & set(seen)
    assert len(set(seen)) > 1  # mutations are not all refused by the loader
