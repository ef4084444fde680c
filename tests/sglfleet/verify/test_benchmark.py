"""What is asked of the engine's benchmark, what is sent to the host, and how its lines become runs."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from sglfleet.verify import benchmark
from sglfleet.verify.benchmark import Failure, Target, of_line, plan, spec, start_script
from sglfleet.verify.runs import Run, keep, load
from sglfleet.verify.validity import of_run
from validators.service import Benchmark

FIXTURES = Path(__file__).parents[2] / "fixtures/bench"
TARGET = Target(
    service="tiny",
    host="h1",
    release="r1",
    unit="sglang-tiny.service",
    url="http://127.0.0.1:30000",
    model="/models/tiny",
    python="/opt/engine/bin/python",
    user="sglang-tiny",
    engine={"sglang": "0.5.23"},
    gpus=(0, 1),
    host_class="h200-x8",
)


def recorded() -> dict:
    return json.loads((FIXTURES / "cpu-0.5.23.json").read_text())


def test_every_run_has_its_own_seed_and_concurrencies_alternate():
    runs = plan(Benchmark(concurrency=(1, 16), repeats=3), seed=100)
    assert [r["concurrency"] for r in runs] == [1, 16, 1, 16, 1, 16]
    assert [r["seed"] for r in runs] == list(range(100, 106))
    assert [r["warmup"] for r in runs] == [True, True, False, False, False, False]


def test_a_line_of_the_real_engine_becomes_a_run():
    run = of_line(recorded(), TARGET)
    assert isinstance(run, Run)
    assert (run.completed, run.output_tokens, run.shortest_output) == (32, 1024, 32)
    assert run.metrics["mean_ttft_ms"] > 0
    assert of_run(run.model_copy(update={"cached_tokens": 0})) == []


def test_equal_prompts_of_a_tiny_vocabulary_are_noticed():
    """random-ids counts upwards from a random token: with 1,000 tokens some of 32 prompts were the same, and the server
    served 240 of their 2,048 tokens from its cache."""
    (problem,) = of_run(of_line(recorded(), TARGET))
    assert problem.code == "cache"
    assert "240 prompt tokens (12%)" in problem.what


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ({"run": {"seed": 1}, "error": "ConnectionRefusedError: port 30000"}, "ConnectionRefusedError"),
        ({**recorded(), "row": {"tag": None}}, "another format"),
    ],
)
def test_a_run_that_gave_nothing_says_why(line, says):
    failure = of_line(line, TARGET)
    assert isinstance(failure, Failure)
    assert says in failure.reason


def test_only_the_services_gpus_are_sampled():
    told = spec(TARGET, [], has_smi=True)
    assert told["sampler"][:3] == ["nvidia-smi", "-i", "0,1"]
    assert spec(TARGET, [], has_smi=False)["sampler"] == []


def test_the_key_is_handed_over_by_systemd_and_stands_nowhere_else():
    with_key = Target(
        **{**{f: getattr(TARGET, f) for f in Target.__slots__}, "key_file": "/etc/sglfleet/tiny/r1/api-key"}
    )
    script, files = start_script(with_key, spec(with_key, [], False), "b1")
    assert "LoadCredential=api-key:/etc/sglfleet/tiny/r1/api-key" in script
    assert "/etc/sglfleet" not in files


def test_the_script_is_valid_shell_and_unpacks_its_files(tmp_path):
    script, files = start_script(TARGET, spec(TARGET, [], False), "b1")
    assert subprocess.run(["sh", "-n"], input=script, text=True, check=False).returncode == 0
    subprocess.run(["python3", "-c", benchmark.UNPACK, str(tmp_path)], input=files, text=True, check=True)
    assert json.loads((tmp_path / "spec.json").read_text())["url"] == TARGET.url
    assert (tmp_path / "bench.py").read_text() == benchmark.SCRIPT.read_text()


def test_results_are_kept_and_read_back(tmp_path):
    run = of_line(recorded(), TARGET)
    path = keep(run, tmp_path)
    assert path.relative_to(tmp_path) == Path("h200-x8/tiny-0.5.23.jsonl")
    assert load([keep(run, tmp_path)]) == [run, run]
