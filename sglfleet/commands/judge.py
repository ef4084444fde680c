"""`sglfleet judge`: the bare gate for tests and scripts. JSON lines in, JSON lines out, in the same order."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import IO, Any

import click

from sglfleet.exits import Exit

_REMEMBERED = 1000  # answers; each is a few kB


@click.command()
@click.option("--cases", "file", required=True, type=click.File("rb"), help="JSON lines; `-` reads standard input.")
@click.option("--brief", is_flag=True, help="Leave out evidence, gates and expectations.")
def command(file: IO[bytes], brief: bool) -> None:
    """Judge every case of a file: one JSON object a line in, one a line out.

    A line that cannot be read is named on standard error and answered by an object with `error`; the others are
    judged all the same. Exit code 2 then, else 0: a refusal is an answer here, not a failure.
    """
    import gc

    gc.disable()  # ten thousand judgements are made of small objects without cycles
    bad = 0
    out = sys.stdout
    for number, answer in _answers(file):
        if "error" in answer:
            bad += 1
            for message in answer["error"]:
                click.echo(f"{getattr(file, 'name', '-')}:{number}: {message}", err=True)
        if brief:
            for verdict in answer.get("verdicts", ()):
                for key in ("evidence", "expects", "gates"):
                    verdict.pop(key, None)
        out.write(json.dumps(answer, ensure_ascii=False, separators=(",", ":")) + "\n")
    out.flush()
    if bad:
        click.echo(f"{bad} line{'s' * (bad > 1)} could not be read: correct them and run again", err=True)
        raise SystemExit(Exit.BAD_INPUT)


def _answers(file: IO[bytes]) -> Iterator[tuple[int, dict[str, Any]]]:
    from validators.case import Case, CaseError
    from validators.judge import judge
    from validators.knowledge import BrokenKnowledgeError

    today = datetime.now(tz=UTC).date()
    told: dict[str, dict[str, Any]] = {}  # fleets ask the same of many hosts: question without its id -> answer
    for number, line in enumerate(file, 1):
        if not line.strip():
            continue
        raw: Any = None
        try:
            raw = json.loads(line)
            case = Case.from_json(raw, today=today)
            question = json.dumps({**raw, "id": ""})
            if question not in told:
                if len(told) == _REMEMBERED:
                    told.clear()
                told[question] = judge(case).to_json()
            yield number, {**told[question], "id": case.id}
        except CaseError as error:
            yield number, _error(raw, error.messages)
        except BrokenKnowledgeError as error:
            yield number, _error(raw, [str(error)])
        except (ValueError, RecursionError) as error:
            yield number, _error(raw, [f"not a line of JSON: {error}"])


def _error(raw: object, messages: list[str]) -> dict[str, Any]:
    name = raw.get("id") if isinstance(raw, dict) else None
    return {"schema_version": 1, "id": name if isinstance(name, str) else "", "error": messages}
