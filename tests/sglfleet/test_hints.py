"""What a service file says that does nothing, or not what it seems to: warnings with their place, nothing refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from sglfleet import paths
from sglfleet.exits import Exit
from sglfleet.render import environment
from sglfleet.report.model import Cause, Report
from tests.sglfleet.test_check import SERVICE, run

FILE = "group_data/services/qwen.yaml"
KV = "  kv-cache-dtype: auto\n"


def said(report: Report) -> list[Cause]:
    return [cause for cause in report.causes if cause.rule == "service-file"]


@pytest.mark.parametrize(
    ("more", "level", "place", "says"),
    [
        ("on_unsupported: {flags: {tp-sise: refuse}}", "warning", "8:26", "Did you mean tp-size?"),
        ("on_unsupported: {flags: {tp: refuse}}", "warning", "8:26", "Did you mean tp-size?"),
        ("on_unsupported: {flags: {kv-cache-dtype: refuse}}", "note", "8:26", "add kv-cache-dtype to `args`"),
        ("allow: [{flag: enable-flashinfer-allreduce-fusoin, reason: r, until: 2026-12-31}]", "warning", "8:10",
         "Did you mean enable-flashinfer-allreduce-fusion?"),
        ("allow: [{flag: zzz, reason: r, until: 2026-12-31}]", "warning", "8:10", "Remove it, or add zzz to `args`."),
        ("allow: [{flag: tp-size, reason: r, until: 2028-12-31}]", "warning", "8:36", "Name a day within a year"),
        ("env: {REDIS_PASSWORD: abc}", "warning", "8:7", "Write `secrets: {REDIS_PASSWORD: {env: REDIS_PASSWORD}}`"),
        ("env: {TRITON_CACHE_DIR: /data/cache}", "warning", "8:7", "name a folder in /var/cache/sglfleet/qwen"),
        ("env: {HOME: /root}", "warning", "8:7", "the server can write nowhere"),
        ('env: {PYTHONUNBUFFERED: ""}', "warning", "8:7", "Remove PYTHONUNBUFFERED"),
    ],
)  # fmt: skip
def test_is_said_once_with_its_place(
    more: str, level: str, place: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = run(tmp_path, monkeypatch, {FILE: SERVICE + more + "\n"})
    [cause] = said(report)
    assert (cause.level, str(cause.mark)) == (level, f"{FILE}:{place}")
    assert says in f"{cause.reason} {cause.todo}"
    assert sorted(cause.hosts) == ["h1", "p1", "p2"]
    assert report.exit is Exit.FINE


@pytest.mark.parametrize(
    "more",
    [
        "on_unsupported: {flags: {tp-size: refuse, enable-flashinfer-allreduce-fusion: warn}}",
        "allow: [{flag: enable-flashinfer-allreduce-fusion, reason: r, until: 2027-11-29}]",
        "secrets: {api-key: {env: K}}\nallow: [{flag: api-key, reason: r, until: 2026-12-31}]",
        "env: {NCCL_DEBUG: INFO}\nallow: [{flag: NCCL_DEBUG, reason: r, until: 2026-12-31}]",
        "env: {TRITON_CACHE_DIR: /var/cache/sglfleet/qwen/other, PYTHONUNBUFFERED: 1, MY_KEY_PATH: /k}",
    ],
)
def test_what_is_meant_is_not_doubted(more: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert said(run(tmp_path, monkeypatch, {FILE: SERVICE + more + "\n"})) == []


def test_a_policy_for_a_flag_that_one_group_gives_is_no_slip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {
        FILE: SERVICE + "on_unsupported: {flags: {kv-cache-dtype: warn}}\n",
        "group_data/h100.py": 'gpu = "h100 x8"\nservices = ["qwen"]\n'
        'service_overrides = {"qwen": {"args": {"kv-cache-dtype": "auto"}}}',
    }
    assert said(run(tmp_path, monkeypatch, files)) == []


def test_a_waiver_may_use_the_flags_own_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a policy may: the file says `tp`, the waiver `tp-size`; nothing about it is doubted or lost."""
    text = SERVICE.replace("tp-size", "tp") + "allow: [{flag: tp-size, reason: r, until: 2026-12-31}]\n"
    assert said(run(tmp_path, monkeypatch, {FILE: text})) == []


def test_what_the_unit_sets_is_what_is_warned_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = run(tmp_path, monkeypatch, {})
    assert report.pairs
    from validators.load import load

    service = load(SERVICE, "a.yaml").service
    assert service is not None
    made = environment(service, {})
    assert made.keys() - paths.set_by_the_unit("qwen").keys() == {"CUDA_DEVICE_ORDER", "CUDA_VISIBLE_DEVICES"}
