"""Before the server starts: is this host still what the release was judged for, and is everything there?

Runs as the service user, at staging and on every start (`ExecStartPre`). Every problem is one line, and
any problem is exit 1.
"""

from __future__ import annotations

import argparse
import errno
import json
import os
import re
import socket
import struct
import subprocess
import sys
from importlib import metadata

NVIDIA_SMI_TIMEOUT = 60  # seconds; it takes 30 without persistence mode on a large host


def main() -> int:
    p = argparse.ArgumentParser()
    p.add_argument("--gpus", type=int, default=None, help="how many GPUs the host must have")
    p.add_argument("--gpu", action="append", default=[], help="INDEX=SM, for each one that is used")
    p.add_argument("--driver", default="")
    p.add_argument("--package", action="append", default=[], help="NAME=VERSION")
    p.add_argument("--model", default="")
    p.add_argument("--listen", default="", help="HOST:PORT that must be free")
    a = p.parse_args()
    found = [*gpus(a.gpus, a.gpu), *driver(a.driver), *packages(a.package), *model(a.model), *listen(a.listen)]
    for line in found:
        print("preflight: " + line, file=sys.stderr, flush=True)
    return 1 if found else 0


# --- GPUs and driver ------------------------------------------------------------------------------------------------


def smi(*arguments: str) -> tuple[str, str]:
    """(text, problem) of one nvidia-smi call."""
    try:
        done = subprocess.run(
            ["nvidia-smi", *arguments], capture_output=True, text=True, timeout=NVIDIA_SMI_TIMEOUT, errors="replace"
        )
    except FileNotFoundError:
        return "", "nvidia-smi is not there: install the NVIDIA driver"
    except subprocess.TimeoutExpired:
        return "", f"nvidia-smi did not answer in {NVIDIA_SMI_TIMEOUT} s: look at the driver (dmesg)"
    if done.returncode:
        said = " ".join((done.stdout + done.stderr).split())[:200] or f"exit code {done.returncode}"
        return "", f"nvidia-smi: {said}: look at the driver (dmesg)"
    return done.stdout, ""


def gpus(count: int | None, wanted: list[str]) -> list[str]:
    """How many GPUs there are, and the SM version of those that are used."""
    if count is None and not wanted:
        return []
    text, problem = smi("--query-gpu=index,uuid,compute_cap", "--format=csv,noheader")
    if problem:
        return [problem]
    rows = [[cell.strip() for cell in line.split(",")] for line in text.splitlines() if line.strip()]
    there = {row[0]: row[-1] for row in rows}
    found = []
    if count is not None and len(there) != count:
        found.append(f"the host has {len(there)} GPUs, the release was judged for {count}: deploy again")
    for item in wanted:
        index, _, sm = item.partition("=")
        if index not in there:
            found.append(f"GPU {index} is not there: look at the driver (dmesg), or deploy again")
        elif there[index] != sm:
            found.append(f"GPU {index} is SM {there[index]}, the release was judged for SM {sm}: deploy again")
    return found


def driver(wanted: str) -> list[str]:
    """The driver's version."""
    if not wanted:
        return []
    text, problem = smi("-q", "-x")
    if problem:
        return [problem]
    hit = re.search(r"<driver_version>([^<]*)</driver_version>", text)
    there = hit.group(1).strip() if hit else "unknown"
    if there == wanted:
        return []
    return [f"the driver is {there}, the release was judged for {wanted}: deploy again"]


# --- the engine -----------------------------------------------------------------------------------------------------


def packages(wanted: list[str]) -> list[str]:
    """Versions in the environment that this script runs in."""
    found = []
    for item in wanted:
        name, _, version = item.partition("=")
        try:
            there = metadata.version(name)
        except metadata.PackageNotFoundError:
            found.append(f"{name} is not installed in {sys.prefix}: deploy again")
            continue
        if there != version:
            found.append(f"{name} is {there}, the release was judged for {version}: deploy again")
    return found


# --- the model ------------------------------------------------------------------------------------------------------


def model(path: str) -> list[str]:
    """There, readable, and every file whole. Weight files tell their own length, so a broken download shows."""
    if not path:
        return []
    try:
        names = sorted(os.listdir(path))
    except OSError as e:
        return [f"model {path}: {e.strerror}: {_todo(e, path)}"]
    if "config.json" not in names:
        return [f"model {path}: no config.json: name the folder that holds the checkpoint"]
    found = [problem for problem in (_json(os.path.join(path, "config.json")),) if problem]
    weights = {name for name in names if name.endswith(".safetensors")}
    listed: set[str] = set()
    for name in names:
        if name.endswith(".index.json"):
            problem = _json(os.path.join(path, name))
            if problem:
                found.append(problem)
                continue
            with open(os.path.join(path, name), encoding="utf-8") as f:
                table = json.load(f)
            listed |= set(table.get("weight_map", {}).values()) if isinstance(table, dict) else set()
    missing = sorted(listed - set(names))
    if missing:
        found.append(
            f"model {path}: {len(missing)} of {len(listed)} weight files are missing, first {missing[0]}:"
            " finish the download"
        )
    if not weights and not any(name.endswith((".bin", ".pt", ".gguf")) for name in names):
        found.append(f"model {path}: no weight files: finish the download")
    for name in names:
        full = os.path.join(path, name)
        if name.endswith(".safetensors"):
            problem = _safetensors(full)
        else:
            problem = _readable(full) if os.path.isfile(full) else ""
        if problem:
            found.append(problem)
    return found[:5]


def _todo(e: OSError, path: str) -> str:
    if e.errno == errno.EACCES:
        return f"let user id {os.getuid()} read it"
    return "put the checkpoint there, or correct `model`"


def _readable(path: str) -> str:
    try:
        with open(path, "rb") as f:
            f.read(1)
    except OSError as e:
        return f"model file {path}: {e.strerror}: {_todo(e, path)}"
    return ""


def _json(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as f:
            json.load(f)
    except OSError as e:
        return f"model file {path}: {e.strerror}: {_todo(e, path)}"
    except ValueError:
        return f"model file {path}: no JSON: download it again"
    return ""


def _safetensors(path: str) -> str:
    """Format: 8 bytes little-endian length of a JSON header, the header, then data up to the largest offset in it."""
    try:
        size = os.path.getsize(path)
        with open(path, "rb") as f:
            (length,) = struct.unpack("<Q", f.read(8))
            if length > size:
                raise ValueError
            header = json.loads(f.read(length))
        end = max([v["data_offsets"][1] for k, v in header.items() if k != "__metadata__"] or [0])
    except OSError as e:
        return f"model file {path}: {e.strerror}: {_todo(e, path)}"
    except (ValueError, struct.error, KeyError, TypeError, AttributeError):
        return f"model file {path}: not a whole safetensors file: download it again"
    if size != 8 + length + end:
        return f"model file {path}: {size} bytes, should be {8 + length + end}: download it again"
    return ""


# --- the port -------------------------------------------------------------------------------------------------------


def listen(address: str) -> list[str]:
    """Nobody else listens there. The engine itself would load for minutes before it notices."""
    if not address:
        return []
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as s:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            s.bind((host, int(port)))
    except OSError as e:
        if e.errno == errno.EADDRINUSE:
            return [f"port {port} on {host} is taken by another process: `ss -ltnp` as root names it"]
        return [f"port {port} on {host} cannot be used: {e.strerror}: correct `host` and `port`"]
    return []


if __name__ == "__main__":
    sys.exit(main())
