"""From what hosts say to what changes on them, without a host."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from sglfleet import facts, planning, simulate
from sglfleet.intent import intents
from sglfleet.inventory import Host, Inventory, Layer
from sglfleet.planning import Plan
from sglfleet.secrets import Hidden
from validators.flagtypes import flag_types
from validators.state import Collected

TODAY = date(2026, 6, 1)
MODEL = "/models/tiny"
SERVICE = f"""
service: tiny
engine: {{sglang: 0.5.23}}
model: {MODEL}
gpus: [0]
args: {{port: 30000}}
"""
UNIT = {
    "Id": "sglang-tiny.service",
    "LoadState": "loaded",
    "ActiveState": "active",
    "SubState": "running",
    "Result": "success",
    "UnitFileState": "enabled",
    "FragmentPath": "/etc/systemd/system/sglang-tiny.service",
    "MainPID": "42",
    "InvocationID": "1",
    "NRestarts": "0",
    "ActiveEnterTimestamp": "",
}


def host(name: str, **data: Any) -> Host:
    return Host(name, ("gpu",), (Layer("group_data/gpu.py", {"services": ["tiny"], **data}),))


def answer(name: str, **changes: Any) -> Collected:
    """What a healthy H200 says; `changes` replace parts of the raw answer."""
    raw = {**json.loads(simulate.answer("h200 x1", models=(MODEL,))), **changes}
    return facts.parse(name, [json.dumps(raw)])


def plan(
    tmp_path: Path,
    answers: dict[str, Collected],
    service: str = SERVICE,
    values: dict[str, Any] | None = None,
    **data: Any,
) -> Plan:
    folder = tmp_path / "group_data" / "services"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tiny.yaml").write_text(service)
    inventory = Inventory({name: host(name, **data) for name in answers}, {"gpu": tuple(answers)})
    found = intents(inventory, tmp_path, flag_types)
    assert found.problems == ()
    return planning.make(
        inventory, found, answers, {"tiny": values or {}}, name="inventory.py", root=tmp_path, today=TODAY
    )


def running(release: str, *, file: str | None = None, **changes: Any) -> dict[str, Any]:
    """Parts of an answer of a host where a release runs."""
    unit = {**UNIT, "release": release, "file_release": file or release}
    own = {"current": release, "releases": [release], "lock": None, "turn": None, **changes}
    return {"units": {"sglang-tiny.service": unit}, "own": {"tiny": own}}


@pytest.fixture
def release(tmp_path: Path) -> str:
    return plan(tmp_path, {"h1": answer("h1")}).jobs[0].release.id


def test_first_deploy_installs_and_changes(tmp_path: Path) -> None:
    [job] = plan(tmp_path, {"h1": answer("h1")}).jobs
    assert (job.why, job.install, job.running, job.previous) == ("first deploy", True, None, None)
    assert job.release.engine.venv.startswith("/opt/sglfleet/engines/0.5.23-")


def test_what_runs_already_is_left_alone(tmp_path: Path, release: str) -> None:
    [job] = plan(tmp_path, {"h1": answer("h1", **running(release))}).jobs
    assert (job.why, job.running, job.previous) == ("", release, release)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"file": "0123456789ab"}, "runs {0}, but the files are of 0123456789ab"),
        ({"current": "0123456789ab"}, "runs {0}, but the files are of {0}"),
        ({"edited": True}, "runs {0}, but its unit was changed by hand"),
        ({"turn": "run=1\nphase=started\n"}, "runs {0}, but the roll that brought it was interrupted"),
        ({"turn": "run=1\nphase=accepted\n"}, ""),
    ],
)
def test_the_process_counts_and_the_files_are_put_right(
    tmp_path: Path, release: str, changes: dict[str, Any], why: str
) -> None:
    [job] = plan(tmp_path, {"h1": answer("h1", **running(release, **changes))}).jobs
    assert job.why == why.format(release)


def test_another_release_runs(tmp_path: Path, release: str) -> None:
    # the files are right, the process is not: it is the process that counts
    state = running("0123456789ab", file=release, current=release)
    [job] = plan(tmp_path, {"h1": answer("h1", **state)}).jobs
    assert job.why == f"0123456789ab -> {release}"


def test_not_running(tmp_path: Path, release: str) -> None:
    state = running(release)
    state["units"]["sglang-tiny.service"].update(ActiveState="failed", SubState="failed")
    [job] = plan(tmp_path, {"h1": answer("h1", **state)}).jobs
    assert job.why == "not running (failed/failed)"


def test_hosts_of_one_kind_have_one_release_and_others_another(tmp_path: Path) -> None:
    other = json.loads(simulate.answer("b200 x8", models=(MODEL,)))
    found = plan(tmp_path, {"h1": answer("h1"), "h2": answer("h2"), "h3": answer("h3", **other)})
    one, two, three = (job.release.id for job in found.jobs)
    assert one == two != three


def test_no_gpu_facts_refuse_everything(tmp_path: Path) -> None:
    bad = answer("h2", smi={"path": None})
    found = plan(tmp_path, {"h1": answer("h1"), "h2": bad})
    assert found.refused
    assert found.jobs == ()
    assert any(cause.level == "error" and cause.hosts == ("h2",) for cause in found.report.causes)


def test_a_service_that_left_is_named(tmp_path: Path) -> None:
    state = {"own": {"old": {"current": "0123456789ab", "releases": ["0123456789ab"], "lock": None}}}
    assert plan(tmp_path, {"h1": answer("h1", **state)}).leftovers == {"h1": ("old",)}


def test_a_key_is_found_by_those_who_ask_the_server(tmp_path: Path) -> None:
    [job] = plan(tmp_path, {"h1": answer("h1")}, values={"api-key": Hidden(b"value")}).jobs
    assert job.key_file == f"/etc/sglfleet/tiny/{job.release.id}/api-key"


def test_what_a_lab_needs_is_laid_over_the_judged_command_line(tmp_path: Path) -> None:
    launch = {"*": {"args": {"device": "cpu", "attention-backend": "torch_native"}, "env": {"OMP_NUM_THREADS": "1"}}}
    [job] = plan(tmp_path, {"h1": answer("h1")}, lab=True, launch_override=launch).jobs
    assert "--device cpu" in " ".join(job.release.argv)
    assert "device" not in job.judgement.args
    assert job.notes[0].startswith("stand-in of the lab, after judging: attention-backend=torch_native, device=cpu")
    assert f"# {job.notes[0]}" in job.release.unit
    assert job.release.manifest["stand_in"] == list(job.notes)


def test_ranks_of_a_group(tmp_path: Path) -> None:
    service = SERVICE.replace("args: {port: 30000}", "args: {port: 30000, tp-size: 2}\nnodes: {group: gpu}")
    found = plan(tmp_path, {"h1": answer("h1"), "h2": answer("h2")}, service, ssh_hostname="10.0.0.1")
    lines = [" ".join(job.release.argv) for job in found.jobs]
    assert [line[line.index("--nnodes") :] for line in lines] == [
        "--nnodes 2 --node-rank 0 --dist-init-addr 10.0.0.1:20000",
        "--nnodes 2 --node-rank 1 --dist-init-addr 10.0.0.1:20000",
    ]
