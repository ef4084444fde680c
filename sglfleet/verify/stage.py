"""The proof as the last step of a deploy: after the health gate, before a host's new release is accepted."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from sglfleet.verify.document import Document, HostProof
from validators.verdict import Status

if TYPE_CHECKING:
    from pyinfra.api.host import Host

    from validators.service import Service

SEEN = {Status.PROVEN: "proven", Status.CONTRADICTED: "CONTRADICTED", Status.NOT_PROVEN: "not proven"}


class Stage:
    """Proves hosts as a roll comes to them, and keeps what was found for the report of the run."""

    def __init__(
        self,
        hosts: Mapping[str, Host],
        services: Mapping[tuple[str, str], Service],
        say: Callable[[str], None],
        releases: Mapping[tuple[str, str], str] | None = None,
    ) -> None:
        """`services` and `releases` by (host, service): both may differ from host to host."""
        self.hosts, self.services, self.say, self.releases = hosts, services, say, releases or {}
        self.profiled: dict[str, str] = {}  # release -> host that was profiled; a profile now and then costs a server
        self.started = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        self.proofs: list[HostProof] = []

    def __call__(self, host: str, service: str) -> str:
        """Why the release that runs must not stay; "" where it may: proven, not proven, or only to be reported."""
        from sglfleet.verify.prove import prove

        spec = self.services[host, service]
        release = self.releases.get((host, service), f"{service} on {host}")
        first = self.profiled.setdefault(release, host)
        proof = prove(
            self.hosts[host], service, profile=spec.verify.profile and first == host,
            correctness=spec.verify.correctness, asked=dict(spec.args),
        )  # fmt: skip
        if spec.verify.profile and first != host:
            proof = replace(proof, gaps={**proof.gaps, "profile": f"{first} was profiled, which runs the same release"})
        self.proofs.append(proof)
        if proof.error:
            self.say(f"{host}: {service}: could not be proven: {proof.error}")
        if not proof.proofs:
            return ""
        for one in proof.proofs:
            self.say(f"{host}: {service}: {SEEN[one.status]}: {one.flag}: {one.reason}")
        wrong = [f"{one.flag}: {one.reason}" for one in proof.proofs if one.status is Status.CONTRADICTED]
        if proof.correctness:
            self.say(f"{host}: {service}: {SEEN[proof.correctness.status]}: output: {proof.correctness.reason}")
            if proof.correctness.status is Status.CONTRADICTED:
                wrong.append(f"output: {proof.correctness.reason}")
        if not wrong or spec.verify.on_contradicted != "rollback":
            return ""
        return f"contradicted after launch: {'; '.join(wrong)}"

    def statuses(self, host: str, service: str) -> Mapping[str, str]:
        """What was just proven of each flag there."""
        from sglfleet.verify import undertest

        found = [p for p in self.proofs if (p.host, p.service) == (host, service)]
        return undertest.statuses(found[-1].proofs) if found else {}

    def document(self, source: str) -> Document:
        """Everything that was proven in this run."""
        return Document(source, self.started, tuple(self.proofs))
