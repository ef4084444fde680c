"""A run as one offline HTML page: fleet, verdicts, findings, evidence. No script, nothing loaded from anywhere."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

STATUSES = ("contradicted", "not proven", "proven")


def render(document: Mapping[str, Any], charts: tuple[str, ...] = (), title: str = "") -> str:
    """The page of one document (`Document.to_json()`, or the same read back).

    `charts`: HTML of `sglfleet.report.effects`, trusted. `title`: instead of «Proof of …».
    """
    from markupsafe import Markup

    from sglfleet.report.proof_words import LEGEND, MARKS, headline, judged
    from sglfleet.templates import page

    hosts = list(document.get("hosts") or ())
    return page(
        "report.html.j2",
        document=document,
        title=title,
        hosts=hosts,
        flags=_matrix(hosts),
        statuses=STATUSES,
        headline=headline(hosts) if hosts else "",
        judged=judged,
        legend=LEGEND,
        marks=MARKS,
        charts=[Markup(chart) for chart in charts],  # noqa: S704 - made by sglfleet.report.effects, which escapes all names
    )


def _matrix(hosts: list[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """One row per service and flag over the whole fleet, worst first: who, and how each host ended."""
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    for host in hosts:
        for proof in host.get("proofs") or ():
            service, flag = str(host["service"]), str(proof["flag"])
            row = rows.setdefault((service, flag), {"service": service, "flag": flag, "hosts": {}})
            row["hosts"].setdefault(str(proof["status"]), []).append(host["host"])
    order = {status: index for index, status in enumerate(STATUSES)}
    return sorted(rows.values(), key=lambda r: (min(order[s] for s in r["hosts"]), r["service"], r["flag"]))
