"""The health gate's judgement, and the half that runs on the host against a small server."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglfleet import health
from sglfleet.roll import gate

SERVER = Path(__file__).parents[2] / "lab" / "standin_server.py"
GATE = Path(gate.__file__)


def sample(**fields: Any) -> dict[str, Any]:
    row = {"wanted": 8, "prompt_tokens": 8, "text": "the river bends north", "tokens": list(range(9))}
    return {**row, "completion_tokens": 9, **fields}


def test_sane_text_passes() -> None:
    answer = {"samples": [sample()], "health": [200], "chunk": 0, "release": "r1"}
    assert health.judge(answer, "r1").passed


@pytest.mark.parametrize(
    ("row", "why"),
    [
        (sample(text=""), "empty"),
        (sample(text="  \n"), "empty"),
        (sample(text="!!!!!!!!!", tokens=[0] * 9), "one token repeated"),
        (sample(text="!" * 24, tokens=[]), "one piece of text repeated"),
        (sample(text="ab" * 12, tokens=[]), "one piece of text repeated"),
        (sample(text="\ufffd" * 9), "undecodable"),
        (sample(error="POST /generate: 500: boom"), "500"),
    ],
)
def test_insane_text_fails(row: dict[str, Any], why: str) -> None:
    problems = health.judge({"samples": [sample(), row], "health": [200]}, "").problems
    assert len(problems) == 1
    assert why in problems[0]


def test_another_release_fails() -> None:
    assert "serves release r0" in health.judge({"samples": [sample()], "release": "r0"}, "r1").problems[0]


def test_nothing_asked_is_no_pass() -> None:
    assert not health.judge({}, "r1").passed
    assert not health.judge({"error": "no python3 on this host"}, "r1").passed


@pytest.mark.parametrize("codes", [[503, 200], [503, 503, 200], [0, 200], [503], [503, 503]])
def test_single_failures_of_health_say_nothing(codes: list[int]) -> None:
    """A long prefill of somebody else makes /health answer 503 for 20 s and more."""
    assert health.health_problems(codes, progress=False) == []


def test_failures_in_a_row_count_unless_tokens_came() -> None:
    assert health.health_problems([503, 503, 503], progress=False)
    assert health.health_problems([503, 503, 503], progress=True) == []


def test_the_probe_waits_longer_than_the_handler_sleeps() -> None:
    assert health.HEALTH_TIMEOUT >= 5  # /health sleeps a second on purpose: a time-out of 1 s flaps


@given(st.integers(-1, 20000), st.integers(0, 200000))
def test_lengths_cross_the_chunk(chunk: int, context: int) -> None:
    chosen = gate.lengths(chunk, context)
    assert chosen == sorted(set(chosen))
    if context > 0:
        assert max(chosen) + gate.NEW_TOKENS <= max(context, gate.SHORT + gate.NEW_TOKENS)
    if chunk > 20 and context > 3 * chunk + 100:
        assert any(size < chunk for size in chosen)
        assert any(chunk < size < 2 * chunk for size in chosen)
        assert any(size > 2 * chunk for size in chosen)


@given(st.integers(1, 400), st.integers(0, 1000))
def test_prompts_have_the_length_asked_for(words: int, salt: int) -> None:
    assert len(gate.prompt(words, salt).split()) == words


def test_prompts_differ_so_that_no_cache_answers() -> None:
    assert gate.prompt(60, 1) != gate.prompt(60, 2)


@pytest.fixture
def server(request: pytest.FixtureRequest, unused_port: int) -> Iterator[int]:
    process = subprocess.Popen([sys.executable, SERVER, "--port", str(unused_port), *request.param.split()])
    end = time.monotonic() + 120
    while time.monotonic() < end:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{unused_port}/server_info", timeout=1).close()
            break
        except urllib.error.HTTPError:
            break
        except OSError:
            time.sleep(0.05)
    yield unused_port
    process.kill()
    process.wait()


@pytest.fixture
def unused_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def ask(port: int, **more: Any) -> dict[str, Any]:
    job = {"url": f"http://127.0.0.1:{port}", "deadline": 120, "health_timeout": 30, "health_failures": 3, **more}
    out = subprocess.run(
        [sys.executable, "-", json.dumps(job)], input=GATE.read_text(), capture_output=True, text=True, check=True
    ).stdout
    return dict(json.loads(out))


@pytest.mark.parametrize("server", ["--mode ok"], indirect=True)
def test_the_host_s_half_crosses_chunks(server: int) -> None:
    answer = ask(server)
    result = health.judge(answer, "")
    assert result.passed, result
    assert answer["chunk"] == 512
    assert max(result.lengths) > 2 * 512
    assert min(result.lengths) < 20
    assert ask(server, what="running") == {"running": 0}


@pytest.mark.parametrize("server", ["--mode wrong", "--mode empty", "--mode never"], indirect=True)
def test_the_host_s_half_sees_wrong_servers(server: int) -> None:
    assert not health.judge(ask(server), "").passed


@pytest.mark.parametrize("server", ["--role prefill", "--role decode", "--role decode --mode wrong"], indirect=True)
def test_half_of_a_pair_is_asked_alone_and_the_gate_says_what_that_is_worth(server: int) -> None:
    """SGLang's own way to warm one up: without its other half the tokens of a decode server mean nothing."""
    result = health.judge(ask(server), "")
    assert result.passed, result
    assert "server alone" in result.notes[0]


@pytest.mark.parametrize("server", ["--role prefill --mode empty", "--role decode --mode never"], indirect=True)
def test_half_of_a_pair_that_makes_no_token_fails(server: int) -> None:
    assert not health.judge(ask(server), "").passed


@pytest.mark.parametrize("server", ["--key right"], indirect=True)
def test_the_key_comes_from_a_file_of_the_host(server: int, tmp_path: Path) -> None:
    (tmp_path / "key").write_text("right\n", encoding="utf-8")
    assert health.judge(ask(server, key_file=str(tmp_path / "key")), "").passed
    assert "401" in health.judge(ask(server), "").problems[0]


def test_no_server_at_all_fails_within_its_deadline(unused_port: int) -> None:
    began = time.monotonic()
    assert not health.judge(ask(unused_port, deadline=2), "").passed
    assert time.monotonic() - began < 60


def test_the_host_s_half_needs_no_package() -> None:
    out = subprocess.run(
        [sys.executable, "-I", "-S", "-c", GATE.read_text().replace("main()\n", "pass\n")],
        capture_output=True,
        check=False,
    )
    assert out.returncode == 0, out.stderr
