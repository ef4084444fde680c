"""The part that runs on hosts: real processes, a real small HTTP server, and the packed script run as a host would."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sglfleet.verify import process, profiler, ship, showing, workload
from sglfleet.verify.collect import collect
from sglfleet.verify.document import Document
from sglfleet.verify.gathered import seen, unpack
from sglfleet.verify.probe import MODULES
from sglfleet.verify.prove import assemble
from tests.sglfleet.verify.recorded import verdict


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


def test_a_server_that_dies_under_its_profiler_is_said_to_have_died(server):
    at, handler = server

    def dead(self):
        self.send_response(200 if self.path == "/start_profile" else 503)
        self.end_headers()

    started = at.ask("/server_info").json()
    handler.do_POST = handler.do_GET = dead
    traces, why = profiler.profile(at, started, salt=11)
    assert (traces, why) == ([], profiler.DIED)
    raw = {"server_info": started, "died": True, "gaps": {"profile": why}, "process": {"argv": [], "env": {}}}
    proof = assemble(raw, "h1", "demo", judged=(verdict("x"),))
    assert proof.error.startswith("the server stopped answering while it was profiled: ")
    assert proof.proofs
    text = showing.render(Document("x", "now", (proof,)), "text")
    assert "not looked at" not in text
    assert "This server could not be looked at to the end, or died." in text
    assert Document("x", "now", (proof,)).exit() == 4


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
    text = ship.script(json.dumps({"argv": ["--tp", "2"], "sms": ["9.0"]}), sys.executable, MODULES, MODULES[0])
    env = {"PATH": os.environ["PATH"], "TMPDIR": str(tmp_path)}
    done = subprocess.run(["sh"], input=text, capture_output=True, text=True, env=env, cwd="/", check=True)
    told = json.loads(done.stdout.splitlines()[-1])
    assert set(told["gaps"]) >= {"gpu", "generators"}
    assert told["arguments"]["raised"].startswith("ModuleNotFoundError")


def test_what_takes_too_long_is_ended_with_all_that_it_started(tmp_path, monkeypatch):
    (tmp_path / "slow.py").write_text(
        "import subprocess, sys\n"
        "def main():\n"
        "    subprocess.run([sys.executable, '-c', 'import time; time.sleep(3600)', sys.argv[1]])\n"
    )
    monkeypatch.setattr(ship, "HERE", tmp_path)
    folder = tmp_path / "tmp"
    folder.mkdir()
    env = {"PATH": os.environ["PATH"], "TMPDIR": str(folder)}
    mark = f"mark-{os.getpid()}-{time.monotonic_ns()}"
    text = ship.script(mark, sys.executable, ("slow",), "slow", seconds=8)
    done = subprocess.run(["sh"], input=text, capture_output=True, text=True, env=env, cwd="/", check=False)
    assert done.returncode in (124, 137)
    assert "it took longer than 8 s and was ended" in done.stderr
    assert list(folder.iterdir()) == []
    for _ in range(1200):
        if not running(mark):
            break
        time.sleep(0.1)
    assert running(mark) == []


def running(mark):
    """Processes with a word in their command line."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            found += [path.parent.name] if mark.encode() in path.read_bytes() else []
    return found


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


def test_a_bare_process_is_read_from_the_file_it_writes_to(tmp_path):
    log = tmp_path / "server.log"
    log.write_text("[2020-01-01 00:00:00] server_args=old\n[2020-01-01 00:00:01] Uses the old kernel\n")
    code = (
        "import sys, time; t = time.strftime('%Y-%m-%d %H:%M:%S'); "
        "print(f'[{t}] server_args=new\\n[{t}] Uses the new kernel', flush=True); sys.stdin.read()"
    )
    with (
        log.open("a") as file,
        subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=file) as child,
    ):
        for _ in range(1200):
            if "new kernel" in log.read_text():
                break
            time.sleep(0.1)
        raw = collect({"pid": child.pid, "url": "http://127.0.0.1:9"})
        child.communicate(b"")
    journal = seen(raw).journal
    assert journal is not None
    assert [line.message for line in journal.lines] == ["server_args=new", "Uses the new kernel"]
    assert journal.from_start


def test_a_process_that_writes_nowhere_says_so():
    with subprocess.Popen(["sleep", "100"], stdout=subprocess.PIPE) as child:
        raw = collect({"pid": child.pid, "url": "http://127.0.0.1:9"})
        child.kill()
    assert "no container, and it writes to pipe:" in raw["gaps"]["journal"]


@pytest.mark.parametrize(("family", "address"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")])
def test_where_a_process_listens(family, address):
    with socket.socket(family) as one:
        try:
            one.bind((address, 0))
        except OSError:
            pytest.skip(f"no {address} here")
        port = one.getsockname()[1]
        assert process.listens(os.getpid(), port) == ""
        one.listen()
        assert process.listens(os.getpid(), port) == address
