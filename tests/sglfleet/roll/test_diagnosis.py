"""Diagnoses over logs of real failures (tails of them), and none over logs of healthy servers."""

from __future__ import annotations

from pathlib import Path

import pytest

from sglfleet.diagnosis import KNOWN, diagnose

LOGS = Path(__file__).parent / "logs"
FOUND = {
    "h200-0.5.16-badflag": ("unknown-flag", "no-such-flag"),
    "h200-0.5.16-lowmem": ("no-memory-for-kv", "mem-fraction-static"),
    "h200-0.5.16-tp2": ("gpu-ordinal", "tp-size"),
    "cpu-0.5.23-badchoice": ("bad-choice", "attention-backend"),
    "cpu-0.5.23-badtype": ("bad-value", "max-total-tokens"),
    "cpu-0.5.23-nomodel": ("model-missing", "model-path"),
}
# single lines: messages of PyTorch, FlashInfer, uvicorn, systemd, transformers and SGLang as they print them
LINES = [
    ("RuntimeError: No supported CUDA architectures found for major versions [9, 10].", "no-kernel-for-sm", ""),
    ("RuntimeError: CUDA error: no kernel image is available for execution on the device", "kernel-image", ""),
    (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
        "gpu-out-of-memory",
        "mem-fraction-static",
    ),
    (
        "ERROR:    [Errno 98] error while attempting to bind on address ('0.0.0.0', 30000): address already in use",
        "port-taken",
        "port",
    ),
    (
        "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.",
        "no-memory-for-kv",
        "mem-fraction-static",
    ),
    (
        "torch.distributed.DistStoreError: Timed out after 601 seconds waiting for clients. 1/2 clients joined.",
        "rank-timeout",
        "dist-init-addr",
    ),
    ("OSError: [Errno 28] No space left on device", "disk-full", ""),
    ("sglang-x.service: A process of this unit has been killed by the OOM killer.", "host-out-of-memory", ""),
    ("PermissionError: [Errno 13] Permission denied: '/models/m/model.safetensors'", "model-unreadable", "model-path"),
    ("sglang-x.service: start-post operation timed out. Terminating.", "start-timeout", ""),
    ("RuntimeError: No CUDA GPUs are available", "no-gpu", ""),
]


@pytest.mark.parametrize("name", FOUND)
def test_real_failures(name: str) -> None:
    first = diagnose((LOGS / f"{name}.log").read_text(encoding="utf-8"))[0]
    assert (first.id, first.flag) == FOUND[name]
    assert "{" not in str(first)
    assert first.line


@pytest.mark.parametrize("name", ["cpu-0.5.23-healthy", "h200-0.5.16-healthy"])
def test_a_healthy_log_has_none(name: str) -> None:
    assert diagnose((LOGS / f"{name}.log").read_text(encoding="utf-8")) == ()


@pytest.mark.parametrize(("line", "kind", "flag"), LINES, ids=[kind for _, kind, _ in LINES])
def test_known_lines(line: str, kind: str, flag: str) -> None:
    found = diagnose(f"something before\n{line}\nsomething after\n")
    assert [(d.id, d.flag) for d in found if d.id == kind] == [(kind, flag)]
    assert found[0].line == line


def test_the_number_to_raise_to_is_told() -> None:
    text = str(diagnose((LOGS / "h200-0.5.16-lowmem.log").read_text(encoding="utf-8"))[0])
    assert text.startswith("flag mem-fraction-static of this service, because at 0.01")
    assert "0.342" in text


def test_the_flag_that_wants_another_gpu_is_named() -> None:
    log = (LOGS / "h200-0.5.16-wronggpu.log").read_text(encoding="utf-8")
    found = diagnose(log, {"tp-size": 1, "attention-backend": "trtllm_mha"})
    assert [item.flag for item in found] == ["attention-backend"], "one line of the log, one diagnosis"
    line = "AssertionError: The FlashMLA backend is only supported on Hopper GPUs"
    assert diagnose(line, {"decode-attention-backend": "flashmla"})[0].flag == "decode-attention-backend"
    assert diagnose(line)[0].flag == "", "without the service's flags none is guessed"


@pytest.mark.parametrize(("code", "count"), [("-15", 0), ("-11", 1), ("1", 1)])
def test_a_process_that_died(code: str, count: int) -> None:
    """-15 is how every orderly stop ends."""
    assert len(diagnose(f"Subprocess scheduler_0 (pid=2381) crashed with exit code {code}. Triggering")) == count


def test_the_port_that_is_taken_is_told() -> None:
    line = "[Errno 98] error while attempting to bind on address ('0.0.0.0', 30777): address already in use"
    assert "port 30777" in str(diagnose(line)[0])


def test_the_spelling_of_the_service_file_is_used() -> None:
    assert diagnose("CUDA error: invalid device ordinal", {"tp": 2})[0].flag == "tp"


def test_an_unknown_failure_is_not_guessed() -> None:
    assert diagnose("Traceback (most recent call last):\nValueError: something new\n") == ()


def test_every_entry_fills_in() -> None:
    assert len({(known.id, known.pattern) for known in KNOWN}) == len(KNOWN)
