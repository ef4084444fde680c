"""Names of GPUs as drivers print them and people write them."""

from __future__ import annotations

import pytest

from validators.gpus import declared, sm_of


@pytest.mark.parametrize(
    ("name", "sm"),
    [
        ("NVIDIA H200", "9.0"),
        ("NVIDIA H100 80GB HBM3", "9.0"),
        ("H20-3e", "9.0"),
        ("NVIDIA A100-SXM4-80GB", "8.0"),
        ("A100-80GB", "8.0"),
        ("NVIDIA B200", "10.0"),
        ("GB300", "10.3"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "12.0"),
        ("rtx-pro-6000", "12.0"),
        ("NVIDIA RTX 6000 Ada Generation", "8.9"),
        ("NVIDIA RTX A6000", "8.6"),
        ("NVIDIA GeForce RTX 4090", "8.9"),
        ("NVIDIA GeForce RTX 5090", "12.0"),
        ("NVIDIA L40S", "8.9"),
        ("NVIDIA L4", "8.9"),
        ("DGX Spark", "12.1"),
        ("RTX 6000D", "12.0"),
        ("Tesla T4", "7.5"),
        ("AMD Instinct MI300X", None),
        ("", None),
        ("Blackwell", None),
    ],
)
def test_sm_of_a_name(name, sm):
    assert sm_of(name) == sm


@pytest.mark.parametrize(
    ("text", "sm", "count"),
    [
        ("rtx-pro-6000 x4", "12.0", 4),
        ("h200x8", "9.0", 8),
        ("8x H100", "9.0", 8),
        ("8 × B200", "10.0", 8),
        ("h200-x8", "9.0", 8),
        ("h200", "9.0", 1),
        ("RTX 4090", "8.9", 1),
    ],
)
def test_declared_hardware(text, sm, count):
    found = declared(text)
    assert found is not None
    assert (found.sm, found.count) == (sm, count)


@pytest.mark.parametrize("text", ["", "blackwell x4", "x4", "2x h100 x4"])
def test_what_is_not_known_is_not_guessed(text):
    assert declared(text) is None


def test_sms_are_those_that_releases_are_read_for():
    from sglfleet.extract.evaluate import SMS
    from validators import gpus

    assert gpus.SMS == SMS
    assert set(gpus.NAMES.values()) <= set(gpus.SMS)
