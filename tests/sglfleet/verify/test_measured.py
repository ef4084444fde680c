"""Measuring a real service: the real engine on a lab host, its own benchmark, and what is said of it.

A CPU shared with everybody else is a noisy thing to measure, so effects are asserted where they are several times the
noise, and where there is none only that none is claimed. The longer half of this file is part of `make test-full`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from lab.engine import Engine
from lab.fleet import Lab
from sglfleet.verify.runs import Run, load
from tests.lab.deploying import Project, pid, shown
from tests.lab.measuring import end, left_behind, project, service, sglfleet, start, wait_until

pytestmark = [pytest.mark.lab, pytest.mark.engine]
UNIT = "sglang-demo.service"
SLOW = {"max-running-requests": 1}  # of sixteen requests at once fifteen wait
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
    code, out, err = sglfleet(deployed, "bench", "inventory.py", "demo", "--repeats", "3", "--format", "json")
    document = json.loads(out)
    assert {p["code"] for p in document["problems"]} <= {"cache"}, out + err  # by chance two prompts began alike
    assert code == (1 if document["problems"] else 0), out + err
    assert len(document["runs"]) == 3 - len(document["problems"]) >= 1
    for run in document["runs"]:
        assert (run["completed"], run["output_tokens"], run["cached_tokens"]) == (32, 32 * 32, 0)
        assert run["metrics"]["output_throughput"] > 0
        assert run["metrics"]["median_ttft_ms"] > 0
        assert run["release"] == release(fleet)
        assert run["invocation"][0] == run["invocation"][1] != ""
        assert run["telemetry"]["power_limit_w"] == 700  # of the card that the host plays
    assert len({run["seed"] for run in document["runs"]}) == len(document["runs"])
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


def test_the_deploy_measured_its_canary(deployed: Project, fleet: Lab) -> None:
    """The first one: there was nothing to compare with, so nothing is claimed."""
    log = (deployed.folder / "log").read_text()
    assert re.search("h1: demo: measured, [123] valid runs; nothing of its kind to compare with", log), log[-3000:]
    (report,) = deployed.folder.glob("reports/deploy-*.json")
    (effect,) = json.loads(report.read_text())["effects"]
    assert (effect["host"], effect["effect"], effect["slower"]) == ("h1", "not compared", "")
    assert 1 <= effect["runs"] <= 3
    (page,) = deployed.folder.glob("reports/proof-*.html")
    assert "<figcaption>output tokens/s by concurrency</figcaption>" in page.read_text()


@pytest.mark.full
def test_a_slower_release_goes_back(deployed: Project, fleet: Lab, engine: Engine) -> None:
    """It starts, is healthy and proven; only the benchmark of the canary says what is wrong with it."""
    before = release(fleet)
    deployed.write(service(engine, SLOW, on_slower="rollback"))
    try:
        run = deployed.deploy(timeout=1800)
    finally:
        deployed.write(deployed.service)
    assert run.code != 0, run.text[-4000:]
    assert run.report["exit"] == 4
    (effect,) = run.report["effects"]
    assert (effect["effect"], effect["policy"]) == ("slower", "rollback"), effect
    assert f"h1: slower than {before}" in run.report["rolls"][0]["closed"]
    assert run.report["rolls"][0]["rolled_back"]["h1"]["result"] == "accepted"
    assert release(fleet) == before
    (taken,) = (deployed.folder / "results" / "taken-back").rglob("*.jsonl")
    assert {r.release for r in load([taken])} == {effect["release"]}
    assert effect["release"] not in {r.release for r in load((deployed.folder / "results").glob("*/demo-*.jsonl"))}


@pytest.mark.full
def test_a_flag_that_slows_also_after_an_interruption(deployed: Project, fleet: Lab) -> None:
    """Killed in the middle of a run, it goes on with what is missing; afterwards the service is as it was."""
    before = release(fleet)
    flags = [word for flag in ("max-running-requests=1", INERT[0]) for word in ("--flag", flag)]
    words = ("ablate", "inventory.py", "demo", *flags, "--pairs", "3", "--format", "json")
    first = start(deployed, *words)
    try:
        wait_until(lambda: len(kept(deployed)) >= 2 or first.poll() is not None, "two runs were kept")
        assert first.poll() is None, first.communicate()
        wait_until(lambda: "sglfleet-bench-" in left_behind(fleet), "the next run was begun")
    finally:
        end(first)
    assert len(kept(deployed)) == 2
    answers = ablated(deployed, *words)
    after = kept(deployed)
    assert len({(r.arm, r.block, r.concurrency) for r in after}) == len(after) == 6, "no run was made twice"
    slow, inert = answers["max-running-requests"], answers[INERT[0].partition("=")[0]]
    assert slow["effect"] == "slower", slow
    assert slow["comparison"]["problems"] == [], "the flag was proven"
    assert (inert["effect"], inert["outcome"], inert["pairs"]) == ("not measured", "inert", 0)
    assert release(fleet) == before
    assert left_behind(fleet) == ""
    assert not list((deployed.folder / "results").glob("ablations/*.state"))


@pytest.mark.full
def test_a_flag_that_does_nothing_here_has_no_effect(deployed: Project, fleet: Lab) -> None:
    (answer,) = ablated(
        deployed, "ablate", "inventory.py", "demo", "--flag", IDLE, "--pairs", "2", "--format", "json"
    ).values()
    assert answer["effect"] in ("no effect", "inconclusive"), answer
    assert answer["comparison"]["effects"], "it was measured"
    (problem,) = answer["comparison"]["problems"]
    assert "nothing it does can be seen from outside" in problem["what"]


def kept(project: Project) -> list[Run]:
    return load((project.folder / "results").glob("ablations/*.jsonl"))


def ablated(project: Project, *words: str) -> dict[str, Any]:
    """Flag -> answer."""
    code, out, err = sglfleet(project, *words, timeout=3600)
    (project.folder / "ablation.json").write_text(out)
    assert code == 0, out + err
    return {one["flag"]: one for one in json.loads(out)["flags"]}
