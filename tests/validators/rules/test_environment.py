"""`SGL_*`: what a release renames counts as what it reads; what it neither reads nor renames is refused."""

from __future__ import annotations

import pytest

from validators.case import Case
from validators.judge import judge
from validators.knowledge import load_sglang
from validators.rules.environment import as_read


def refused(release: str, env: dict[str, str]) -> dict[str, str]:
    judged = judge(Case(sglang=release, args={}, sm=("9.0",), env=env))
    return {verdict.flag: verdict.reason for verdict in judged.verdicts if verdict.decision == "refuse"}


@pytest.mark.parametrize("release", ["0.5.3.post3", "0.5.9", "0.5.16", "0.5.17"])
def test_a_release_that_renames_reads_the_new_name(release):
    assert refused(release, {"SGL_ENABLE_JIT_DEEPGEMM": "0"}) == {}
    told = refused(release, {"SGL_NO_SUCH_THING": "1"})
    assert list(told) == ["SGL_NO_SUCH_THING"]  # under the name that was written, and under no other


@pytest.mark.parametrize("release", ["0.5.18", "0.5.20", "0.5.23"])
def test_a_later_release_does_not(release):
    told = refused(release, {"SGL_ENABLE_JIT_DEEPGEMM": "0"})
    assert "the last release that did is 0.5.17." in told["SGL_ENABLE_JIT_DEEPGEMM"]


def test_the_old_name_goes_over_the_new_one_as_in_the_engine():
    case = Case(sglang="0.5.9", args={}, env={"SGLANG_X": "1", "SGL_X": "0"})
    assert as_read(case, load_sglang("0.5.9")).env == {"SGLANG_X": "0", "SGL_X": "0"}
    assert as_read(case, load_sglang("0.5.23")) is case


def test_the_engine_ignores_it_and_not_the_parser():
    (one,) = judge(Case(sglang="0.5.23", args={}, sm=("9.0",), env={"SGL_NO_SUCH_THING": "1"})).verdicts
    assert [step.gate.value for step in one.steps] == ["engine"]
