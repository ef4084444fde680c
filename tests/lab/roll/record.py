"""The last full run of the tests of rolls, as the table that docs/results/rolling.md ends with.

    pytest tests/lab/roll --junitxml=run.xml; python -m tests.lab.roll.record run.xml

replaces everything below the mark in that page: date, commit, machine, and each test with its result. Several reports
stand one below the other; `COMMIT=run.xml` where the run was not of the commit that is checked out.
"""

from __future__ import annotations

import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path

PAGE = Path(__file__).parents[3] / "docs" / "results" / "rolling.md"
MARK = "<!-- below: python -m tests.lab.roll.record -->"


def rows(suite: ET.Element) -> Iterator[tuple[str, str, str, float]]:
    """(file, test in words, result, seconds)."""
    for case in suite.iter("testcase"):
        bad = next((child.tag for child in case if child.tag in ("failure", "error", "skipped")), "passed")
        name = case.get("name", "").removeprefix("test_").replace("_", " ").replace("|", " or ")
        yield case.get("classname", "").rpartition(".")[2], name, bad, float(case.get("time") or 0)


def section(file: Path, commit: str) -> str:
    """Markdown of one report."""
    suites = list(ET.parse(file).getroot().iter("testsuite"))
    found = [row for suite in suites for row in rows(suite)]
    when = (suites[0].get("timestamp") or "?")[:16].replace("T", " ")
    passed = sum(row[2] == "passed" for row in found)
    seconds = sum(row[3] for row in found)
    text = [f"Begun {when}, commit {commit}, {os.cpu_count()} cores: {passed} of {len(found)} passed, {seconds:.0f} s."]
    text += ["", "| file | test | result | s |", "|---|---|---|---|"]
    text += [f"| {file} | {name} | {result} | {took:.0f} |" for file, name, result, took in found]
    return "\n".join(text) + "\n"


def main() -> None:
    now = subprocess.run(
        ["git", "log", "-1", "--format=%h"], capture_output=True, text=True, check=True, cwd=PAGE.parent
    ).stdout.strip()
    told = [word.rpartition("=") for word in sys.argv[1:]]
    sections = [section(Path(name), commit or now) for commit, _, name in told]
    head = PAGE.read_text(encoding="utf-8").partition(MARK)[0]
    PAGE.write_text(f"{head}{MARK}\n\n" + "\n".join(sections), encoding="utf-8")


if __name__ == "__main__":
    main()
