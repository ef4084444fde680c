"""Everything that is asked on a host, in one go: process, journal, server_info, metrics, answers, profile, outputs.

Runs on the host with any Python from 3.10 on, prints one JSON object. Standard library only; `ship.py` packs it.
"""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import sys
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sglfleet.verify import process, workload
from sglfleet.verify.client import Server
from sglfleet.verify.profiler import DIED, profile

KEPT = 4  # earlier proofs that are compared with


def collect(spec: dict[str, Any]) -> dict[str, Any]:
    """All layers. What could not be had is named under `gaps`, by layer.

    `spec`: `service` (one of ours) or `unit` or `pid` or none of them (found by itself); `url`, `port`, `key`, `log`,
    `profile`, `requests`, `observe` (names; default all), `outputs`, `salt`, `local`.
    """
    out: dict[str, Any] = {"gaps": {}, "seconds": {}}
    gaps: dict[str, str] = out["gaps"]

    def layer(name: str, work: Callable[[], None]) -> None:
        begin = time.monotonic()
        try:
            work()
        except (OSError, subprocess.SubprocessError, ValueError) as error:
            gaps[name] = f"{type(error).__name__}: {error}"
        out["seconds"][name] = round(time.monotonic() - begin, 2)

    layer("process", lambda: _process(spec, out))
    server = Server(_url(spec, out), _key(spec, out))
    out["url"] = server.url
    layer("server_info", lambda: _info(server, out))
    layer("metrics", lambda: _metrics(server, out))
    info = out.get("server_info") or {}
    salt = int(spec.get("salt") or time.time())
    if info and spec.get("requests", True):
        layer("responses", lambda: _responses(server, info, salt, spec, out))
    elif not info:
        gaps.setdefault("responses", gaps.get("server_info", "the server was not asked"))
    if info and spec.get("profile", True):
        layer("profile", lambda: _profile(server, info, salt, spec, out))
    else:
        gaps["profile"] = "no profile was asked for" if info else gaps.get("server_info", "the server was not asked")
    layer("journal", lambda: _journal(spec, out))  # last: what our own requests made it log is in it
    if "manifest" in out:
        layer("earlier", lambda: _earlier(spec, out))
    return out


def _process(spec: dict[str, Any], out: dict[str, Any]) -> None:
    gaps = out["gaps"]
    pid = spec.get("pid")
    unit = spec.get("unit") or (f"sglang-{spec['service']}.service" if spec.get("service") else "")
    if unit:
        out["unit"] = {"name": unit, **process.unit(unit)}
        pid = int(out["unit"].get("MainPID") or 0)
        if out["unit"].get("LoadState") == "not-found":
            gaps["process"] = f"there is no unit {unit} on this host: see `systemctl list-units '*sglang*'`"
            return
        if not pid:
            state = out["unit"].get("ActiveState", "unknown")
            gaps["process"] = f"{unit} has no main process ({state}): start it, or read its journal"
            return
    elif not pid and spec.get("local", True):
        found = process.find(spec.get("port"))
        if len(found) != 1:
            gaps["process"] = f"{len(found)} SGLang servers found on this host: name one by its unit or port"
            return
        pid = found[0]
    if not pid:
        gaps["process"] = "only the URL is known: ask on its host (--host) to see the process"
        return
    out["process"] = process.read(pid)
    out["packages"] = process.packages(pid)
    release = out["process"]["env"].get("SGLFLEET_RELEASE")
    if spec.get("service") and release:
        # what runs, not what the files say: the release is read from the process
        manifest = Path(f"/var/lib/sglfleet/{spec['service']}/releases/{release}/release.json")
        out["manifest"] = json.loads(manifest.read_text(encoding="utf-8"))
        probe = manifest.with_name("probe.json")  # what the engine said before the launch
        if probe.exists():
            out["probe"] = json.loads(probe.read_text(encoding="utf-8"))
    own = process.output_of(pid).startswith("socket:")  # else it only runs below one, such as that of sshd
    if "unit" not in out and own and (name := process.unit_of(pid)):
        out["unit"] = {"name": name, **process.unit(name)}
    if "unit" not in out and (container := process.container_of(pid)):
        out["container"] = container


def _url(spec: dict[str, Any], out: dict[str, Any]) -> str:
    if spec.get("url"):
        return str(spec["url"])
    if (out.get("manifest") or {}).get("url"):
        return str(out["manifest"]["url"])
    argv = (out.get("process") or {}).get("argv", [])
    port = str(spec.get("port") or _option(argv, "--port") or 30000)
    host = _option(argv, "--host") or "127.0.0.1"
    host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, host)  # noqa: S104 - compared, not bound
    return f"http://{host}:{port}"


def _option(argv: list[str], name: str) -> str:
    for index, token in enumerate(argv):
        if token == name and index + 1 < len(argv):
            return argv[index + 1]
        if token.startswith(name + "="):
            return token.partition("=")[2]
    return ""


def _key(spec: dict[str, Any], out: dict[str, Any]) -> str:
    if spec.get("key"):
        return str(spec["key"])
    try:
        if "manifest" in out:
            file = Path(f"/etc/sglfleet/{spec['service']}/{out['manifest']['release']}/api-key")
            return file.read_text(encoding="utf-8").strip() if file.exists() else ""
        return process.key_of(out["process"]["pid"]) if "process" in out else ""
    except OSError as error:
        out["gaps"]["key"] = f"the API key could not be read ({error})"
        return ""


def _info(server: Server, out: dict[str, Any]) -> None:
    answer = server.ask("/server_info")
    if answer.status == 404:
        answer = server.ask("/get_server_info")
    info = answer.json()
    if answer.status == 200 and isinstance(info, dict):
        out["server_info"] = info
        model = server.ask("/model_info")
        out["model_info"] = (model if model.status == 200 else server.ask("/get_model_info")).json()
        return
    what = answer.body[:120].strip() if not answer.status else f"HTTP {answer.status}"
    out["gaps"]["server_info"] = f"{server.url}/server_info does not answer as SGLang does: {what}"


def _metrics(server: Server, out: dict[str, Any]) -> None:
    answer = server.ask("/metrics")
    if answer.status == 200 and "sglang" in answer.body:
        out["metrics"] = answer.body
    else:
        out["gaps"]["metrics"] = f"/metrics answered {answer.status}: give --enable-metrics"


def _responses(server: Server, info: dict[str, Any], salt: int, spec: dict[str, Any], out: dict[str, Any]) -> None:
    names = spec.get("observe")
    if names is not None:
        names = {*names, *_expected(out.get("manifest") or {})}
    out["responses"], more = workload.observe(server, info, salt, names)
    out["gaps"].update({f"responses.{name}": why for name, why in more.items()})
    pid, port = (out.get("process") or {}).get("pid"), info.get("port")
    if pid and isinstance(port, int) and (names is None or "listens_on" in names):
        if address := process.listens(pid, port):
            out["responses"]["listens_on"] = address
        else:  # several processes may share the socket
            out["gaps"]["responses.listens_on"] = "the main process itself does not hold the port"
    if not spec.get("outputs", True):
        return
    limit = info.get("max_req_input_len")
    out["outputs"] = workload.outputs(server, limit if isinstance(limit, int) else 2048)


def _expected(manifest: dict[str, Any]) -> set[str]:
    """Observations that the verdicts of the running release expect."""
    rows = [e for v in manifest.get("verdicts") or () for e in v.get("expects") or () if e.get("kind") == "response"]
    return {str(e.get("present") or e.get("absent")).partition("=")[0] for e in rows}


def _profile(server: Server, info: dict[str, Any], salt: int, spec: dict[str, Any], out: dict[str, Any]) -> None:
    pid = (out.get("process") or {}).get("pid")
    if pid is None and not spec.get("local", True):
        out["gaps"]["profile"] = "the traces lie on the server's host: ask there (--host) instead of by URL"
        return
    out["traces"], why = profile(server, info, salt, pid, str(spec.get("profile_folder") or ""))
    if why:
        out["gaps"]["profile"] = why
    out["died"] = why == DIED


def _journal(spec: dict[str, Any], out: dict[str, Any]) -> None:
    pid = (out.get("process") or {}).get("pid")
    target = process.output_of(pid) if pid and "manifest" not in out else ""
    if spec.get("log"):
        out["log"] = process.tail(Path(spec["log"]))
    elif pid and target.startswith("/") and Path(f"/proc/{pid}/root{target}").is_file():
        out["log"] = process.tail(Path(f"/proc/{pid}/root{target}"))  # `nohup … > server.log`, StandardOutput=append:
        out["log_since"] = process.started(pid)
    elif (out.get("unit") or {}).get("InvocationID"):
        out["journal"] = process.journal(out["unit"]["InvocationID"])
    elif out.get("container"):
        for tool in filter(shutil.which, ("docker", "podman")):
            asked = [tool, "inspect", "--format", "{{.State.StartedAt}}", out["container"]]
            since = subprocess.run(asked, capture_output=True, text=True, timeout=30, check=False)
            command = [tool, "logs", "--since", since.stdout.strip(), out["container"]]
            got = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
            if since.returncode == got.returncode == 0:
                out["log"] = got.stdout + got.stderr
                return
        out["gaps"]["journal"] = "neither docker nor podman tells the log of the server's container"
    elif not pid:
        out["gaps"]["journal"] = "the server's process, and so its log, is not known: ask on its host (--host)"
    else:
        where = f"it writes to {target}" if target else "where it writes is not known"
        out["gaps"]["journal"] = f"the server runs in no unit and no container, and {where}: send its output to a file"


def _earlier(spec: dict[str, Any], out: dict[str, Any]) -> None:
    """Earlier proofs of this service, for comparison; and this one kept for later ones."""
    folder = Path(f"/var/lib/sglfleet/{spec['service']}/proofs")
    files = sorted(folder.glob("*.json"), key=lambda p: p.stat().st_mtime) if folder.is_dir() else []
    out["earlier"] = [json.loads(p.read_text(encoding="utf-8")) for p in files[-KEPT:]]
    if not out.get("traces") and not out.get("outputs"):
        return
    release = out["manifest"]["release"]
    kept = {
        "release": release, "time": time.time(), "argv": out["process"]["argv"], "packages": out.get("packages"),
        "traces": out.get("traces"), "outputs": out.get("outputs"),
    }  # fmt: skip
    folder.mkdir(mode=0o755, exist_ok=True)
    new = folder / f".{release}.new"
    new.write_text(json.dumps(kept), encoding="utf-8")
    new.replace(folder / f"{release}.json")
    for old in files[: -2 * KEPT]:
        old.unlink(missing_ok=True)


def main() -> None:
    """Read the request from the first argument, print the answer: JSON, packed, on one line of plain letters."""
    answer = json.dumps(collect(json.loads(sys.argv[1]))).encode()
    print(base64.b64encode(zlib.compress(answer)).decode())
