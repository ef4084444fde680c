"""A server by its URL alone: what it says of its own launch is judged and proven as far as answers go."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from sglfleet.cli import main
from sglfleet.verify.doctor import asked_tokens

LAUNCH = "--model-path /models/x --enable-metrics --stream-interval 2 --schedule-policy lpm --port 1 --api-key sesame"


def doctor(url, *more):
    done = CliRunner(env={"KEY": "sesame"}).invoke(main, ["doctor", url, "--key-env", "KEY", "--format", "json", *more])
    return done.exit_code, json.loads(done.stdout)


@pytest.mark.parametrize("version", ["0.5.23", "9.9.9"])
def test_by_url(server, version):
    at, handler = server
    handler.info.update(version=version, launch_command=LAUNCH)
    code, told = doctor(at.url, "--sm", "9.0", "--gpus", "1")
    assert code == 0
    (one,) = told["hosts"]
    status = {p["flag"]: p["status"] for p in one["proofs"]}
    assert status["enable-metrics"] == "proven"
    assert status["stream-interval"] == "proven"
    assert status["schedule-policy"] == "not proven"
    assert "api-key" not in status
    assert "sesame" not in json.dumps(told)
    assert set(one["gaps"]) >= {"process", "profile"}
    assert ("judgement" in one["gaps"]) is (version == "9.9.9")


def test_strict_and_a_server_that_is_not_there(server):
    at, handler = server
    handler.info.update(launch_command=LAUNCH)
    assert doctor(at.url, "--strict")[0] == 3
    code, told = doctor("http://127.0.0.1:9")
    assert code == 4
    assert "127.0.0.1:9" in told["hosts"][0]["error"] or told["hosts"][0]["error"]


@pytest.mark.parametrize("args", [[], ["http://x", "--host", "h"], ["http://x", "--key-env", "NO_SUCH_VARIABLE"]])
def test_bad_input(args):
    done = CliRunner().invoke(main, ["doctor", *args])
    assert done.exit_code == 2
    assert "Traceback" not in done.output


@pytest.mark.parametrize(
    ("raw", "tokens"),
    [
        ({"process": {"argv": ["python3", "-m", "sglang.launch_server", "--tp", "2"]}}, ["--tp", "2"]),
        ({"process": {"argv": ["/e/bin/sglang", "serve", "--tp", "2"]}}, ["--tp", "2"]),
        ({"process": {"argv": ["python", "/x/launch_server.py", "--a"]}}, ["--a"]),
        ({"server_info": {"launch_command": "--a 'b c'"}}, ["--a", "b c"]),
        ({"server_info": {"launch_command": "--a 'b"}}, ["--a", "'b"]),
        ({"server_info": {}}, []),
    ],
)
def test_what_was_asked(raw, tokens):
    assert asked_tokens(raw) == tokens
