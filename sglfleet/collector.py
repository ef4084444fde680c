"""Runs ON THE HOST, alone, with its own python3 (3.6 or newer): everything about the host as one JSON line.

It only looks: nothing is written, no engine is imported, every program it calls has a time limit. What programs print
is handed over as it is and read on the controller, so that a surprise in a format is not lost here. Arguments of
foreign processes never leave the host: a key may stand in them.
"""

import glob
import json
import os
import platform
import pwd
import re
import shutil
import subprocess
import sys
from typing import Any, Callable, Dict, Iterable, List, Optional, Set  # 3.6 knows no other way

PACKAGES = re.compile(
    r"^(sglang|sgl|torch|torchvision|triton|flashinfer|nvidia-(nccl|nvshmem|cudnn|cuda-runtime|cutlass)|deep-?(ep|gemm)"
    r"|mooncake|nixl|transformers|xgrammar|outlines|cuda-python|numpy|compressed-tensors)\b"
)
UNIT_PROPERTIES = (
    "Id,LoadState,ActiveState,SubState,Result,UnitFileState,FragmentPath,MainPID,InvocationID,NRestarts,"
    "ActiveEnterTimestamp,ExecMainStatus,ExecMainCode"
)


def call(*argv: str, limit: int = 20) -> List[Any]:
    """(exit code, output) of a program; 127 where it is not there, 124 where it hung."""
    try:
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=limit,
        )
        return [done.returncode, done.stdout.decode("utf-8", "replace")]
    except FileNotFoundError:
        return [127, ""]
    except subprocess.TimeoutExpired:
        return [124, f"no answer within {limit} s"]
    except OSError as error:
        return [126, str(error)]


def text(path: str, limit: int = 65536) -> Optional[str]:
    """A file's text, None where it cannot be read."""
    try:
        with open(path, "rb") as stream:
            return stream.read(limit).decode("utf-8", "replace")
    except OSError:
        return None


def smi() -> Dict[str, Any]:
    """What nvidia-smi says; only the program's path where there is none."""
    program = shutil.which("nvidia-smi") or next(iter(glob.glob("/usr/*/bin/nvidia-smi")), None)
    if not program:
        return {"path": None}
    said: Dict[str, Any] = {"path": program, "xml": call(program, "-q", "-x", limit=30)}
    if said["xml"][0] == 0:
        said["cap"] = call(program, "--query-gpu=index,uuid,compute_cap", "--format=csv,noheader")
        said["topo"] = call(program, "topo", "-m")
        said["p2p"] = call(program, "topo", "-p2p", "r")
    return said


def kernel_errors() -> List[str]:
    """The newest Xid lines of this boot."""
    code, out = call("journalctl", "-k", "-b", "-q", "--no-pager", "-o", "short-iso", "-n", "20", "--grep", "NVRM: Xid")
    if code not in (0, 1):
        out = "\n".join(line for line in call("dmesg")[1].splitlines() if "NVRM: Xid" in line)
    return [line for line in out.splitlines() if "Xid" in line][-20:]


def packages(venv: str) -> Optional[Dict[str, str]]:
    """Versions of what matters in a venv, from its metadata files; None where there is no venv."""
    found: Dict[str, str] = {}
    folders = glob.glob(os.path.join(venv, "lib", "python3*", "site-packages"))
    if not folders:
        return None
    for folder in folders:
        for meta in glob.glob(os.path.join(folder, "*.dist-info", "METADATA")):
            head = (text(meta, 4096) or "").split("\n\n")[0]
            name = re.search(r"(?mi)^Name: *(\S+)", head)
            version = re.search(r"(?mi)^Version: *(\S+)", head)
            if name and version:
                canonical = re.sub(r"[-_.]+", "-", name.group(1)).lower()
                if PACKAGES.match(canonical):
                    found[canonical] = version.group(1)
    return found


def units(names: Iterable[str]) -> Dict[str, Dict[str, Any]]:
    """systemd's view of the wanted units, and of every other one that has to do with SGLang."""
    files: Dict[str, str] = {}
    for path in glob.glob("/etc/systemd/system/*.service"):
        body = text(path) or ""
        if "sglang" in body or os.path.basename(path).startswith("sglang-"):
            files[os.path.basename(path)] = body
    wanted = sorted(set(names) | set(files) | {"nvidia-fabricmanager.service", "nvidia-persistenced.service"})
    code, out = call("systemctl", "show", "--no-pager", "-p", UNIT_PROPERTIES, *wanted)
    found: Dict[str, Dict[str, Any]] = {}
    for block in out.split("\n\n") if code == 0 else []:
        fields: Dict[str, Any] = dict(line.split("=", 1) for line in block.splitlines() if "=" in line)
        name = fields.get("Id")
        if name:
            written = re.search(r"SGLFLEET_RELEASE=([A-Za-z0-9]+)", files.get(name, ""))
            fields["file_release"] = written.group(1) if written else None
            fields["foreign"] = name in files and not written
            found[name] = fields
    return found


def environ(pid: Any, name: str) -> Optional[str]:
    """One variable of a running process."""
    for item in (text(f"/proc/{pid}/environ", 1 << 20) or "").split("\0"):
        if item.startswith(name + "="):
            return item[len(name) + 1 :]
    return None


def unit_of(pid: Any) -> str:
    """The systemd unit that a process belongs to."""
    for line in (text(f"/proc/{pid}/cgroup") or "").splitlines():
        hits = re.findall(r"[^/]+\.(?:service|scope)", line)
        if hits:
            return str(hits[-1])
    return ""


def own_state(service: str) -> Dict[str, Any]:
    """What is on the disk for one service of ours."""
    base = "/var/lib/sglfleet/" + service
    current, unit = os.path.join(base, "current"), "sglang-" + service + ".service"
    return {
        "current": os.path.basename(os.readlink(current)) if os.path.islink(current) else None,
        "releases": sorted(p.split("/")[-2] for p in glob.glob(base + "/releases/*/.complete")),
        "lock": text(base + "/lock", 4096),
        "turn": text(base + "/.roll/turn", 4096),
        "edited": text("/etc/systemd/system/" + unit) not in (None, text(current + "/" + unit)),
    }


def processes(ports: Set[int], gpu_pids: Iterable[int]) -> Dict[str, Any]:
    """Who listens on the ports, who is on the GPUs, and every SGLang process."""
    inodes: Dict[str, int] = {}
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in (text(table, 1 << 22) or "").splitlines()[1:]:
            part = line.split()
            port = int(part[1].rsplit(":", 1)[1], 16)
            if part[3] == "0A" and port in ports:
                inodes[f"socket:[{part[9]}]"] = port
    listening: Dict[int, List[int]] = {port: [] for port in inodes.values()}
    engines: List[Dict[str, Any]] = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        pid, words = int(entry), (text(f"/proc/{entry}/cmdline") or "").split("\0")
        if inodes:
            for link in glob.glob(f"/proc/{entry}/fd/*"):
                try:
                    port = inodes.get(os.readlink(link), 0)
                except OSError:
                    continue
                if port and pid not in listening[port]:
                    listening[port].append(pid)
        joined = " ".join(words[:4])
        if re.search(r"sglang[.:]|sglang serve|/sglang ", joined) and "collector" not in joined:
            engines.append({"pid": pid, "port": option(words, "--port", "30000"), "launcher": "launch" in joined})
    known = {pid for pids in listening.values() for pid in pids} | set(gpu_pids) | {e["pid"] for e in engines}
    who = {}
    for pid in known:
        status = text(f"/proc/{pid}/status") or ""
        name = re.search(r"^Name:\t(.*)$", status, re.M)
        who[pid] = {
            "name": name.group(1) if name else "",
            "unit": unit_of(pid),
            "release": environ(pid, "SGLFLEET_RELEASE"),
        }
    return {
        "ports": {str(k): v for k, v in listening.items()},
        "sglang": engines,
        "who": {str(k): v for k, v in who.items()},
    }


def option(words: List[str], name: str, default: str) -> str:
    """The value of a command-line option, whichever way it was written."""
    for i, word in enumerate(words):
        if word == name and i + 1 < len(words):
            return words[i + 1]
        if word.startswith(name + "="):
            return word[len(name) + 1 :]
    return default


def as_user(user: str, check: Callable[[], Any]) -> Any:
    """`check()` as another user, in a child: permission bits, ACLs and network file systems answer for themselves."""
    name: Optional[str] = user
    try:
        entry = pwd.getpwnam(user)
        uid, gid = entry.pw_uid, entry.pw_gid
    except KeyError:  # it is made later: it will be nobody in particular
        name, uid, gid = None, 65534, 65534
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        answer = b"?"
        try:
            os.initgroups(name, gid) if name else os.setgroups([])
            os.setgid(gid)
            os.setuid(uid)
            answer = json.dumps(check()).encode()
        finally:
            os.write(writer, answer)
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as stream:
        answer = stream.read()
    os.waitpid(pid, 0)
    return json.loads(answer.decode()) if answer != b"?" else None


def unreadable(files: Iterable[str]) -> str:
    """The first of the files that cannot be opened."""
    for path in files:
        try:
            with open(path, "rb") as stream:
                stream.read(1)
        except OSError as error:
            return f"{path}: {error.strerror}"
    return ""


def model(spec: Dict[str, Any]) -> Dict[str, Any]:
    """A checkpoint: there, complete by its own index, readable by the user that will serve it, and its config.json."""
    path, user = spec["path"], spec.get("user") or "nobody"
    found: Dict[str, Any] = {
        "path": path,
        "exists": os.path.isdir(path),
        "missing": [],
        "bytes": 0,
        "unreadable": None,
        "config": None,
    }
    if not found["exists"]:
        return found
    found["config"] = text(os.path.join(path, "config.json"), 1 << 19)
    weights = sorted(
        p for kind in ("safetensors", "bin", "gguf", "pt") for p in glob.glob(os.path.join(path, "*." + kind))
    )
    wanted = {os.path.basename(p) for p in weights}
    for index in glob.glob(os.path.join(path, "*.index.json")):
        try:
            with open(index) as stream:
                wanted |= set(json.load(stream).get("weight_map", {}).values())
        except (OSError, ValueError, AttributeError):
            found["missing"].append(os.path.basename(index) + " (not JSON)")
    for name in sorted(wanted):
        full = os.path.join(path, name)
        size = os.path.getsize(full) if os.path.exists(full) else 0
        found["bytes"] += size
        if not size:
            found["missing"].append(name)
    if not wanted:
        found["missing"].append("no weights (*.safetensors, *.bin)")
    if found["config"] is None:
        found["missing"].append("config.json")
    found["missing"] = found["missing"][:20]
    there = [os.path.join(path, n) for n in sorted(wanted | {"config.json"}) if os.path.exists(os.path.join(path, n))]
    if os.geteuid() == 0:
        found["unreadable"] = as_user(user, lambda: unreadable(there))
    return found


def disk(path: str) -> int:
    """Bytes free where `path` is or would be."""
    while not os.path.isdir(path):
        path = os.path.dirname(path)
    stat = os.statvfs(path)
    return stat.f_bavail * stat.f_frsize


def collect(spec: Dict[str, Any]) -> Dict[str, Any]:
    """Everything, by the controller's wishes: services, ports, venvs, models."""
    services = spec.get("services", [])
    said = smi()
    pids = [int(n) for n in re.findall(r"<pid>(\d+)</pid>", said.get("xml", [0, ""])[1])]
    show = units([f"sglang-{name}.service" for name in services])
    for fields in show.values():
        if fields.get("MainPID", "0") != "0":
            fields["release"] = environ(fields["MainPID"], "SGLFLEET_RELEASE")
    kept = sorted(set(services) | {os.path.basename(p) for p in glob.glob("/var/lib/sglfleet/*") if os.path.isdir(p)})
    whole = {os.path.dirname(mark) for mark in glob.glob("/opt/sglfleet/engines/*/.complete")}
    venvs = sorted(set(spec.get("venvs", [])) | whole)
    nvcc = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
    rdma = [text(p + "/ports/1/state") or "" for p in glob.glob("/sys/class/infiniband/*")]
    pci = glob.glob("/sys/bus/pci/devices/*/class")
    bridges = [
        p for p in pci if (text(p) or "").startswith("0x0680") and (text(p[:-5] + "vendor") or "")[:6] == "0x10de"
    ]
    return {
        "schema_version": 1,
        "root": os.geteuid() == 0,
        "machine": platform.machine(),
        "kernel": platform.release(),
        "boot_id": (text("/proc/sys/kernel/random/boot_id") or "").strip(),
        "uptime": float((text("/proc/uptime") or "0").split()[0]),
        "smi": said,
        "nvcc": call(nvcc, "--version"),
        "nvswitch": len(glob.glob("/dev/nvidia-nvswitch[0-9]*")) or len(bridges),
        "xid": kernel_errors() if said["path"] else [],
        "rdma": {"nics": len(rdma), "active": sum("ACTIVE" in state for state in rdma)},
        "venvs": {venv: [packages(venv), os.path.realpath(venv + "/bin/python")] for venv in venvs},
        "uv": shutil.which("uv"),
        "units": show,
        "own": {name: own_state(name) for name in kept},
        "processes": processes(set(spec.get("ports", [])), pids),
        "models": [model(m) for m in spec.get("models", [])],
        "disk": {p: disk(p) for p in ("/opt/sglfleet", "/var/lib/sglfleet", "/var/cache/sglfleet")},
        "memory_mib": int(re.findall(r"MemTotal: *(\d+)", text("/proc/meminfo") or "MemTotal: 0")[0]) // 1024,
    }


if __name__ == "__main__":
    print(json.dumps(collect(json.loads(sys.argv[1]))))
