"""Results of aiperf 0.13.0 and guidellm 0.8.1, recorded from runs against guidellm's own stand-in for a server."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from sglfleet.commands.bench import command
from sglfleet.verify.clients import read
from sglfleet.verify.compare import compare
from sglfleet.verify.runs import load
from sglfleet.verify.validity import of_run

FIXTURES = Path(__file__).parents[2] / "fixtures/bench"
AIPERF, GUIDELLM = FIXTURES / "aiperf-0.13.0.json", FIXTURES / "guidellm-0.8.1.json"


def changed(tmp_path, file, change):
    document = json.loads(file.read_text())
    change(document)
    path = tmp_path / "changed.json"
    path.write_text(json.dumps(document))
    return path


@pytest.mark.parametrize(("file", "seed"), [(AIPERF, 1), (GUIDELLM, 42)], ids=["aiperf", "guidellm"])
def test_a_real_result_is_a_run(file, seed):
    """24 requests of 64 + 48 tokens at concurrency 4; the server waits 40 ms, then 8 ms a token."""
    (run,) = read(file, service="s", host="h")
    assert (run.input_len, run.output_len, run.concurrency, run.prompts, run.seed) == (64, 48, 4, 24, seed)
    assert (run.completed, run.output_tokens, run.shortest_output) == (24, 24 * 48, 48)
    assert run.model == "/srv/words"
    assert run.started > 1_700_000_000
    assert run.metrics["output_throughput"] == pytest.approx(24 * 48 / run.duration_s, rel=0.01)
    assert run.metrics["median_ttft_ms"] > 40
    assert run.metrics["median_tpot_ms"] > 8
    assert run.metrics["p99_e2e_latency_ms"] >= run.metrics["median_e2e_latency_ms"] > 47 * 8
    assert of_run(run) == []


def test_a_client_that_counts_other_tokens_than_the_server_is_refused():
    """Its tokenizer made 22 tokens of the 48 that the server sent, and its throughput was less than half."""
    with pytest.raises(
        ValueError, match=r"counted 528 answer tokens where the server says 1152.*use-server-token-count"
    ):
        read(FIXTURES / "aiperf-0.13.0-own-count.json", service="s", host="h")


@pytest.mark.parametrize(
    ("file", "change", "says"),
    [
        (AIPERF, lambda d: d["input_config"]["phases"][0].pop("concurrency"), "not by a concurrency"),
        (AIPERF, lambda d: d.update(was_cancelled=True), "it did not finish"),
        (AIPERF, lambda d: d.pop("time_to_first_token") and d.pop("total_osl"), "writes it otherwise"),
        (GUIDELLM, lambda d: d["benchmarks"][0]["config"]["strategy"].update(type_="poisson", streams=None), "poisson"),
        (GUIDELLM, lambda d: d["benchmarks"][0].pop("metrics"), "writes it otherwise"),
        (GUIDELLM, lambda d: d.pop("metadata"), "neither of aiperf nor of guidellm"),
    ],
)
def test_what_is_no_such_run_is_named(tmp_path, file, change, says):
    path = changed(tmp_path, file, change)
    with pytest.raises(ValueError, match=says) as caught:
        read(path, service="s", host="h")
    assert str(path) in str(caught.value)


def test_failed_requests_make_it_invalid(tmp_path):
    def fail(document):
        document["benchmarks"][0]["metrics"]["request_totals"].update(successful=20, errored=4)

    (run,) = read(changed(tmp_path, GUIDELLM, fail), service="s", host="h")
    assert "failed" in {p.code for p in of_run(run)}


def test_runs_of_one_client_are_compared(tmp_path):
    def faster(document):
        for name in ("output_tokens_per_second", "tokens_per_second"):
            document["benchmarks"][0]["metrics"][name]["successful"]["mean"] *= 1.5

    a = read(GUIDELLM, service="s", host="h", arm="a") * 3
    b = read(changed(tmp_path, GUIDELLM, faster), service="s", host="h", arm="b") * 3
    assert compare(a, b).verdict() == "faster"


def test_the_command_keeps_what_is_valid(tmp_path):
    words = ["import", str(AIPERF), str(GUIDELLM), "--service", "s", "--arm", "x", "--results", str(tmp_path)]
    done = CliRunner().invoke(command, words)
    assert done.exit_code == 0, done.output
    (path,) = tmp_path.rglob("*.jsonl")
    assert [run.arm for run in load([path])] == ["x", "x"]
    bad = CliRunner().invoke(
        command, ["import", __file__, "nowhere.json", "--service", "s", "--results", str(tmp_path)]
    )
    assert bad.exit_code == 2
    assert "nowhere.json: " in bad.output
    assert len(bad.output.strip().splitlines()) == 2
