"""Asks the engine itself, before launch: run by the release's own Python on the host, prints one JSON object.

Standard library only, besides what is asked. It builds nothing, starts nothing and allocates nothing on a GPU. What it
could not ask is named under `gaps`; that is not an answer and overrides nothing.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import inspect
import io
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

PACKAGES = (
    "sglang", "torch", "triton", "transformers", "flashinfer-python", "flashinfer-cubin", "flashinfer-jit-cache",
    "sglang-kernel", "sgl-kernel", "nvidia-nccl-cu12", "nvidia-nccl-cu13", "xgrammar", "torchao",
)  # fmt: skip
GENERATOR_SECONDS = 80  # for all of one SM
ONE_SECONDS = 6
MULTICAST = 132  # CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED, cuda.h
SM_MESSAGE = "No supported CUDA architectures found"


def ask(spec: dict[str, Any]) -> dict[str, Any]:
    """All questions. `spec`: `argv` (flags, no launcher), `env`, `sms` to ask FlashInfer for besides the host's own."""
    os.environ.update({str(name): str(value) for name, value in (spec.get("env") or {}).items()})
    out: dict[str, Any] = {"gaps": {}, "seconds": {}, "python": sys.version.split()[0], "packages": versions()}
    questions = (("gpu", gpu), ("images", images), ("arguments", arguments), ("generators", generators))
    for name, question in questions:
        begin = time.monotonic()
        try:
            out[name] = question(spec, out)
        except BaseException as error:
            # whatever the engine throws is an answer to somebody, and must not lose the other answers
            out["gaps"][name] = f"{type(error).__name__}: {str(error)[:300]}"
        out["seconds"][name] = round(time.monotonic() - begin, 1)
    return out


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
    said = _Said()
    logging.getLogger().addHandler(said)
    logging.getLogger().setLevel(logging.INFO)
    answer: dict[str, Any] = {"argv": argv, "raised": "", "resolved": {}}
    text = io.StringIO()
    with contextlib.redirect_stderr(text), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            from sglang.srt.server_args import prepare_server_args

            asked = prepare_server_args(argv)
            for step in ("resolve_once", "check_server_args"):
                if hasattr(asked, step):
                    getattr(asked, step)()
            resolved = asked.resolved_dict() if hasattr(asked, "resolved_dict") else vars(asked)
            answer["resolved"] = {str(key): _plain(value) for key, value in resolved.items() if not key.startswith("_")}
        except SystemExit as error:
            lines = [line for line in text.getvalue().splitlines() if "error:" in line]
            answer["raised"] = (lines[-1] if lines else text.getvalue()[-300:]).strip() or f"exit {error.code}"
            answer["rejected"] = error.code == 2
        except Exception as error:
            answer["raised"] = f"{type(error).__name__}: {str(error)[:500]}"
            answer["at"] = _place(error)
    answer["said"] = said.lines + [str(w.message)[:300] for w in caught if "sglang" in str(w.filename)]
    return answer


class _Said(logging.Handler):
    """Keeps what the engine logs while it resolves."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.name.startswith(("sglang", "root", "__main__")):
            self.lines.append(f"{record.levelname}: {record.getMessage()[:300]}")


def _place(error: BaseException) -> str:
    """File, function and line below site-packages where the engine raised."""
    import traceback

    frames = traceback.extract_tb(error.__traceback__)
    mine = [f for f in frames if "/sglang/" in f.filename and __file__ not in f.filename]
    last = (mine or list(frames))[-1]
    return f"{last.filename.rpartition('site-packages/')[2]}:{last.lineno} in {last.name}"


def _plain(value: Any) -> Any:
    """What JSON can carry, all else as text."""
    if isinstance(value, str | int | float | bool) or value is None:
        return value
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in value.items()}
    return str(value)[:200]


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
    for sm, child in children.items():
        try:
            printed, errors = child.communicate(timeout=120)
            answer[sm] = json.loads(printed.splitlines()[-1])
        except (subprocess.TimeoutExpired, ValueError, IndexError):
            child.kill()
            errors = child.communicate()[1]
            out["gaps"][f"generators {sm}"] = (errors.strip().splitlines() or ["no answer"])[-1][:300]
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
    """`--generators`: the child of `generators`; else the request as JSON in the first argument."""
    warnings.filterwarnings("ignore")
    logging.captureWarnings(False)
    argument = sys.argv[1]
    printed = sys.stdout
    with contextlib.redirect_stdout(sys.stderr):
        answer = call_generators() if argument == "--generators" else ask(json.loads(argument))
    print(json.dumps(answer), file=printed)


if __name__ == "__main__":
    main()
