"""`verify` over an inventory: every service that should run on a host, proven there."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from sglfleet.verify.document import Document, HostProof

if TYPE_CHECKING:
    from sglfleet.intent import Placement


def over_inventory(
    inventory: str, service: str | None = None, limit: tuple[str, ...] = (), *, profile: str = ""
) -> Document:
    """Prove on every host of an inventory. Raises InputError for what cannot be read or does not exist.

    `profile`: `first` host of each service, `every` host, or `none`; empty: `first` where the service asks for it.
    """
    from sglfleet.fleet import HostError, connect
    from sglfleet.placing import placed

    _, known, places = placed(inventory, service, limit)
    started = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    by_host: dict[str, list[Placement]] = {}
    for place in places:
        by_host.setdefault(place.host.name, []).append(place)
    first = {p.service.service: p.host.name for p in reversed(places)}
    with connect(known, by_host) as fleet:

        def chosen(host: str, place: Placement) -> bool:
            wanted = profile or ("first" if place.service.verify.profile else "none")
            return wanted == "every" or (wanted == "first" and first[place.service.service] == host)

        def work(host: Any) -> list[HostProof]:
            return [_one(host, p, chosen(host.name, p)) for p in by_host[host.name]]

        answers = fleet.each(work, progress="proving")
        failed = dict(fleet.failed)
    hosts: list[HostProof] = []
    for name, mine in by_host.items():
        answer = answers.get(name)
        if isinstance(answer, list):
            hosts += answer
        else:
            why = answer.reason if isinstance(answer, HostError) else failed.get(name, "not reached")
            hosts += [HostProof(name, p.service.service, error=why) for p in mine]
    return Document(inventory, started, tuple(hosts))


def _one(host: Any, place: Placement, profile: bool) -> HostProof:
    from sglfleet.verify.prove import prove

    service = place.service
    proof = prove(
        host,
        service.service,
        profile=profile,
        correctness=service.verify.correctness,
        asked=dict(service.args),
    )
    return replace(proof, host=host.name)
