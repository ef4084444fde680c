"""A release of a small service, for tests that look at what is rendered."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sglfleet import engine as engines
from sglfleet.render import Release, render
from sglfleet.secrets import Hidden
from validators.facts import Gpu, HostFacts
from validators.load import load
from validators.service import Service
from validators.verdict import Decision, Judgement, Outcome, Overall, Verdict

FACTS = HostFacts(
    host="h1",
    gpus=tuple(Gpu(index=i, name="NVIDIA H200", sm="9.0") for i in range(8)),
    driver="580.159.04",
)
TEXT = """
service: {name}
engine: {{sglang: {sglang}, venv: /opt/engine}}
model: /models/tiny
gpus: [0, 1]
args: {{port: 30000, host: 0.0.0.0}}
rollout: {{start_timeout: 10m, drain_timeout: 2m}}
"""


def service(name: str = "tiny", sglang: str = "0.5.23", **changes: Any) -> Service:
    """A service as read from a file; `changes` replace fields after that, unchecked."""
    found = load(TEXT.format(name=name, sglang=sglang), "tiny.yaml").service
    assert found is not None
    return found.model_copy(update=changes)


def release(
    argv: tuple[str, ...] = ("--port", "30000", "--host", "0.0.0.0"),
    *,
    of: Service | None = None,
    facts: HostFacts = FACTS,
    values: Mapping[str, Hidden] | None = None,
    verdicts: tuple[Verdict, ...] = (),
    **more: Any,
) -> Release:
    """It, rendered."""
    spec = of or service()
    judgement = Judgement(Overall.ACCEPT, verdicts, argv, dict(spec.args))
    return render(
        spec,
        facts,
        judgement,
        engine=engines.plan(spec.engine, None),
        argv=argv,
        packages={"sglang": spec.engine.sglang},
        values=values or {},
        interpreter=more.pop("interpreter", "/usr/bin/python3.11"),
        **more,
    )


def dropped(reason: str) -> Verdict:
    """A verdict that ends up as a comment in the unit."""
    return Verdict("enable-x", True, Outcome.INERT, Decision.DROP, reason, "rule")
