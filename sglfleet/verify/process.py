"""The server's process as the kernel sees it: argv, environment, unit. Standard library only: also sent to hosts."""

from __future__ import annotations

import collections
import contextlib
import ipaddress
import os
import re
import subprocess
from pathlib import Path
from typing import Any

_SECRET = re.compile(r"KEY|TOKEN|SECRET|PASSW|CREDENTIAL", re.I)
_SECRET_FLAGS = ("--api-key", "--admin-api-key", "--ssl-keyfile-password")
_SERVERS = re.compile(r"sglang(\.launch_server|/launch_server\.py|\S*\s+serve\b)")
HIDDEN = "<hidden>"
READY = "The server is fired up and ready to roll!"
_ROUTINE = re.compile(r"\] (INFO: +\S+ - |(Prefill|Decode) batch)")


def read(pid: int) -> dict[str, Any]:
    """Argv and environment of a process, secrets hidden. Raises OSError where it is gone or not ours to read."""
    root = Path(f"/proc/{pid}")
    argv = [part.decode(errors="replace") for part in (root / "cmdline").read_bytes().split(b"\0")[:-1]]
    env: dict[str, str] = {}
    for part in (root / "environ").read_bytes().split(b"\0"):
        name, _, value = part.decode(errors="replace").partition("=")
        if name:
            env[name] = HIDDEN if _SECRET.search(name) else value
    python = str((root / "exe").readlink())
    return {"pid": pid, "argv": hide(argv), "env": env, "exe": python, "python": argv[0] if argv else python}


def hide(argv: list[str]) -> list[str]:
    """The command line without secrets."""
    out: list[str] = []
    after = False
    for token in argv:
        name, equals, _ = token.partition("=")
        out.append(HIDDEN if after else f"{name}={HIDDEN}" if equals and name in _SECRET_FLAGS else token)
        after = token in _SECRET_FLAGS
    return out


def key_of(pid: int) -> str:
    """The API key in the argv of a server nobody deployed; "" where there is none."""
    argv = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    for index, part in enumerate(argv):
        if part == "--api-key" and index + 1 < len(argv):
            return argv[index + 1]
        if part.startswith("--api-key="):
            return part.partition("=")[2]
    return ""


def unit(name: str) -> dict[str, str]:
    """What systemd says of a unit: its main process and the invocation that its journal is bound to."""
    wanted = ("LoadState", "MainPID", "InvocationID", "ActiveState", "SubState", "ActiveEnterTimestamp", "NRestarts")
    command = ["systemctl", "show", name, *(f"-p{key}" for key in wanted)]
    out = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False).stdout
    return dict(line.split("=", 1) for line in out.splitlines() if "=" in line)


def unit_of(pid: int) -> str:
    """The systemd unit a process runs in, from its control group; "" where it runs in none (a login, a container)."""
    text = Path(f"/proc/{pid}/cgroup").read_text(encoding="utf-8", errors="replace")
    for line in text.splitlines():
        for part in reversed(line.split("/")):
            if part.endswith(".service") and not part.startswith(("user@", "docker", "containerd")):
                return part
    return ""


def output_of(pid: int) -> str:
    """Where a process writes to: the path of a file, or `socket:[…]` (the journal), `pipe:[…]`, a terminal."""
    return str(Path(f"/proc/{pid}/fd/1").readlink())


def started(pid: int) -> str:
    """When a process started, in its own time zone: 2026-11-29 18:00:00, as its logger would write it."""
    ticks = int(Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[19])
    boot = next(
        line for line in Path("/proc/stat").read_text(encoding="utf-8").splitlines() if line.startswith("btime")
    )
    epoch = int(boot.split()[1]) + ticks // os.sysconf("SC_CLK_TCK")
    zone = [part for part in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0") if part.startswith(b"TZ=")]
    env = {**os.environ, "TZ": zone[0][3:].decode(errors="replace")} if zone else dict(os.environ)
    command = ["date", "-d", f"@{epoch}", "+%Y-%m-%d %H:%M:%S"]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=10, check=True).stdout.strip()


def tail(path: Path, limit: int = 12 << 20) -> str:
    """The end of a log file, `limit` bytes at most."""
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - limit))
        return file.read().decode(errors="replace")


def listens(pid: int, port: int) -> str:
    """The address at which a process itself listens on a port, several joined by commas; "" where it does not."""
    inodes = set()
    for fd in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            inodes.add(str(fd.readlink()))
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text(encoding="ascii").splitlines()[1:]:
            words = line.split()
            address, _, number = words[1].partition(":")
            if words[3] == "0A" and int(number, 16) == port and f"socket:[{words[9]}]" in inodes:
                raw = bytes.fromhex(address)  # words of four bytes, the last one first
                found.add(str(ipaddress.ip_address(b"".join(raw[i : i + 4][::-1] for i in range(0, len(raw), 4)))))
    return ",".join(sorted(found))


def container_of(pid: int) -> str:
    """The id of the Docker or Podman container a process runs in; "" where it runs in none."""
    text = Path(f"/proc/{pid}/cgroup").read_text(encoding="utf-8", errors="replace")
    found = re.search(r"(?:docker[-/]|libpod-)([0-9a-f]{12,64})", text)
    return found[1] if found else ""


def find(port: int | None = None) -> list[int]:
    """Main processes of SGLang servers on this host, oldest first: those whose parent is none of them."""
    found: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            status = (entry / "stat").read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        if not _SERVERS.search(command) or "python" not in command:
            continue
        if port is not None and not re.search(rf"--port[ =]{port}\b", command) and port != 30000:
            continue
        found[int(entry.name)] = int(status.rpartition(")")[2].split()[1])
    return sorted(pid for pid, parent in found.items() if parent not in found)


def journal(invocation: str, limit: int = 12 << 20, recent: int = 600) -> str:
    """The journal of one invocation, one JSON object a line.

    All of the start is kept. Of what a server writes for every batch and every request afterwards only the `recent`
    last lines are: they are hundreds of MB a week, and those of our own requests are the last. `limit`: bytes.
    """
    fields = "MESSAGE,_PID,_SYSTEMD_INVOCATION_ID,INVOCATION_ID,__REALTIME_TIMESTAMP"
    command = ["journalctl", "-o", "json", f"--output-fields={fields}", "--no-pager", "-a"]
    both = [f"_SYSTEMD_INVOCATION_ID={invocation}", "+", f"INVOCATION_ID={invocation}"]
    with subprocess.Popen([*command, *both], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        kept: list[str] = []
        routine: collections.deque[str] = collections.deque(maxlen=recent)
        size = 0
        ready = False
        for raw in process.stdout or ():
            line = raw.decode(errors="replace")
            if ready and _ROUTINE.search(line):
                routine.append(line)
                continue
            ready = ready or READY in line
            size += len(line)
            if size < limit:
                kept.append(line)
    return "".join([*kept, *routine])


def packages(pid: int) -> dict[str, str]:
    """Distributions in the environment a process runs in, from what it has imported: name -> version."""
    roots: set[Path] = set()
    base = Path(f"/proc/{pid}/root")
    for line in Path(f"/proc/{pid}/maps").read_text(encoding="utf-8", errors="replace").splitlines():
        found = re.search(r"(/\S*/(?:site|dist)-packages)/", line)
        if found:
            roots.add(base / found[1].lstrip("/"))
    for part in (base.parent / "environ").read_bytes().split(b"\0"):
        name, _, value = part.decode(errors="replace").partition("=")
        if name == "PYTHONPATH":
            roots |= {base / folder.lstrip("/") for folder in value.split(":") if folder.startswith("/")}
    out: dict[str, str] = {}
    for root in roots:
        for info in root.glob("*.dist-info"):
            name, _, version = info.name.removesuffix(".dist-info").partition("-")
            if version:
                out[re.sub(r"[-_.]+", "-", name).lower()] = version
    return out
