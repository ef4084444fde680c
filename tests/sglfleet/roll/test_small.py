"""Latch, lock, history, target, report and router, as far as they are pure."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from pathlib import Path

import pytest

from sglfleet import rollout, router
from sglfleet.exits import Exit
from sglfleet.roll import history, lock
from sglfleet.roll.latch import Latch, LatchClosedError
from sglfleet.roll.remote import parse
from sglfleet.roll.report import Report
from sglfleet.roll.state import Outcome
from sglfleet.roll.target import Target
from sglfleet.router import Worker


def test_the_latch_closes_once_and_stays() -> None:
    latch = Latch()
    latch.check()
    latch.close("h1: bad")
    latch.close("h2: bad too")
    assert (latch.reason, latch.later) == ("h1: bad", ["h2: bad too"])
    with pytest.raises(LatchClosedError, match="h1: bad"):
        latch.check()


def test_a_latch_closed_without_words_is_closed() -> None:
    latch = Latch()
    latch.close("")
    assert latch.closed


def test_this_process_is_not_dead_and_a_gone_one_is() -> None:
    mine = lock.origin()
    assert not lock.dead({"origin": mine})
    parts = mine.split("|")
    assert lock.dead({"origin": "|".join([*parts[:2], "999999999", parts[3]])})
    assert lock.dead({"origin": "|".join([*parts[:2], str(os.getppid()), "1"])}), "the number was given anew"
    assert lock.dead({"origin": "|".join([parts[0], "another boot", *parts[2:]])})


@pytest.mark.parametrize("origin", ["", "x", "elsewhere|b|1|2", "a|b|c|d"])
def test_what_cannot_be_known_is_not_dead(origin: str) -> None:
    assert not lock.dead({"origin": origin})


def test_the_second_operator_is_told_who_and_since_when() -> None:
    text = lock.describe("h1", {"who": "ann@ops", "since": "2026-11-29 10:00:00 UTC", "age": "12", "lease": "60"})
    assert "ann@ops since 2026-11-29 10:00:00 UTC" in text
    assert "in 48 s" in text


def test_a_line_of_history() -> None:
    row = json.loads(
        history.line(
            who="ann@ops",
            run="r",
            service="s",
            release="b",
            previous="a",
            result="accepted",
            seconds=1.26,
            now=datetime(2026, 11, 29, tzinfo=UTC),
        )
    )
    assert row["time"] == "2026-11-29T00:00:00Z"
    assert (row["release"], row["previous"], row["seconds"]) == ("b", "a", 1.3)
    assert "\n" not in history.line(who="a\nb", run="", service="", release="", previous="", result="")


def test_a_target_survives_the_host_and_newer_versions() -> None:
    target = Target("h1", "s", "r1", 30000, args={"tp-size": 4}, verdicts=("a: active, keep",))
    assert Target.load(target.dump()) == target
    more = {**json.loads(target.dump()), "of_the_future": 1}
    assert Target.load(json.dumps(more)) == target
    for wrong in ("{}", "[]", "no"):
        with pytest.raises(ValueError, match=r".*"):
            Target.load(wrong)


def test_a_probe_is_read() -> None:
    state = parse(
        "unit_ActiveState=active\nunit_MainPID=7\nrelease=r2\ncurrent=r2\nlock_run=x\nturn_phase=started\nturn_old=r1\n"
        'releases=r2 r1 \nhistory={"result": "accepted"}\nnoise\n'
    )
    assert state.active
    assert not state.settled
    assert state.good == "r1", "an open turn is not what one goes back to"
    assert state.releases == ("r2", "r1")
    assert state.history == {"result": "accepted"}
    assert parse("history={broken").history == {}
    assert parse("unit_ActiveState=activating\nrelease=r2").release == "", "what is loading does not run"


def test_reports_say_what_every_node_has() -> None:
    report = Report(
        "s", outcomes={"h1": Outcome("h1", "reverted", "r1", "the start failed", "start", ("known",), ("log",))}
    )
    report.outcomes["h2"] = Outcome("h2", "untouched", "r1")
    report.closed = "h1: start: the start failed"
    assert report.exit is Exit.HOST_FAILED
    text = "\n".join(report.lines())
    for part in ("h1: reverted, serves r1", "start: the start failed", "known: known", "| log", "h2: untouched"):
        assert part in text
    assert report.failures["h2"].startswith("not changed")
    report.out["h3"] = "no route"
    report.rolled_back["h1"] = report.outcomes["h1"]
    valid("rollout", json.loads(json.dumps(report.as_json())))
    assert Report("s", outcomes={"h1": Outcome("h1", "kept", "r1")}).exit is Exit.FINE


def valid(schema: str, document: object) -> None:
    import jsonschema

    text = (Path(__file__).parents[3] / "schemas" / f"{schema}.json").read_text(encoding="utf-8")
    jsonschema.validate(document, json.loads(text))


def test_rows_of_status() -> None:
    from sglfleet.commands.status import row

    state = parse(
        "unit_ActiveState=active\nunit_ActiveEnterTimestampMonotonic=40000000\nuptime=100\nrelease=r2\ncurrent=r1\n"
        "turn_phase=started\nunit_NRestarts=2\nlock_who=ann@ops\n"
    )
    one = row("h1", "s", state, "ok")
    assert one["since"] == "1 min 0 s"
    for part in ("runs r2, current is r1", "not finished (started)", "2 automatic restarts"):
        assert part in one["drift"]
    lost = {"host": "h2", "service": "s", "health": "unreachable", "reason": "no route"}
    valid("status", {"schema_version": 1, "inventory": "i", "rows": [one, lost]})


def test_which_release_one_goes_back_to() -> None:
    from sglfleet.roll import again

    known = {r: Target("h1", "s", r, 30000) for r in ("r1", "r2", "r3")}
    state = parse(
        "unit_ActiveState=active\nrelease=r3\ncurrent=r3\nreleases=r3 r2 r1 \nturn_phase=accepted\nturn_old=r1\n"
    )
    assert again.previous(state, known).release == "r1", "what the last turn came from"
    assert again.named("r2")(state, known).release == "r2"
    assert again.intended(state, known).release == "r3"
    with pytest.raises(again.NotPossibleError, match="ambiguous"):
        again.named("r")(state, known)
    with pytest.raises(again.NotPossibleError, match="kept are r3, r2, r1"):
        again.named("r9")(state, known)
    alone = parse("unit_ActiveState=active\nrelease=r3\nreleases=r3 \nturn_old=r1\n")
    with pytest.raises(again.NotPossibleError, match="no other release"):
        again.previous(alone, known)


@pytest.mark.parametrize("flag", ["--serial", "--no-wait"])
def test_pyinfra_modes_that_cannot_roll(flag: str) -> None:
    assert flag in rollout.mode_problem(["pyinfra", "-y", flag, "inv.py", "deploy.py"])
    assert rollout.mode_problem(["pyinfra", "-y", "inv.py", "deploy.py"]) == ""


def test_router_data_is_checked_all_at_once() -> None:
    with pytest.raises(ValueError, match="service") as error:
        router.parse({"port": "x", "policy": "best", "venv": "rel", "colour": 1}, "h1")
    assert len(str(error.value).splitlines()) == 5
    assert router.parse({"service": "s"}, "h1").port == 30000


def test_the_router_s_unit() -> None:
    text = router.unit_text(router.parse({"service": "s", "port": 30100, "venv": "/opt/r"}, "h1"))
    assert "$WORKERS" in text
    assert "/opt/r/bin/python" in text
    assert "30100" in text
    assert router.PAIR not in text
    assert router.PAIR in router.unit_text(router.parse({"service": "s"}, "h1"), pair=True)
    plain = [Worker("http://b:1"), Worker("http://a:1")]
    assert router.workers_line(plain) == 'WORKERS="--worker-urls http://a:1 http://b:1"\n'
    pair = [Worker("http://d:1", "decode"), Worker("http://p:1", "prefill", 8999)]
    assert router.workers_line(pair) == 'WORKERS="--prefill http://p:1 8999 --decode http://d:1"\n'
    assert router.workers_line([]) == 'WORKERS=""\n'
