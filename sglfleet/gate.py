"""One service on one host through the gate: the judge, and whether it fits the host. For `check` and for the deploy."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from functools import cache
from typing import TYPE_CHECKING, Any

from validators.case import Case, Waiver
from validators.fit import fit
from validators.verdict import Decision, Judgement, Overall

if TYPE_CHECKING:
    from sglfleet.intent import Placement
    from validators.facts import HostFacts
    from validators.service import Service


def judge(
    placement: Placement,
    facts: HostFacts,
    today: date,
    config: Mapping[str, Any] | None = None,
    *,
    ask: bool = False,
) -> Judgement:
    """All verdicts of one service on one host. `config`: the model's config.json, where it can be read.

    `ask`: the engine on the host will be asked before anything is switched, so a release of which nothing is known is
    not refused for that here.
    """
    from validators.judge import judge as judge_case

    service = placement.service
    nodes = max(1, len(placement.nodes))
    pins = _pins(service)
    unfit = fit(service, facts, nodes, pins)
    case = case_of(service, facts, today, config, nodes, pins)
    judgement = judge_case(case)
    if ask and judgement.decision is Overall.REFUSE:
        from sglfleet.verify import probe_judge

        judgement = probe_judge.pending(case) if probe_judge.unknown(judgement) else judgement
    if not unfit:
        return judgement
    said = {verdict.flag for verdict in unfit}
    rest = tuple(verdict for verdict in judgement.verdicts if verdict.flag not in said)
    verdicts = tuple(sorted((*unfit, *rest), key=lambda verdict: verdict.flag))
    refused = any(verdict.decision is Decision.REFUSE for verdict in verdicts)
    decision = Overall.REFUSE if refused else judgement.decision
    return Judgement(decision, verdicts, judgement.argv, judgement.args, judgement.id)


def case_of(
    service: Service,
    facts: HostFacts,
    today: date,
    config: Mapping[str, Any] | None = None,
    nodes: int = 1,
    pins: Mapping[str, str] | None = None,
) -> Case:
    """The question to the judge. What nobody could tell stays unset, which means unknown."""
    cards = [gpu for gpu in facts.gpus or () if gpu.index in service.gpus]
    given = service.args.get("nnodes")
    venv = service.engine.venv.rstrip("/")
    found = next((engine.packages for engine in facts.engines if engine.venv.rstrip("/") == venv), {})
    named = (config or {}).get("architectures")
    arch = named[0] if isinstance(named, list) and named and isinstance(named[0], str) else service.model.arch
    kind = (config or {}).get("model_type")
    return Case(
        sglang=service.engine.sglang,
        args=dict(service.args),
        sm=tuple(dict.fromkeys(gpu.sm for gpu in cards)),
        id=f"{facts.host or 'host'}/{service.service}",
        gpus=len(service.gpus),
        nnodes=given if isinstance(given, int) and not isinstance(given, bool) and given > nodes else nodes,
        interconnect=facts.interconnect if facts.interconnect in ("nvswitch", "nvlink", "pcie") else "",
        p2p=facts.p2p,
        rdma_nics=facts.rdma_nics,
        gpu_name=cards[0].name if cards else "",
        model_arch=arch or "",
        model_type=kind if isinstance(kind, str) else "",
        model_path=service.model.path,
        checkpoint=dict(config or {}),
        env=dict(service.env),
        packages={**(pins or {}), **found},
        driver=facts.driver or "",
        cuda=facts.cuda or "",
        on_unsupported=service.on_unsupported.default,
        policies=dict(service.on_unsupported.flags),
        allow=tuple(Waiver(waiver.flag, waiver.reason, waiver.until) for waiver in service.allow),
        today=today,
    )


def _pins(service: Service) -> dict[str, str]:
    engine = service.engine
    return dict(_known_pins(engine.sglang, tuple(sorted(engine.pins.items()))))


@cache
def _known_pins(release: str, pins: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
    from sglfleet.engine import plan
    from validators.knowledge import BrokenKnowledgeError, UnknownReleaseError, load_sglang
    from validators.service import EngineSpec

    try:
        known = load_sglang(release)
    except (UnknownReleaseError, BrokenKnowledgeError):
        known = None
    return tuple(plan(EngineSpec(sglang=release, pins=dict(pins)), known).packages.items())
