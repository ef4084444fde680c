"""Samples as nvidia-smi prints them, reduced."""

from __future__ import annotations

from sglfleet.verify.telemetry import FIELDS, summarise


def line(second: float, index: int, power: str = "520.10", clock: int = 1900, mask: str = "0x0000000000000000") -> str:
    return f"2026/11/29 15:51:{second:06.3f}, {index}, {power}, 700.00, {clock}, 1980, 61, 90112, 97, {mask}\n"


def test_power_is_summed_and_the_worst_clock_kept():
    text = "".join(line(s, i, clock=1900 - 100 * i) for s in (1.0, 1.5, 2.0) for i in (0, 1))
    seen = summarise(text)
    assert seen is not None
    assert (seen.gpus, seen.power_w, seen.power_limit_w) == (2, 1040.2, 1400.0)
    assert (seen.sm_mhz, seen.sm_mhz_most) == (1800.0, 1980.0)
    assert seen.seconds == 1.0
    assert seen.series[0] == (0.0, 1040.2, 1800.0)


def test_only_the_services_own_gpus_count():
    seen = summarise(line(1, 0) + line(1, 5, power="80.00"), gpus=(0,))
    assert seen is not None
    assert seen.power_w == 520.1


def test_throttling_is_named_when_it_lasts_and_not_for_one_spike():
    spike = "".join(line(s, 0, mask="0x0000000000000040" if s == 0 else "0x0000000000000004") for s in range(20))
    lasts = "".join(line(s, 0, mask="0x0000000000000040") for s in range(20))
    assert summarise(spike).throttled == ("sw_power_cap",)  # type: ignore[union-attr]
    assert summarise(lasts).throttled == ("hw_thermal_slowdown",)  # type: ignore[union-attr]


def test_what_cannot_be_read_is_passed_over():
    assert summarise("") is None
    assert summarise("2026/11/29 15:51:28.352, 0, 12") is None
    seen = summarise(line(1, 0, power="[N/A]") + line(2, 0) + "2026/11/29 15:5")
    assert seen is not None
    assert len(FIELDS) == 10
