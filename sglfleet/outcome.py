"""What became of a run: shown while it goes on, as the last line, and as JSON in reports/."""

from __future__ import annotations

import atexit
import json
import os
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sglfleet.exits import Exit

if TYPE_CHECKING:
    from sglfleet.planning import Plan
    from sglfleet.roll.report import Report as RollReport
    from sglfleet.verify.after import Effect
    from sglfleet.verify.document import Document

SCHEMA_VERSION = 1


@dataclass
class Outcome:
    """Collects, and is written at the very end, however pyinfra ends."""

    root: Path
    inventory: str
    began: datetime
    plan: Plan | None = None
    problems: list[str] = field(default_factory=list)
    failures: dict[str, str] = field(default_factory=dict)  # host -> reason
    results: dict[tuple[str, str], str] = field(default_factory=dict)  # (host, service) -> what became of it
    codes: set[Exit] = field(default_factory=set)
    extra: dict[str, Any] = field(default_factory=dict)  # further stages put their JSON here
    pid: int = field(default_factory=os.getpid)

    def say(self, text: str) -> None:
        click.echo(text, err=True)

    def fail(self, host: str, reason: str, detail: str = "") -> None:
        """A host drops out."""
        self.failures.setdefault(host, reason)
        self.codes.add(Exit.HOST_FAILED)
        if detail:
            self.extra.setdefault("details", {})[host] = detail.splitlines()[-40:]

    def rolled(self, report: RollReport) -> None:
        """One service's roll."""
        for host, one in report.outcomes.items():
            self.results[host, report.service] = one.result
        for host, reason in report.failures.items():
            self.failures.setdefault(host, f"{report.service}: {reason}")
        self.problems += [f"{report.service}: {line}" for line in report.refused]
        self.codes.add(report.exit)
        self.extra.setdefault("rolls", []).append(report.as_json())

    def stop(self, kind: type[Any], lines: list[str], code: Exit) -> Any:
        """The exception that ends the run; everything wrong is in it."""
        self.codes.add(code)
        self.problems = lines
        return kind("\n".join(["", *lines]) if lines else "", code)

    def planned(self, plan: Plan) -> None:
        """Show what was found and what will be done."""
        from sglfleet.report import console

        self.plan = plan
        text = console.render(plan.report).rstrip("\n").rpartition("\n")[0].rstrip("\n")
        self.say(f"\n{text}\n")
        for line in plan.remarks:
            self.say(click.style("note: ", fg="yellow") + line)
        for host, names in plan.leftovers.items():
            for name in names:
                self.say(
                    click.style("note: ", fg="yellow") + f"{host}: sglang-{name}.service left the configuration and is"
                    " still there: remove it with `--data remove_leftovers=yes`"
                )
        for job in plan.jobs:
            word = job.why or f"runs {job.release.id}, nothing to do"
            self.say(f"  {job.host}  {job.service.service}  {word}")
            for note in job.notes if job.why else ():
                self.say(f"      {note}")
        self.say("")

    def proven(self, document: Document, effects: tuple[Effect, ...] = ()) -> None:
        """What was proven and measured on the changed hosts; kept beside the report, as a page too."""
        from sglfleet.report.effects import figures
        from sglfleet.verify.showing import keep

        self.extra["proof"] = document.to_json()
        charts: tuple[str, ...] = ()
        if effects:
            self.extra["effects"] = [effect.to_json() for effect in effects]
            charts = tuple(
                figure for e in effects for figure in figures(e.service, e.comparison, e.earlier, e.measured.valid)
            )
        self.codes.add(document.exit(strict=False))
        try:
            self.say(f"proof: {keep(document, str(self.root / 'reports'), charts).with_suffix('.html')}")
        except OSError as e:
            self.say(f"the proof could not be written: {e.strerror}")

    @property
    def exit(self) -> Exit:
        return Exit.worst(self.codes)

    def as_json(self) -> dict[str, Any]:
        """`schemas/deploy.json`."""
        from sglfleet.report import json as report_json

        jobs = self.plan.jobs if self.plan else ()
        return {
            "schema_version": SCHEMA_VERSION,
            "inventory": self.inventory,
            "began": self.began.isoformat(timespec="seconds"),
            "ended": datetime.now(UTC).isoformat(timespec="seconds"),
            "exit": int(self.exit),
            "problems": self.problems,
            "check": report_json.plain(self.plan.report) if self.plan else None,
            "remarks": list(self.plan.remarks) if self.plan else [],
            "leftovers": {h: list(n) for h, n in self.plan.leftovers.items()} if self.plan else {},
            "failed": self.failures,
            "releases": [
                {
                    "host": job.host,
                    "service": job.service.service,
                    "release": job.release.id,
                    "running": job.running,
                    "why": job.why,
                    "result": self.results.get((job.host, job.service.service), "" if job.why else "unchanged"),
                }
                for job in jobs
            ],
            **self.extra,
        }

    def finish(self) -> None:
        """The last line, and the report. Called when the process ends."""
        if os.getpid() != self.pid:
            return
        path = self.root / "reports" / f"deploy-{self.began:%Y%m%dT%H%M%S}-{self.pid}.json"
        try:
            path.parent.mkdir(exist_ok=True)
            path.write_text(json.dumps(self.as_json(), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
            where = f"; report: {path.relative_to(self.root)}"
        except OSError as e:
            where = f"; no report: {e.strerror}"
        click.echo(f"sglfleet: exit {int(self.exit)}: {self._words()}{where}", err=True)

    def _words(self) -> str:
        if self.exit is Exit.BAD_INPUT:
            return "the input is not right, no host was changed"
        if self.exit is Exit.REFUSED and not self.results:
            return "refused, no host was changed"
        if self.failures:
            return "; ".join(f"{host}: {reason}" for host, reason in sorted(self.failures.items()))
        if self.exit is Exit.REFUSED:
            return "contradicted or stopped: see above"
        return "as it should be"


def start(root: Path, inventory: str) -> Outcome:
    """Of this run."""
    outcome = Outcome(root, inventory, datetime.now(UTC))
    atexit.register(outcome.finish)
    return outcome
