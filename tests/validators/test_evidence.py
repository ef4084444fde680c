"""Evidence opens: at that file and line of that release stands the condition that is quoted."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

import pytest

from tests.validators.asking import ask, rows, verdict
from tests.validators.opening import stands
from validators.knowledge import load_sglang, releases
from validators.rules import resolved
from validators.rules.context import checks, place
from validators.verdict import Evidence

ROWS = rows("evidence")


@pytest.mark.parametrize(
    "row", ROWS, ids=[f"{row['case']['sglang']}-{row['flag']}-{row['case']['sm']}" for row in ROWS]
)
def test_the_place_is_the_one_that_was_opened(row: dict[str, Any]) -> None:
    """The table was made with the wheels open: place and a digest of the condition as it stands there."""
    evidence = verdict(ask(**row["case"]), row["flag"]).evidence[0]
    digest = hashlib.sha256(evidence.condition.encode()).hexdigest()[:16]
    found = (evidence.artifact, evidence.file, evidence.line, digest)
    assert found == (row["artifact"], row["file"], row["line"], row["condition"])


def test_a_wrong_line_does_not_stand(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(
        "x = 1\nif major == 9 and (  # comment\n    minor > 0\n):\n    pass\n", encoding="utf-8"
    )
    right = Evidence("a", "a.py", "", 2, "major == 9 and ( minor > 0 )")
    assert stands(tmp_path, right)
    assert not stands(tmp_path, Evidence("a", "a.py", "", 1, right.condition))
    assert not stands(tmp_path, Evidence("a", "b.py", "", 2, right.condition))
    assert not stands(tmp_path, Evidence("a", "a.py", "", 2, "major == 10"))


def everything(release: str) -> list[Evidence]:
    """All places of the gate's conditions in a release."""
    known = load_sglang(release)
    stops = [row for rows in checks(known).values() for row in rows]
    kept = [*stops, *known.gates.get("tests", ()), *known.gates.get("switches", ())]
    steps = resolved.table(known).stops.values()
    resolving = [step.proof for found in steps for step in found]
    return [*(place(known, row) for row in kept if not row.get("missing")), *resolving]


@pytest.mark.skipif("SGLFLEET_TREES" not in os.environ, reason="SGLFLEET_TREES: folder of unpacked artifacts, by name")
@pytest.mark.full
def test_all_evidence_of_unpacked_releases() -> None:
    trees = Path(os.environ["SGLFLEET_TREES"])
    opened = 0
    for release in releases():
        folder = trees / f"sglang-{release}"
        for evidence in everything(release) if folder.is_dir() else ():
            assert stands(folder, evidence), evidence
            opened += 1
    assert opened


@pytest.mark.engine
def test_all_evidence_of_the_installed_engine(engine: Any) -> None:
    site = next(Path(engine.venv).glob("lib/python3*/site-packages"))
    found = everything("0.5.23")
    assert len(found) > 100
    assert [evidence for evidence in found if not stands(site, evidence)] == []
