"""The part that runs on hosts: real processes, a real small HTTP server, and the packed script run as a host would."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from sglfleet.verify import process, ship, workload
from sglfleet.verify.client import Server
from sglfleet.verify.collect import collect
from sglfleet.verify.gathered import seen, unpack


class Small(BaseHTTPRequestHandler):
    """Answers like a server with a prefix cache and a key."""

    asked: list[tuple[str, object]]
    cached: set[str]

    def _send(self, status, body):
        data = body.encode() if isinstance(body, str) else json.dumps(body).encode()
        self.send_response(status)
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self):
        if self.headers.get("Authorization") != "Bearer sesame":
            self._send(401, "no")
        elif self.path == "/server_info":
            self._send(200, {"version": "0.5.23", "max_req_input_len": 900, "stream_interval": 2, "device": "cpu"})
        elif self.path == "/v1/models":
            self._send(200, {"data": [{"id": "lab"}]})
        elif self.path == "/metrics":
            self._send(200, "sglang:x 1\n")
        else:
            self._send(404, "no")

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        type(self).asked.append((self.path, body))
        ids = body.get("input_ids") or [1]
        if self.path != "/generate":
            self._send(404, "no")
        elif len(ids) > 900:
            self._send(400, "too long")
        elif body.get("stream"):
            self._send(200, "".join(f'data: {{"meta_info": {{"completion_tokens": {n}}}}}\n\n' for n in (1, 3, 5, 7)))
        else:
            key = json.dumps(ids)
            hit = len(ids) - 1 if key in self.cached else 0
            self.cached.add(key)
            self._send(200, {"text": f"t{sum(ids)}", "output_ids": ids[:4], "meta_info": {"cached_tokens": hit}})

    def log_message(self, *_):
        pass


@pytest.fixture
def server():
    handler = type("Handler", (Small,), {"asked": [], "cached": set()})
    http = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=http.serve_forever, daemon=True).start()
    yield Server(f"http://127.0.0.1:{http.server_port}", "sesame"), handler
    http.shutdown()
    http.server_close()


def test_observations(server):
    at, handler = server
    got, gaps = workload.observe(at, at.ask("/server_info").json(), salt=5)
    assert got.pop("answers_on_port") == int(at.url.rpartition(":")[2])
    assert got == {
        "cached_tokens_repeat": 95, "served_model": "lab", "status_without_key": 401, "metrics_status": 200,
        "stream_step": 2, "seed_repeats": False, "status_too_long": 400,
    }  # fmt: skip
    assert gaps == {}
    lengths = [len(body.get("input_ids", [])) for _, body in handler.asked]
    assert sum(lengths) < 2000  # others' requests go on


def test_only_what_is_wanted_is_asked(server):
    at, handler = server
    got, _ = workload.observe(at, {}, 5, ["metrics_status"])
    assert "metrics_status" in got
    assert handler.asked == []


def test_every_run_has_prompts_of_its_own():
    assert workload.prompt(50, 1) == workload.prompt(50, 1)
    assert workload.prompt(50, 1) != workload.prompt(50, 2)
    assert all(workload.LOW <= i <= workload.HIGH for i in workload.prompt(500, 3))


def test_collect_by_url(server):
    at, _ = server
    raw = collect({"url": at.url, "key": "sesame", "local": False, "profile": True, "salt": 7})
    assert raw["gaps"]["process"].startswith("only the URL is known")
    assert raw["gaps"]["profile"].startswith("the traces lie on the server's host")
    assert raw["server_info"]["version"] == "0.5.23"
    assert [o["status"] for o in raw["outputs"]] == [200] * len(raw["outputs"])
    evidence = seen(raw)
    assert evidence.metrics == {"sglang:x": (1.0,)}
    assert evidence.journal is None
    assert "sesame" not in json.dumps(raw)


def test_nobody_there_is_a_gap_and_no_exception():
    raw = collect({"url": "http://127.0.0.1:9", "local": False})
    assert "server_info" not in raw
    assert "127.0.0.1:9/server_info" in raw["gaps"]["server_info"]
    assert raw["gaps"]["responses"]


@pytest.mark.parametrize("spec", [{"pid": 2**22 + 1}, {"unit": "no-such-unit.service"}, {"service": "no-such-service"}])
def test_a_process_that_is_not_there(spec):
    raw = collect({**spec, "url": "http://127.0.0.1:9"})
    assert raw["gaps"]["process"]


def test_the_packed_script_runs_with_a_bare_python_and_leaves_nothing(tmp_path):
    text = ship.script(json.dumps({"url": "http://127.0.0.1:9", "local": False}), sys.executable)
    env = {"PATH": os.environ["PATH"], "TMPDIR": str(tmp_path)}
    done = subprocess.run(["sh"], input=text, capture_output=True, text=True, env=env, cwd="/", check=True)
    assert "server_info" in unpack(done.stdout)["gaps"]
    assert list(tmp_path.iterdir()) == []


def test_the_probe_runs_without_an_engine_and_says_what_it_could_not_ask(tmp_path):
    text = ship.script(
        json.dumps({"argv": ["--tp", "2"], "sms": ["9.0"]}), sys.executable, ("ask_engine",), "ask_engine"
    )
    env = {"PATH": os.environ["PATH"], "TMPDIR": str(tmp_path)}
    done = subprocess.run(["sh"], input=text, capture_output=True, text=True, env=env, cwd="/", check=True)
    told = json.loads(done.stdout.splitlines()[-1])
    assert set(told["gaps"]) >= {"gpu", "generators"}
    assert told["arguments"]["raised"].startswith("ModuleNotFoundError")


def test_a_process_tells_its_argv_and_hides_secrets():
    code = "import sys; print('up', flush=True); sys.stdin.read()"
    argv = [sys.executable, "-c", code, "--api-key", "hush", "--admin-api-key=hush", "--port", "1"]
    env = {**os.environ, "HF_TOKEN": "hush", "PLAIN": "seen"}
    with subprocess.Popen(argv, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        child.stdout.readline()
        told = process.read(child.pid)
        assert process.key_of(child.pid) == "hush"
        child.communicate("")
    assert "hush" not in json.dumps(told)
    assert told["env"]["PLAIN"] == "seen"
    assert told["argv"][-2:] == ["--port", "1"]
