"""Measuring a real service: the real engine on a lab host, its own benchmark, and what is said of it.

A CPU shared with everybody else is a noisy thing to measure, so effects are asserted where they are several times the
noise, and where there is none only that none is claimed. The longer half of this file is part of `make test-full`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest

from lab.engine import Engine
from lab.fleet import Lab
from sglfleet.verify.runs import load
from tests.lab.deploying import Project, pid, shown
from tests.lab.measuring import end, left_behind, project, sglfleet, start, wait_until

pytestmark = [pytest.mark.lab, pytest.mark.engine]
UNIT = "sglang-demo.service"
SLOW = {"max-running-requests": 1}  # at four requests at once three of them wait
INERT = ("flashinfer-allreduce-fusion-backend=auto", "disable-custom-all-reduce")  # nothing to reduce on one card
IDLE = "schedule-conservativeness=1.3"  # acts where memory is short, and here it never is


@pytest.fixture(scope="module")
def fleet(make_lab: Callable[..., Lab]) -> Lab:
    return make_lab(1)


@pytest.fixture(scope="module")
def deployed(fleet: Lab, engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    own = project(tmp_path_factory.mktemp("own") / "project", fleet, engine)
    run = own.deploy(timeout=1400)
    (own.folder / "log").write_text(run.text)
    assert run.code == 0, run.text[-4000:]
    yield own
    shown(fleet, "h1", f"systemctl stop {UNIT}")


def release(fleet: Lab) -> str:
    return shown(fleet, "h1", "readlink -f /var/lib/sglfleet/demo/current").rpartition("/")[2]


def test_every_run_is_valid_and_kept(deployed: Project, fleet: Lab) -> None:
    code, out, err = sglfleet(deployed, "bench", "inventory.py", "demo", "--repeats", "2", "--format", "json")
    assert code == 0, out + err
    document = json.loads(out)
    assert document["problems"] == []
    assert len(document["runs"]) == 2
    for run in document["runs"]:
        assert (run["completed"], run["output_tokens"], run["cached_tokens"]) == (24, 24 * 48, 0)
        assert run["metrics"]["output_throughput"] > 0
        assert run["metrics"]["median_ttft_ms"] > 0
        assert run["release"] == release(fleet)
        assert run["invocation"][0] == run["invocation"][1] != ""
        assert run["telemetry"]["power_limit_w"] == 700  # of the card that the host plays
    assert document["runs"][0]["seed"] != document["runs"][1]["seed"]
    kept = load((deployed.folder / "results").rglob("*.jsonl"))
    assert {r.seed for r in kept} >= {run["seed"] for run in document["runs"]}
    assert left_behind(fleet) == ""


def test_flags_that_do_nothing_cost_no_run(deployed: Project, fleet: Lab) -> None:
    before = pid(fleet, "h1")
    flags = [word for flag in INERT for word in ("--flag", flag)]
    code, out, err = sglfleet(deployed, "ablate", "inventory.py", "demo", *flags)
    assert code == 0, out + err
    assert "flashinfer-allreduce-fusion-backend: not measured: inert: With one tensor-parallel rank" in out
    assert "0 starts" in err
    assert pid(fleet, "h1") == before


@pytest.mark.full
def test_each_flags_own_effect_also_after_an_interruption(deployed: Project, fleet: Lab) -> None:
    """Killed in the middle of a run, it goes on with what is missing; afterwards the service is as it was."""
    before = release(fleet)
    flags = [word for flag in ("max-running-requests=1", IDLE, INERT[0]) for word in ("--flag", flag)]
    words = ("ablate", "inventory.py", "demo", *flags, "--pairs", "3", "--format", "json")
    first = start(deployed, *words)
    try:
        kept = lambda: load((deployed.folder / "results").glob("ablations/*.jsonl"))  # noqa: E731
        wait_until(lambda: len(kept()) >= 2 or first.poll() is not None, "two runs were kept")
        assert first.poll() is None, first.communicate()
        wait_until(lambda: "sglfleet-bench-" in left_behind(fleet), "the next run was begun")
    finally:
        end(first)
    done = {(r.arm, r.block) for r in kept()}
    assert len(done) == 2
    code, out, err = sglfleet(deployed, *words, timeout=3600)
    (deployed.folder / "ablation.json").write_text(out)
    assert code == 0, out + err
    after = kept()
    assert len({(r.arm, r.block, r.concurrency) for r in after}) == len(after) == 12, "no run was made twice"
    answers = {one["flag"]: one for one in json.loads(out)["flags"]}
    assert answers["max-running-requests"]["effect"] == "slower"
    assert answers["schedule-conservativeness"]["effect"] in ("no effect", "inconclusive")
    assert answers["flashinfer-allreduce-fusion-backend"]["effect"] == "not measured"
    assert "inert" in answers["flashinfer-allreduce-fusion-backend"]["skipped"]
    for one in answers.values():
        if one["comparison"]:
            assert one["comparison"]["problems"] == []
    assert release(fleet) == before
    assert left_behind(fleet) == ""
    assert not list((deployed.folder / "results").glob("ablations/*.state"))
