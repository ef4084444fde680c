"""After the server was started: return when it generates a token, fail as soon as it cannot any more.

`ExecStartPost`, so that `systemctl start` tells the truth. A listening port, /v1/models and the line "ready to roll"
are no readiness: the line is printed also when the port was taken. What answers must be a process of this server.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import ssl
import sys
import time
import urllib.parse
from typing import Any

POLL = 0.5  # seconds between two looks
REQUEST_TIMEOUT = 120  # seconds; the first request may compile kernels
FAKE_BOOTSTRAP = "2.2.2.2"  # what SGLang's own warm-up sends to the parts of a prefill/decode pair


def main() -> int:
    p = argparse.ArgumentParser()
    p.add_argument("--pid", type=int, required=True, help="main process of the unit")
    p.add_argument("--url", required=True)
    p.add_argument("--deadline", type=float, required=True, help="seconds from now")
    p.add_argument("--rank", type=int, default=0, help="rank of this node; only rank 0 answers requests")
    p.add_argument("--kind", choices=["generate", "encode", "tokens", "pair"], default="generate")
    a = p.parse_args()
    url = urllib.parse.urlsplit(a.url)
    born, began, last = birth(a.pid), time.monotonic(), ""
    if not born:
        return fail("the server ended at once: see its lines above")
    while time.monotonic() - began < a.deadline:
        if birth(a.pid) != born:
            return fail(f"the server ended while loading, after {time.monotonic() - began:.0f} s: see its lines above")
        try:
            owner = listener(a.pid, url.port or 0)
            if owner == "nobody":
                last = f"nobody listens on port {url.port} yet"
            elif owner == "other":
                last = f"port {url.port} is held by another process than this server"
            elif a.rank > 0:
                return done(began, f"rank {a.rank} joined")
            else:
                ok, last = ask(url, a.kind, credential(a.pid, "api-key"))
                if ok and healthy(url):
                    return done(began, last)
                last += "" if not ok else ", /health still says 503"
        except (OSError, http.client.HTTPException) as e:
            last = f"{type(e).__name__}: {e}"
        time.sleep(POLL)
    return fail(f"not ready in {a.deadline:.0f} s: {last}")


def done(began: float, text: str) -> int:
    print(f"readiness: ready after {time.monotonic() - began:.0f} s: {text}", flush=True)
    return 0


def fail(text: str) -> int:
    print("readiness: " + text, file=sys.stderr, flush=True)
    return 1


def credential(pid: int, name: str) -> str:
    """A secret of this unit, or nothing.

    systemd 252 shows credentials to the main process alone, so it is read where that one sees it.
    """
    folder = os.environ.get("CREDENTIALS_DIRECTORY", "")
    for path in (f"{folder}/{name}", f"/proc/{pid}/root{folder}/{name}") if folder else ():
        try:
            with open(path, encoding="utf-8") as f:
                return f.read()
        except OSError:
            continue
    return ""


# --- whose port is it -----------------------------------------------------------------------------------------------


def stat(pid: int | str) -> list[str]:
    """Fields of /proc/PID/stat after the name, or nothing. Field 0 is the state, 1 the parent, 19 the start time."""
    try:
        with open(f"/proc/{pid}/stat") as f:
            return f.read().rpartition(")")[2].split()
    except OSError:
        return []


def birth(pid: int) -> str:
    """Start time of a living process; a zombie is none."""
    fields = stat(pid)
    return fields[19] if fields and fields[0] not in "ZX" else ""


def family(pid: int) -> set[int]:
    """The process and everything below it."""
    parents = {int(p): int(f[1]) for p in os.listdir("/proc") if p.isdigit() for f in [stat(p)] if f}
    found = {pid}
    while True:
        more = {p for p, parent in parents.items() if parent in found} - found
        if not more:
            return found
        found |= more


def listener(pid: int, port: int) -> str:
    """Who listens on the port: "nobody", "ours" or "other"."""
    inodes: set[str] = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            with open(table) as f:
                rows = [line.split() for line in f.readlines()[1:]]
        except OSError:
            continue
        inodes |= {r[9] for r in rows if r[3] == "0A" and int(r[1].rpartition(":")[2], 16) == port}
    if not inodes:
        return "nobody"
    wanted = {f"socket:[{inode}]" for inode in inodes}
    for member in family(pid):
        try:
            for fd in os.listdir(f"/proc/{member}/fd"):
                try:
                    if os.readlink(f"/proc/{member}/fd/{fd}") in wanted:
                        return "ours"
                except OSError:
                    continue
        except OSError:
            continue
    return "other"


# --- does it generate -----------------------------------------------------------------------------------------------


def ask(url: urllib.parse.SplitResult, kind: str, key: str) -> tuple[bool, str]:
    """(did it generate, what was seen)."""
    sampling = {"max_new_tokens": 4, "temperature": 0}
    if kind == "encode":
        path: str = "/encode"
        body: dict[str, Any] = {"text": "The capital of France is"}
    elif kind == "tokens":
        path, body = "/generate", {"input_ids": [10, 11, 12], "sampling_params": sampling}
    else:
        path, body = "/generate", {"text": "The capital of France is", "sampling_params": sampling}
        if kind == "pair":
            body.update(bootstrap_host=FAKE_BOOTSTRAP, bootstrap_room=0)
    status, answer = post(url, path, body, key)
    if status != 200:
        return False, f"{path} answered {status}"
    if isinstance(answer, list):
        answer = answer[0] if answer else {}
    made = answer.get("embedding") if kind == "encode" else answer.get("text") or answer.get("output_ids")
    count = (answer.get("meta_info") or {}).get("completion_tokens")
    if kind != "encode" and not made and not count:
        return False, f"{path} answered 200 without a token"
    return bool(made or count), "{} answered with {}".format(path, "an embedding" if kind == "encode" else "tokens")


def healthy(url: urllib.parse.SplitResult) -> bool:
    """SGLang's own warm-up is over too: until then a router would see the server as bad. It sleeps 1 s to answer."""
    link = connection(url)
    try:
        link.request("GET", "/health")
        return link.getresponse().status == 200
    finally:
        link.close()


def connection(url: urllib.parse.SplitResult) -> http.client.HTTPConnection:
    """To this host's own server, found by its own socket, so there is nothing to verify about a certificate."""
    if url.scheme != "https":
        return http.client.HTTPConnection(url.hostname or "", url.port, timeout=REQUEST_TIMEOUT)
    trust = ssl.create_default_context()
    trust.check_hostname, trust.verify_mode = False, ssl.CERT_NONE
    return http.client.HTTPSConnection(url.hostname or "", url.port, timeout=REQUEST_TIMEOUT, context=trust)


def post(url: urllib.parse.SplitResult, path: str, body: dict[str, Any], key: str) -> tuple[int, Any]:
    link = connection(url)
    headers = {"Content-Type": "application/json"}
    if key:
        headers["Authorization"] = "Bearer " + key
    try:
        link.request("POST", path, json.dumps(body), headers)
        answer = link.getresponse()
        text = answer.read()
    finally:
        link.close()
    try:
        return answer.status, json.loads(text) if answer.status == 200 else {}
    except ValueError:
        return answer.status, {}


if __name__ == "__main__":
    sys.exit(main())
