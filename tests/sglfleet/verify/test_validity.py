"""Runs that must give no number, each with what to do; and runs that must."""

from __future__ import annotations

import pytest

from sglfleet.verify.runs import Run, Telemetry
from sglfleet.verify.validity import between, of_run

GPU = Telemetry(
    gpus=1,
    seconds=10,
    power_w=520,
    power_limit_w=700,
    sm_mhz=1900,
    sm_mhz_most=1980,
    temperature_c=60,
    memory_mib=90000,
    utilisation=98,
)


def run(**changes: object) -> Run:
    base = {
        "service": "s",
        "host": "h1",
        "host_class": "h200-x1",
        "gpu": "NVIDIA H200 x1",
        "model": "m",
        "input_len": 1000,
        "output_len": 1000,
        "concurrency": 16,
        "prompts": 48,
        "seed": 1,
        "started": 1.0,
        "duration_s": 8.5,
        "completed": 48,
        "output_tokens": 48000,
        "cached_tokens": 0,
        "invocation": ("a", "a"),
        "telemetry": GPU,
        "metrics": {"output_throughput": 5635.7, "mean_ttft_ms": 162.5, "median_ttft_ms": 109.8},
    }
    return Run.model_validate({**base, **changes})


def gpu(**changes: object) -> Telemetry:
    return GPU.model_copy(update=changes)


def codes(problems) -> list[str]:
    return [p.code for p in problems]


def test_a_clean_run_has_no_problem():
    assert of_run(run(), floor_w=500) == []
    assert of_run(run(telemetry=None, cached_tokens=None)) == []


@pytest.mark.parametrize(
    ("changes", "code", "says"),
    [
        ({"completed": 47, "output_tokens": 47000}, "failed", "1 of 48 requests failed"),
        ({"output_tokens": 47500}, "short", "47500 of 48000"),
        ({"shortest_output": 3}, "short", "cut short"),
        ({"metrics": {"mean_ttft_ms": 0.0, "output_throughput": 1.0}}, "ttft-zero", "client saw no text"),
        ({"cached_tokens": 24000}, "cache", "50%"),
        ({"invocation": ("a", "b")}, "restarted", "restarted during the run"),
        ({"foreign_pids": (4711,)}, "foreign", "4711"),
        ({"unproven": ("enable-flashinfer-allreduce-fusion",)}, "unproven", "not proven active"),
        ({"telemetry": gpu(throttled=("hw_thermal_slowdown", "gpu_idle"))}, "throttled", "hw_thermal_slowdown"),
        ({"telemetry": gpu(sm_mhz=345)}, "clocks", "345 MHz of 1980"),
        ({"telemetry": gpu(power_w=90)}, "power", "draws 500 W"),
    ],
)
def test_a_run_that_gives_no_number(changes, code, says):
    (problem,) = of_run(run(**changes), floor_w=500)
    assert problem.code == code
    assert says in problem.what
    assert problem.todo
    assert problem.fatal


def test_low_power_of_an_idle_gpu_says_nothing():
    assert of_run(run(telemetry=gpu(power_w=90, sm_mhz=345, utilisation=12)), floor_w=500) == []


def test_cache_hits_that_are_wanted_are_no_problem():
    assert of_run(run(cached_tokens=24000, cache_expected=True)) == []


def test_a_warm_up_with_a_measured_prompt_is_a_warning():
    (problem,) = of_run(run(own_warmup=True))
    assert (problem.code, problem.fatal) == ("warmup", False)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"gpu": "NVIDIA H100 x1"}, "different"),
        ({"model": "other"}, "different"),
        ({"prompts": 96}, "different"),
        ({"cached_tokens": 24000}, "cache-differs"),
        ({"telemetry": gpu(sm_mhz=1500)}, "clocks-differ"),
    ],
)
def test_arms_that_are_not_comparable(changes, code):
    assert codes(between([run(), run()], [run(**changes), run(**changes)])) == [code]


def test_repeated_prompts_of_one_seed_make_the_arms_unequal():
    """A second arm measured with the first one's prompts was up to 86 % faster for no other reason."""
    first, second = run(cached_tokens=0), run(cached_tokens=48 * 1000)
    assert "cache-differs" in codes(between([first], [second]))


def test_equal_arms_are_comparable():
    assert between([run(), run(seed=2)], [run(seed=3), run(seed=4)]) == []
