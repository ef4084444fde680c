"""Asks the engine itself, before launch: run by the release's own Python on the host, prints one JSON object.

Standard library only, besides what is asked. It builds nothing, starts nothing and allocates nothing on a GPU. What it
could not ask is named under `gaps`; that is not an answer and overrides nothing. It ends by itself: what is not asked
when the time is over is a gap too.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import inspect
import json
import logging
import os
import pathlib
import pkgutil
import re
import shutil
import signal
import subprocess
import sys
import time
import warnings
from importlib import metadata
from typing import Any

from sglfleet.verify import ask_arguments

PACKAGES = (
    "sglang", "torch", "triton", "transformers", "flashinfer-python", "flashinfer-cubin", "flashinfer-jit-cache",
    "sglang-kernel", "sgl-kernel", "nvidia-nccl-cu12", "nvidia-nccl-cu13", "xgrammar", "torchao",
)  # fmt: skip
SECONDS = 200.0  # for everything, where the request names no time
GENERATOR_SECONDS = 80  # for all of one SM
ONE_SECONDS = 6
MULTICAST = 132  # CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED, cuda.h
SM_MESSAGE = "No supported CUDA architectures found"


class _LateError(BaseException):
    """The time is over; past every `except Exception` of the engine."""


_end = 0.0  # monotonic


def _left() -> float:
    return max(1.0, _end - time.monotonic())


def ask(spec: dict[str, Any]) -> dict[str, Any]:
    """All questions. `spec`: `argv` (flags, no launcher), `asked` (the same before anything was dropped), `env`, `sms`
    to ask FlashInfer for besides the host's own, `seconds` for everything.
    """
    global _end
    _end = time.monotonic() + float(spec.get("seconds") or SECONDS)
    signal.signal(signal.SIGALRM, _over)
    os.environ.update({str(name): str(value) for name, value in (spec.get("env") or {}).items()})
    out: dict[str, Any] = {"gaps": {}, "seconds": {}, "python": sys.version.split()[0], "packages": versions()}
    for question in (gpu, images, arguments, asked, generators):
        name = question.__name__
        begin = time.monotonic()
        if begin >= _end:
            out["gaps"][name] = "there was no time left to ask: the host is busy"
            continue
        try:
            signal.setitimer(signal.ITIMER_REAL, _left())
            out[name] = question(spec, out)
        except _LateError:
            out["gaps"][name] = f"no answer in {time.monotonic() - begin:.0f} s: the host is busy"
        except BaseException as error:
            # whatever the engine throws is an answer to somebody, and must not lose the other answers
            out["gaps"][name] = f"{type(error).__name__}: {str(error)[:300]}"
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        out["seconds"][name] = round(time.monotonic() - begin, 1)
    return out


def _over(*_: object) -> None:
    raise _LateError


def versions() -> dict[str, str]:
    """Versions really installed in this environment."""
    out: dict[str, str] = {}
    for name in PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            out[name] = metadata.version(name)
    return out


def gpu(_: dict[str, Any], out: dict[str, Any]) -> dict[str, Any]:
    """Capability, arch list of this torch, peer access and multicast, as the driver tells them."""
    import torch

    found: dict[str, Any] = {
        "torch": torch.__version__, "cuda": torch.version.cuda, "arch_list": torch.cuda.get_arch_list(), "devices": [],
    }  # fmt: skip
    if not torch.cuda.is_available():
        out["gaps"]["gpu"] = "no GPU that torch can see: capability, peer access and multicast could not be asked"
        return found
    count = torch.cuda.device_count()
    for index in range(count):
        properties = torch.cuda.get_device_properties(index)
        found["devices"].append({
            "index": index, "name": properties.name, "sm": f"{properties.major}.{properties.minor}",
            "memory_mib": properties.total_memory >> 20, "multicast": _multicast(index),
        })  # fmt: skip
    pairs = [(a, b) for a in range(count) for b in range(count) if a != b]
    found["p2p"] = all(torch.cuda.can_device_access_peer(a, b) for a, b in pairs) if pairs else None
    native = {f"sm_{d['sm'].replace('.', '')}" for d in found["devices"]}
    built = {arch.rstrip("af") for arch in found["arch_list"]}
    found["torch_has_image"] = all(name in built for name in native)
    return found


def images(_: dict[str, Any], out: dict[str, Any]) -> dict[str, list[str]]:
    """SM images inside the kernel package's libraries, by file, as the CUDA toolkit's own tool lists them."""
    spec = importlib.util.find_spec("sgl_kernel")
    tool = shutil.which("cuobjdump")
    if spec is None or not spec.submodule_search_locations:
        out["gaps"]["images"] = "the kernel package is not installed here"
        return {}
    if tool is None:
        out["gaps"]["images"] = "cuobjdump of the CUDA toolkit is not on this host"
        return {}
    found: dict[str, list[str]] = {}
    for place in spec.submodule_search_locations:
        for path in sorted(pathlib.Path(place).rglob("*.so")):
            told = subprocess.run([tool, "--list-elf", path], capture_output=True, text=True, timeout=60, check=False)
            found[path.name] = sorted(set(re.findall(r"sm_\d+[af]?", told.stdout)))
    return found


def _multicast(index: int) -> bool | None:
    """Whether the driver offers multicast on a device. None: it could not be asked."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
        value, device = ctypes.c_int(), ctypes.c_int()
        if driver.cuInit(0) or driver.cuDeviceGet(ctypes.byref(device), index):
            return None
        if driver.cuDeviceGetAttribute(ctypes.byref(value), MULTICAST, device):
            return None
        return bool(value.value)
    except (OSError, AttributeError):
        return None


def arguments(spec: dict[str, Any], out: dict[str, Any]) -> dict[str, Any]:
    """SGLang's own parser and resolution of the effective argv: what it becomes, what it warns, what it raises."""
    argv = [str(token) for token in spec.get("argv") or ()]
    if not argv:
        out["gaps"]["arguments"] = "no argv was given"
        return {}
    return ask_arguments.resolve(argv)


def asked(spec: dict[str, Any], out: dict[str, Any]) -> dict[str, Any]:
    """The same of the command line before anything was dropped from it, in a process of its own: a crash is one too."""
    argv = [str(token) for token in spec.get("asked") or ()]
    if not argv or argv == spec.get("argv"):
        return {}
    command = [sys.executable, "-I", sys.argv[0], "--arguments"]
    told = subprocess.run(command, input=json.dumps(argv), capture_output=True, text=True, timeout=_left(), check=False)
    lines = told.stdout.strip().splitlines()
    if told.returncode or not lines:
        end = (told.stderr.strip().splitlines() or [""])[-1][:300]
        return {"argv": argv, "raised": f"the engine ended with {told.returncode}: {end}", "resolved": {}, "said": []}
    answer: dict[str, Any] = json.loads(lines[-1])
    return answer


def generators(spec: dict[str, Any], out: dict[str, Any]) -> dict[str, Any]:
    """FlashInfer's `gen_*` functions, called for each SM (nothing is built): function -> "ok" or what it raises."""
    if "flashinfer-python" not in out["packages"]:
        out["gaps"]["generators"] = "FlashInfer is not installed here"
        return {}
    own = [d["sm"] for d in (out.get("gpu") or {}).get("devices", [])]
    sms = sorted({*own, *(spec.get("sms") or ())}, key=lambda sm: tuple(map(int, sm.split("."))))
    children = {}
    for sm in sms:  # a process each: the list of architectures is read once, on import
        env = {**os.environ, "FLASHINFER_CUDA_ARCH_LIST": sm, "FLASHINFER_DISABLE_VERSION_CHECK": "1"}
        command = [sys.executable, sys.argv[0], "--generators"]
        children[sm] = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    answer: dict[str, Any] = {}
    try:
        for sm, child in children.items():
            try:
                printed, errors = child.communicate(timeout=_left())
                answer[sm] = json.loads(printed.splitlines()[-1])
            except (subprocess.TimeoutExpired, ValueError, IndexError):
                child.kill()
                errors = child.communicate()[1]
                out["gaps"][f"generators {sm}"] = (errors.strip().splitlines() or ["no answer"])[-1][:300]
    finally:
        for child in children.values():
            if child.poll() is None:
                child.kill()
                child.wait()
    return answer


def call_generators() -> dict[str, str]:
    """Every `gen_*` function of `flashinfer.jit` that needs no argument, for the architectures in the environment."""
    import flashinfer.jit

    names = ["flashinfer.jit"]
    names += [m.name for m in pkgutil.walk_packages(flashinfer.jit.__path__, "flashinfer.jit.")]
    names.sort(key=lambda name: ("comm" not in name, name))  # what is asked most stands first: time is limited
    signal.signal(signal.SIGALRM, _too_long)
    end = time.monotonic() + GENERATOR_SECONDS
    out: dict[str, str] = {}
    for name in names:
        if time.monotonic() > end:
            break
        try:
            module = importlib.import_module(name)
        except Exception:  # noqa: S112 - a module that needs what is not installed has nothing to ask
            continue
        for attribute, value in sorted(vars(module).items()):
            if not attribute.startswith("gen_") or not inspect.isfunction(value) or value.__module__ != name:
                continue
            key = f"{name.removeprefix('flashinfer.')}.{attribute}"
            needed = [p for p in inspect.signature(value).parameters.values() if p.default is p.empty and p.kind < 2]
            if needed:
                continue
            signal.alarm(ONE_SECONDS)
            try:
                value()
                out[key] = "ok"
            except Exception as error:
                text = str(error).splitlines()[0][:200] if str(error) else ""
                out[key] = text if SM_MESSAGE in text else f"could not ask: {type(error).__name__}: {text}"
            finally:
                signal.alarm(0)
    return out


def _too_long(*_: object) -> None:
    raise TimeoutError(f"no answer in {ONE_SECONDS} s")  # some look for binaries on the network


def main() -> None:
    """`--generators`, `--arguments`: children; else the request as JSON in the first argument."""
    warnings.filterwarnings("ignore")
    logging.captureWarnings(False)
    argument = sys.argv[1]
    if argument == "--arguments":
        ask_arguments.main()
        return
    printed = sys.stdout
    with contextlib.redirect_stdout(sys.stderr):
        answer = call_generators() if argument == "--generators" else ask(json.loads(argument))
    print(json.dumps(answer), file=printed)


if __name__ == "__main__":
    main()
