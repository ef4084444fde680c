"""A stand-in for an SGLang server: its endpoints on the standard library alone, and the ways in which one can fail.

For tests of what happens *around* a server where twenty real ones do not fit a machine. It says of itself that it is a
stand-in, and no test takes it as proof of what the engine does.

    standin_server.py --port 30000 --mode ok [--cut N]     serve
    standin_server.py --port 30000 --role decode --key K   half of a pair; behind a key
    standin_server.py --wait 30000                         return when a server there generates, fail when $MAINPID dies
"""

import argparse
import json
import os
import random
import signal
import sys
import threading
import time
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

MODES = "ok, bad-flag (exits like the parser), crash (after --cut s), never (never healthy), wrong (one token), empty"
WORDS = [
    "the",
    "river",
    "bends",
    "north",
    "past",
    "old",
    "mills",
    "and",
    "quiet",
    "fields",
    "where",
    "nobody",
    "counts",
    "the",
    "days",
    "any",
    "more",
]
state = {"running": 0, "draining": False}
lock = threading.Lock()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    mode = "ok"
    role = "null"  # "prefill", "decode": wants the room of a pair, as the engine does
    key = ""

    def log_message(self, *_):
        pass

    def answer(self, code, body):
        data = json.dumps(body).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def refused(self):
        """Without the key only /health answers, as with the engine."""
        if not self.key or self.path.startswith("/health") or self.headers.get("Authorization") == f"Bearer {self.key}":
            return False
        self.answer(401, {"error": "Unauthorized"})
        return True

    def do_GET(self):
        path = self.path.split("?")[0]
        if self.refused():
            return
        if path in ("/health", "/health_generate"):
            self.answer(503 if self.mode == "never" or state["draining"] else 200, {})
        elif path == "/v1/loads":
            self.answer(200, {"loads": [{"dp_rank": 0, "num_running_reqs": state["running"], "num_waiting_reqs": 0}]})
        elif path in ("/server_info", "/get_server_info"):
            info = {
                "stand_in": True,
                "chunked_prefill_size": 512,
                "max_total_num_tokens": 16384,
                "context_length": 4096,
                "disaggregation_mode": self.role,
            }
            self.answer(200, {**info, "release": os.environ.get("SGLFLEET_RELEASE", "")})
        elif path in ("/model_info", "/get_model_info", "/v1/models"):
            self.answer(200, {"model_path": "stand-in", "data": [{"id": "stand-in", "object": "model"}]})
        else:
            self.answer(404, {"error": "the stand-in has no such path"})

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"{}")
        if self.refused():
            return
        with lock:
            state["running"] += 1
        try:
            self.generate(body)
        finally:
            with lock:
                state["running"] -= 1

    def generate(self, body):
        count = int(body.get("sampling_params", {}).get("max_new_tokens", 16))
        pick = random.Random(0) if self.mode == "wrong" else random.Random()
        ids = [5] * count if self.mode == "wrong" else [pick.randrange(len(WORDS)) for _ in range(count)]
        text = "!" * count if self.mode == "wrong" else " ".join(WORDS[i] for i in ids)
        if self.mode == "empty":
            ids, text = [], ""
        if self.mode == "never":
            self.answer(503, {"error": "not ready"})
            return
        if self.role != "null" and body.get("bootstrap_room") is None:
            self.answer(400, {"error": "disaggregated request without bootstrap_room"})
            return
        meta = {"prompt_tokens": len(str(body.get("text", "")).split()), "completion_tokens": len(ids)}
        if not body.get("stream"):
            time.sleep(float(body.get("seconds", 0)))
            self.answer(200, {"text": text, "output_ids": ids, "meta_info": meta})
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        for i in range(1, count + 1):
            time.sleep(float(body.get("seconds", 0.4)) / count)
            self.wfile.write(b"data: " + json.dumps({"text": " ".join(WORDS[j] for j in ids[:i])}).encode() + b"\n\n")
            self.wfile.flush()
        self.wfile.write(b"data: [DONE]\n\n")
        self.close_connection = True


def serve(port, mode, cut, role, key):
    if mode == "bad-flag":
        print(
            "usage: launch_server.py [-h] [--port PORT]\nsglang serve: error: unrecognized arguments: --no-such-flag",
            file=sys.stderr,
            flush=True,
        )
        sys.exit(2)
    Handler.mode, Handler.role, Handler.key = mode, role, key
    try:
        server = ThreadingHTTPServer(("0.0.0.0", port), Handler)
    except OSError as error:
        print(
            f"ERROR:    [Errno {error.errno}] error while attempting to bind on address ('0.0.0.0', {port}): "
            "address already in use",
            flush=True,
        )
        sys.exit(3)
    server.daemon_threads = True
    print("stand-in for an SGLang server, serving on", port, flush=True)
    if mode == "crash":

        def crash():
            time.sleep(cut)
            print(
                "Scheduler hit an exception: Traceback (most recent call last):\n"
                "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB",
                flush=True,
            )
            os._exit(1)

        threading.Thread(target=crash, daemon=True).start()

    def drain(*_):
        state["draining"] = True

        def stop():
            while state["running"]:
                time.sleep(0.05)
            server.shutdown()

        threading.Thread(target=stop, daemon=True).start()

    signal.signal(signal.SIGTERM, drain)
    server.serve_forever(poll_interval=0.1)


def wait(port, key, role):
    main = int(os.environ.get("MAINPID", "0"))
    alone = {} if role == "null" else {"bootstrap_host": "2.2.2.2", "bootstrap_room": 0}
    body = json.dumps({"text": "one", "sampling_params": {"max_new_tokens": 1}, **alone}).encode()
    head = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}  # the engine wants to be told
    while True:
        if main and not Path(f"/proc/{main}").exists():
            sys.exit("the server ended before it was ready")
        try:
            request = urllib.request.Request(f"http://127.0.0.1:{port}/generate", body, head)
            with urllib.request.urlopen(request, timeout=5) as answer:
                json.load(answer)
                return
        except (OSError, ValueError):
            time.sleep(0.1)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=30000)
    parser.add_argument("--mode", default="ok", help=MODES)
    parser.add_argument("--cut", type=float, default=2.0)
    parser.add_argument("--wait", type=int)
    parser.add_argument("--role", default="null", choices=["null", "prefill", "decode"])
    parser.add_argument("--key", default="")
    options = parser.parse_args()
    if options.wait:
        wait(options.wait, options.key, options.role)
    else:
        serve(options.port, options.mode, options.cut, options.role, options.key)
