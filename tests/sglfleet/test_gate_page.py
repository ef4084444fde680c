"""The examples of docs/gate.md are what the commands print."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.sglfleet.test_inventory import project
from tests.validators.test_policy import PLAIN

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "gate.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```console\n\$ (.+)\n((?:.*\n)*?)```", PAGE)
(SERVICE,) = re.findall(
    r"```yaml\n(service: qwen3-235b\n(?:.*\n)*?)```", PAGE
)  # what the page tells its reader to save


@pytest.mark.parametrize(("command", "shown"), EXAMPLES, ids=[command.split()[1] for command, _ in EXAMPLES])
def test_example(command: str, shown: str, tmp_path: Path) -> None:
    root = project(tmp_path, {"group_data/services/qwen3-235b.yaml": SERVICE})
    given = re.fullmatch(r"echo '(.*)' \| (.*)", command)
    words = shlex.split(given[2] if given else command)
    done = subprocess.run(
        [sys.executable, "-m", *words],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "120"},
        input=given[1] if given else None,
        capture_output=True,
        text=True,
    )
    said = [line.rstrip() for line in done.stdout.splitlines()]
    at = 0
    for line in shown.splitlines():
        if line.strip() == "…":
            continue
        start, cut, _ = line.rstrip().partition("…")
        at = next((i + 1 for i in range(at, len(said)) if (said[i].startswith(start) if cut else said[i] == start)), -1)
        assert at > 0, f"{line!r} is not printed:\n{done.stdout}{done.stderr}"


def test_every_command_of_the_gate_has_an_example() -> None:
    assert [command.split()[-1] if "echo" in command else command.split()[1] for command, _ in EXAMPLES] == [
        "lint", "import", "explain", "matrix", "upgrade", "--brief",
    ]  # fmt: skip


def test_the_table_of_decisions_is_the_policy() -> None:
    rows = re.findall(r"(?m)^\| (`[a-z`, ]+`) \| (.+) \| (.+) \| (.+) \| (.+) \|$", PAGE)
    told = {name: cells for names, *cells in rows for name in re.findall(r"`(\w+)`", names)}
    assert told.keys() == PLAIN.keys()
    for outcome, decisions in PLAIN.items():
        for decision, cell in zip(decisions, told[outcome], strict=True):
            assert decision in cell, (outcome, decision, cell)
