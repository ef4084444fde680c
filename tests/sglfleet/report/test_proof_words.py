"""The one sentence that a person reads first."""

from __future__ import annotations

import pytest

from sglfleet.report.proof_words import headline, judged


def host(status="proven", error="", correctness=None, **flags):
    proofs = [{"flag": name.replace("_", "-"), "status": one} for name, one in flags.items()]
    return {"status": status, "error": error, "proofs": proofs, "correctness": correctness}


WRONG = {"status": "contradicted"}


@pytest.mark.parametrize(
    ("hosts", "said"),
    [
        ([], "No server was looked at."),
        ([host(a="proven", b="not proven")], "Nothing speaks against any flag; 1 of 2 were seen working."),
        ([host("contradicted", tp_size="contradicted")], "--tp-size does not do what it says on this server."),
        (
            [host("contradicted", a="contradicted", b="contradicted"), host(a="proven"), host(error="gone")],
            "2 flags (--a, --b) do not do what they say on 1 of 3 servers; 1 of 3 servers could not be looked at.",
        ),
        ([host("contradicted", correctness=WRONG), host()], "The output is wrong on 1 of 2 servers."),
        ([host("not proven", error="gone")], "This server could not be looked at."),
    ],
)
def test_headline(hosts, said):
    assert headline(hosts) == said


def test_judged():
    assert judged({"outcome": "inert", "decision": "drop"}) == "judged inert, left out"
    forced = {"outcome": "inert", "decision": "warn", "forced": True}
    assert judged(forced) == "judged inert, kept with a warning, against the judgement"
