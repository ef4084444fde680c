"""Known ways in which a server fails to start: log text in, "flag X of this service, because …, do …" out. Pure.

Patterns were read in logs of real failures (SGLang 0.5.16 on H200, 0.5.23 on CPU) and in the source of the releases
named beside them. An unknown failure yields nothing: the last lines of the journal are then shown without a guess.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """One known failure seen in a log."""

    id: str
    flag: str  # SGLang's own name without dashes; empty where no single flag is behind it
    because: str
    do: str
    line: str  # the line of the log that says so

    def __str__(self) -> str:
        subject = f"flag {self.flag} of this service" if self.flag else "this service"
        return f"{subject}, because {self.because}: {self.do}"


@dataclass(frozen=True, slots=True)
class Known:
    """A failure's mark in the log. `flag`, `because` and `do` may use the named groups of the pattern."""

    id: str
    pattern: str
    flag: str
    because: str
    do: str
    unless: str = ""  # id of a closer diagnosis of the same failure


# The first match of an entry counts; entries stand from the cause to the consequence.
KNOWN = (
    Known(
        "unknown-flag",
        r"error: unrecognized arguments: (?P<args>.+)$",
        "{first}",
        "this SGLang release does not know {args}",
        "remove it, or pin the release that has it (`sglfleet explain` says which)",
    ),
    Known(
        "ambiguous-flag",
        r"error: ambiguous option: (?P<arg>\S+) could match (?P<matches>.+)$",
        "{arg}",
        "the abbreviation fits {matches}",
        "write the flag out",
    ),
    Known(
        "bad-choice",
        r"error: argument (?P<arg>--[\w-]+)\S*: invalid choice: (?P<value>'[^']*')",
        "{arg}",
        "this SGLang release does not take {value}",
        "take one of the choices in the same line of the log",
    ),
    Known(
        "bad-value",
        r"error: argument (?P<arg>--[\w-]+)\S*: (?P<why>(?:Invalid|invalid|expected)(?! choice).+?)(?:\. |$)",
        "{arg}",
        "the parser says: {why}",
        "correct the value",
    ),
    Known(  # FlashInfer: jit/comm.py, called by SGLang's fusion workspace
        "no-fusion-kernel-for-sm",
        r"in gen_trtllm_(?:mnnvl_)?comm_module\b[\s\S]{0,4000}?"
        r"No supported CUDA architectures found for major versions \[(?P<majors>[\d, ]+)\]",
        "enable-flashinfer-allreduce-fusion",
        "FlashInfer has the kernels of the all-reduce fusion for SM majors {majors} only and the GPU is another one",
        "remove it; where it was not given the engine turned it on by itself, so give "
        "enforce-disable-flashinfer-allreduce-fusion",
    ),
    Known(  # SGLang 0.5.14 on: layers/flashinfer_comm_fusion.py
        "fusion-needs-sm",
        r"FlashInfer allreduce fusion requires (?P<what>SM[^\n.]+)",
        "enable-flashinfer-allreduce-fusion",
        "this SGLang release runs the all-reduce fusion on {what} only",
        "remove it, or give enforce-disable-flashinfer-allreduce-fusion where the engine turned it on by itself",
    ),
    Known(  # SGLang: server_args.py, constructors of attention back ends
        "attention-needs-sm",
        r"(?P<what>[A-Z][\w ]{2,30} backend)(?: for (?:prefill|decode))? is only supported on "
        r"(?P<where>[^\n]*?)\. Please",
        "attention-backend",
        "the {what} runs on {where} only",
        "choose another one (`sglfleet explain attention-backend=…` shows its gates)",
    ),
    Known(  # sglang server_args.py and backends of every release: "… is only supported on Blackwell GPUs (SM100)"
        "wrong-gpu",
        r"^\w*(?:Error|Exception): (?P<what>[^\n]*(?:only supports?|only supported|requires?|not supported)\b[^\n]*"
        r"\b(?:SM ?\d+\w*|Blackwell|Hopper|Ampere|Ada|compute capability)\b[^\n]*)$",
        "{named}",
        "the engine says: {what}",
        "take another backend, or turn the feature off (`sglfleet explain` shows its gates)",
    ),
    Known(
        "argument-check",
        r"server_args\.py\", line \d+, in \w+\n(?:[^\n]*\n){1,6}?\w*Error: (?P<what>[^\n]+)$",
        "{named}",
        "the engine's own check of its arguments says: {what}",
        "correct what it names",
    ),
    Known(  # FlashInfer: jit/core.py of every release since 0.3
        "no-kernel-for-sm",
        r"No supported CUDA architectures found for major versions \[(?P<majors>[\d, ]+)\]",
        "",
        "FlashInfer has this kernel for SM majors {majors} only and the GPU is another one",
        "turn off the flag that asks for it (the traceback above names the module; `sglfleet explain` shows the gates)",
        unless="no-fusion-kernel-for-sm",
    ),
    Known(
        "kernel-image",
        r"no kernel image is available for execution on the device",
        "",
        "a compiled kernel (torch, sglang-kernel or FlashInfer) was not built for this GPU's SM",
        "pin an engine whose wheels were built for it, or choose another backend",
    ),
    Known(  # PyTorch's text
        "gpu-ordinal",
        r"CUDA error: invalid device ordinal",
        "tp-size",
        "it asks for more GPUs than the service has",
        "lower tp-size × pp-size to the number of `gpus`, or give the service more of them",
    ),
    Known(  # sglang kv_cache_configurator.py 0.5.16 on
        "no-memory-for-kv",
        r"leave no GPU memory for the KV cache under --mem-fraction-static=(?P<value>[\d.]+)\. "
        r"Raise --mem-fraction-static above (?P<least>[\d.]+\d)",
        "mem-fraction-static",
        "at {value} nothing is left for the KV cache beside the weights",
        "raise it above {least}, or spread the model over more GPUs",
    ),
    Known(  # sglang pool_configurator.py, model_runner.py of older releases
        "no-memory-for-kv",
        r"Not enough memory\. Please try to increase --mem-fraction-static",
        "mem-fraction-static",
        "nothing is left for the KV cache beside the weights",
        "raise it, or spread the model over more GPUs",
    ),
    Known(
        "gpu-out-of-memory",
        r"(?:torch\.(?:cuda\.)?OutOfMemoryError|CUDA out of memory)",
        "mem-fraction-static",
        "the GPU ran out of memory",
        "lower it, lower the largest CUDA graph batch, or see who else holds memory on the GPU",
    ),
    Known(
        "host-out-of-memory",
        r"(?:A process of this unit has been killed by the OOM killer|Failed with result 'oom-kill'|"
        r"Out of memory: Killed process)",
        "",
        "the host ran out of main memory and the kernel killed a process of the server",
        "give the host more memory, or load fewer workers at once",
    ),
    Known(
        "driver-too-old",
        r"(?:NVIDIA driver on your system is too old|CUDA driver version is insufficient)",
        "",
        "the driver is too old for the CUDA of this engine",
        "update the driver, or pin an engine with an older CUDA",
    ),
    Known(
        "no-gpu",
        r"(?:No CUDA GPUs are available|Found no NVIDIA driver on your system|no NVIDIA GPU detected)",
        "",
        "the process sees no GPU",
        "see whether `nvidia-smi` answers on the host, and the `gpus` and device rules of the unit",
    ),
    Known(
        "rank-timeout",
        r"(?:Timed out waiting for clients|client socket has timed out|DistStoreError|DistNetworkError|"
        r"Watchdog caught collective operation timeout|wait timeout after \d+ms)",
        "dist-init-addr",
        "not all ranks of the group met in time",
        "see whether the other nodes started the same release, reach the first one on that port, and use the right NIC",
    ),
    Known(
        "nccl",
        r"(?P<what>(?:ncclSystemError|ncclUnhandledCudaError|ncclRemoteError|ncclInternalError)[^\n]*)",
        "",
        "NCCL failed: {what}",
        "run with NCCL_DEBUG=INFO in `env` and look at the first warning",
    ),
    Known(  # uvicorn; sglang utils/network.py and server_args.py
        "port-taken",
        r"(?:[^\n]*bind on address \('[^']*', (?P<port>\d+)\)|Errno 98|[Aa]ddress already in use|"
        r"Port is already in use|port (?P<port2>\d+) is in use)",
        "port",
        "something else listens on {port_or_it}",
        "see `ss -ltnp` on the host: a leftover scheduler of a former run, a hand-written unit, or another service",
    ),
    Known(
        "model-missing",
        r"(?:Repo id must be in the form [^:]*: '(?P<path>[^']+)'|(?P<path2>\S+) is not a local folder|"
        r"Can't load the configuration of '(?P<path3>[^']+)'|"
        r"No such file or directory: '(?P<path4>[^']*config\.json)')",
        "model-path",
        "there is no model at {path_or_it}",
        "correct `model:`, or put the model there, readable by the service's user",
    ),
    Known(
        "model-unreadable",
        r"PermissionError: \[Errno 13\] Permission denied: '(?P<path>[^']+)'",
        "model-path",
        "the service's user may not read {path}",
        "give it read access to the file and every folder above it",
    ),
    Known(
        "model-broken",
        r"(?P<what>SafetensorError[^\n]*|Error while deserializing header[^\n]*)",
        "model-path",
        "a weight file cannot be read ({what})",
        "copy the model again and compare sizes or sums",
    ),
    Known(
        "architecture-unknown",
        r"Model architectures (?P<arch>\[[^\]]*\]) (?:are|is) not supported",
        "model-path",
        "this SGLang release has no model class for {arch}",
        "pin a release that has it",
    ),
    Known(
        "nvcc-missing",
        r"(?:Could not find nvcc|nvcc: (?:command )?not found|nvcc not found)",
        "",
        "a kernel has to be compiled on the host and there is no CUDA toolkit",
        "install the toolkit that fits the engine's CUDA, or use a backend whose kernels come compiled",
    ),
    Known(
        "disk-full",
        r"No space left on device",
        "",
        "a disk of the host is full",
        "make room, then run the deploy again",
    ),
    Known(
        "process-died",
        r"Subprocess (?P<who>\w+) \(pid=\d+\) crashed with exit code (?P<code>-(?!15\b)\d+|[1-9]\d*)",
        "",
        "its process {who} ended with exit code {code} (negative: a signal)",
        "see the first traceback or fatal error in the log above that line",
    ),
    Known(
        "start-timeout",
        r"start(?:-post)? operation timed out\. Terminating",
        "",
        "the server was not ready within the unit's start time-out",
        "raise `rollout.start_timeout` if the model needs longer to load; else see the last lines above",
    ),
)


def diagnose(log: str, args: Mapping[str, object] | None = None) -> tuple[Diagnosis, ...]:
    """Every known failure in a log, the likeliest cause first. `args`: the service's flags, for aliases."""
    found: dict[str, Diagnosis] = {}
    for known in KNOWN:
        match = re.search(known.pattern, log, re.MULTILINE)
        if match is None or known.id in found or known.unless in found:
            continue
        words = {key: value for key, value in match.groupdict().items() if value}
        words["first"] = words.get("args", "").split(" ")[0].split("=")[0]
        words["port_or_it"] = f"port {words[k]}" if (k := _first(words, "port", "port2")) else "its port"
        words["path_or_it"] = words.get(_first(words, "path", "path2", "path3", "path4"), "the path given")
        words["named"] = _named(words.get("what", ""), args or {})
        flag = known.flag.format(**words).lstrip("-")
        start = log.rfind("\n", 0, match.end()) + 1
        end = log.find("\n", match.end())
        line = log[start : end if end >= 0 else len(log)].strip()
        if any(other.line == line[:400] for other in found.values()):
            continue  # said already, and more closely
        found[known.id] = Diagnosis(
            known.id, _as_given(flag, args or {}), known.because.format(**words), known.do.format(**words), line[:400]
        )
    return tuple(found.values())


def _named(text: str, args: Mapping[str, object]) -> str:
    """The flag that a message means: it writes the flag's name, or its value in other letters (TRTLLM MHA)."""

    def plain(word: object) -> str:
        return re.sub(r"[^a-z0-9]", "", str(word).lower())

    for flag in args:
        if re.search(rf"(?<![\w-]){re.escape(flag)}(?![\w-])", text.replace("_", "-")):
            return flag
    for flag, value in args.items():
        if isinstance(value, str) and len(plain(value)) > 3 and plain(value) in plain(text):
            return flag
    return ""


def _first(words: Mapping[str, str], *names: str) -> str:
    return next((name for name in names if name in words), "")


def _as_given(flag: str, args: Mapping[str, object]) -> str:
    """The spelling the service file uses: `tp` for `tp-size`."""
    aliases = {
        "tp-size": ("tp", "tensor-parallel-size"),
        "model-path": ("model",),
        "enable-flashinfer-allreduce-fusion": ("flashinfer-allreduce-fusion-backend",),
    }
    return next((name for name in aliases.get(flag, ()) if name in args), flag)
