"""The collector as a pyinfra fact: `host.get_fact(HostReport, host=host.name, spec=wanted(placements))`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pyinfra.api.facts import FactBase
from typing_extensions import override

from sglfleet.facts import command, parse, unknown
from validators.state import Collected


class HostReport(FactBase[Collected]):
    """Everything about a host in one round trip; no default that could be mistaken for an answer."""

    def __init__(self) -> None:
        self.host = ""

    @override
    def command(self, host: str, spec: dict[str, Any]) -> str:
        self.host = host
        return command(spec)

    @staticmethod
    def default() -> Collected:
        return unknown("", "the host did not answer")

    @override
    def process(self, output: Iterable[str]) -> Collected:
        return parse(self.host, output)
