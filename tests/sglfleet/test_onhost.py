"""The scripts that run on a host, run here: they are plain Python."""

from __future__ import annotations

import json
import os
import shutil
import socket
import struct
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

ONHOST = Path(__file__).parents[2] / "sglfleet" / "onhost"


def run(script: str, *words: str, path: Path | None = None, **env: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **env, **({"PATH": f"{path}:/usr/bin:/bin"} if path else {})}
    command = [sys.executable, "-I", str(ONHOST / f"{script}.py"), *words]
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)


def weights(path: Path, cut: int = 0) -> None:
    header = json.dumps({"w": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}}).encode()
    content = struct.pack("<Q", len(header)) + header + bytes(16)
    path.write_bytes(content[: len(content) - cut])


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    weights(folder / "a.safetensors")
    weights(folder / "b.safetensors")
    table = {"weight_map": {"w": "a.safetensors", "v": "b.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(table))
    return folder


@pytest.fixture
def host(tmp_path: Path) -> Path:
    """A folder with an nvidia-smi of two GPUs."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "nvidia-smi").write_text(
        textwrap.dedent("""\
        #!/bin/sh
        case "$*" in
          *compute_cap*) printf '0, GPU-a, 9.0\\n1, GPU-b, 12.0\\n' ;;
          *) echo '<driver_version>580.1</driver_version>' ;;
        esac
        """)
    )
    (folder / "nvidia-smi").chmod(0o755)
    return folder


class TestPreflight:
    def test_all_as_judged(self, host: Path, model: Path) -> None:
        words = ("--gpus", "2", "--gpu", "0=9.0", "--driver", "580.1", "--model", str(model))
        done = run("preflight", *words, "--package", "pytest=" + pytest.__version__, path=host)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")

    @pytest.mark.parametrize(
        ("words", "line"),
        [
            (("--gpus", "8"), "the host has 2 GPUs, the release was judged for 8: deploy again"),
            (("--gpu", "1=9.0"), "GPU 1 is SM 12.0, the release was judged for SM 9.0: deploy again"),
            (("--gpu", "5=9.0"), "GPU 5 is not there: look at the driver (dmesg), or deploy again"),
            (("--driver", "570.2"), "the driver is 580.1, the release was judged for 570.2: deploy again"),
            (("--package", "pytest=1"), f"pytest is {pytest.__version__}, the release was judged for 1: deploy again"),
        ],
    )
    def test_one_clear_line(self, host: Path, words: tuple[str, ...], line: str) -> None:
        done = run("preflight", *words, path=host)
        assert (done.returncode, done.stderr) == (1, f"preflight: {line}\n")

    def test_a_driver_that_does_not_answer(self, host: Path) -> None:
        (host / "nvidia-smi").write_text('#!/bin/sh\necho "couldn\'t communicate with the NVIDIA driver"\nexit 9\n')
        done = run("preflight", "--gpus", "2", path=host)
        assert done.returncode == 1
        assert done.stderr.startswith("preflight: nvidia-smi: couldn't communicate with the NVIDIA driver: ")

    def test_no_driver_at_all(self, tmp_path: Path) -> None:
        if shutil.which("nvidia-smi", path="/usr/bin:/bin"):
            pytest.skip("this machine has one")
        done = run("preflight", "--gpus", "2", path=tmp_path)
        assert done.stderr == "preflight: nvidia-smi is not there: install the NVIDIA driver\n"

    def test_a_port_that_is_taken(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            done = run("preflight", "--listen", f"127.0.0.1:{port}")
        assert done.returncode == 1
        assert done.stderr.startswith(f"preflight: port {port} on 127.0.0.1 is taken by another process: ")
        assert run("preflight", "--listen", f"127.0.0.1:{port}").returncode == 0


class TestModel:
    def problems(self, folder: Path) -> str:
        return run("preflight", "--model", str(folder)).stderr

    def test_complete(self, model: Path) -> None:
        assert self.problems(model) == ""

    def test_a_shard_is_missing(self, model: Path) -> None:
        (model / "b.safetensors").unlink()
        assert "1 of 2 weight files are missing, first b.safetensors" in self.problems(model)

    def test_a_shard_was_cut(self, model: Path) -> None:
        weights(model / "b.safetensors", cut=3)
        assert "bytes, should be" in self.problems(model)

    def test_a_shard_is_a_pointer(self, model: Path) -> None:
        (model / "b.safetensors").write_text("version https://git-lfs.github.com/spec/v1\n")
        assert "not a whole safetensors file" in self.problems(model)

    def test_no_model(self, tmp_path: Path) -> None:
        assert "No such file or directory" in self.problems(tmp_path / "none")
        assert "no config.json" in self.problems(tmp_path)

    def test_an_empty_folder_of_a_model(self, model: Path) -> None:
        for file in model.glob("*.safetensors*"):
            file.unlink()
        assert "no weight files" in self.problems(model)

    @pytest.mark.skipif(os.getuid() != 0 or not shutil.which("runuser"), reason="needs root to become another user")
    def test_not_readable_by_the_service_user(self, model: Path) -> None:
        (model / "a.safetensors").chmod(0o600)
        for folder in (model, *model.parents):
            folder.chmod(folder.stat().st_mode | 0o755) if folder != Path("/") else None
        command = ["/usr/bin/python3", "-I", "-", "--model", str(model)]
        code = (ONHOST / "preflight.py").read_text()
        done = subprocess.run(["runuser", "-u", "nobody", "--", *command], input=code, capture_output=True, text=True)
        assert "a.safetensors: Permission denied: let user id" in done.stderr


SERVER = """\
import http.server, json, sys, time
started = time.monotonic()
class H(http.server.BaseHTTPRequestHandler):
    def answer(self, code, body=b""):
        self.send_response(code); self.end_headers(); self.wfile.write(body)
    def do_GET(self):
        self.answer(200 if time.monotonic() - started > 1.5 else 503)
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        if KEY and self.headers["Authorization"] != "Bearer " + KEY: return self.answer(401)
        self.answer(200, ANSWER)
    def log_message(self, *a): pass
KEY, ANSWER = sys.argv[2], sys.argv[3].encode()
time.sleep(float(sys.argv[4]))
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), H).serve_forever()
"""
GOOD = json.dumps({"text": "Paris", "meta_info": {"completion_tokens": 4}})


@pytest.fixture
def port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        number: int = found.getsockname()[1]
        return number


@pytest.fixture
def started() -> Iterator[list[subprocess.Popen[bytes]]]:
    found: list[subprocess.Popen[bytes]] = []
    yield found
    for process in found:
        process.kill()
        process.wait()


def serve(
    started: list[subprocess.Popen[bytes]], port: int, key: str = "", answer: str = GOOD, after: float = 0
) -> int:
    started.append(subprocess.Popen([sys.executable, "-c", SERVER, str(port), key, answer, str(after)]))
    return started[-1].pid


def ready(pid: int, port: int, deadline: int = 8, *more: str, **env: str) -> subprocess.CompletedProcess[str]:
    words = ("--pid", str(pid), "--url", f"http://127.0.0.1:{port}", "--deadline", str(deadline), *more)
    return run("readiness", *words, **env)


class TestReadiness:
    def test_waits_until_it_generates_and_is_healthy(self, started: list[subprocess.Popen[bytes]], port: int) -> None:
        begin = time.monotonic()
        done = ready(serve(started, port, after=1), port, 30)
        assert done.returncode == 0, done.stderr
        assert time.monotonic() - begin > 1.5
        assert "/generate answered with tokens" in done.stdout

    def test_ends_with_the_server(self, started: list[subprocess.Popen[bytes]], port: int) -> None:
        process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1.5)"])
        started.append(process)
        done = ready(process.pid, port, 60)
        assert done.returncode == 1
        assert "the server ended while loading" in done.stderr

    def test_an_answer_of_somebody_else_is_none(self, started: list[subprocess.Popen[bytes]], port: int) -> None:
        other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
        serve(started, port)
        started.append(other)
        done = ready(other.pid, port, 5)
        assert done.returncode == 1
        assert f"port {port} is held by another process than this server" in done.stderr

    @pytest.mark.parametrize("answer", ['{"text": ""}', "[]", "no json"])
    def test_no_token_is_not_ready(self, started: list[subprocess.Popen[bytes]], port: int, answer: str) -> None:
        done = ready(serve(started, port, answer=answer), port, 4)
        assert done.returncode == 1
        assert "not ready in 4 s" in done.stderr

    def test_a_child_may_hold_the_port(self, started: list[subprocess.Popen[bytes]], port: int) -> None:
        code = (
            f"import subprocess, sys; subprocess.run([sys.executable, '-c', {SERVER!r}, '{port}', '', {GOOD!r}, '0'])"
        )
        started.append(subprocess.Popen([sys.executable, "-c", code], start_new_session=True))
        try:
            assert ready(started[-1].pid, port, 30).returncode == 0
        finally:
            os.killpg(started[-1].pid, 9)

    def test_the_key_comes_from_the_credentials(
        self, started: list[subprocess.Popen[bytes]], port: int, tmp_path: Path
    ) -> None:
        pid = serve(started, port, key="k3y")
        assert ready(pid, port, 4).returncode == 1
        (tmp_path / "api-key").write_text("k3y")
        done = ready(pid, port, 20, CREDENTIALS_DIRECTORY=str(tmp_path))
        assert done.returncode == 0, done.stderr
        assert "k3y" not in done.stdout + done.stderr

    def test_another_rank_only_has_to_listen(self, started: list[subprocess.Popen[bytes]], port: int) -> None:
        done = ready(serve(started, port, answer="no"), port, 20, "--rank", "1")
        assert (done.returncode, "rank 1 joined" in done.stdout) == (0, True)


def test_scripts_need_nothing_but_python() -> None:
    for script in ("preflight", "readiness"):
        done = run(script, "--help")
        assert done.returncode == 0
