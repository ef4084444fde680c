"""Log texts: which calls are taken, and whether their patterns find the line that a server really wrote."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sglfleet.extract.evaluate_modules import Modules
from sglfleet.extract.logs import logs, pattern
from sglfleet.extract.sites import Survey
from sglfleet.extract.tree import open_tree
from tests.sglfleet.extract import small_release

SOURCE = """
import logging
from sglang.srt.utils.common import is_sm100_supported
logger = logging.getLogger(__name__)

class Backend:
    def pick(self, name):
        if not is_sm100_supported():
            logger.warning(f"Attention backend {name} is not supported here, falling back to triton")
            logger.info("FlashInfer AllReduce Fusion enabled and workspace initialized: backend=%s", name)
        logger.debug("attention backend is used")
        logger.info("unrelated")
        print("Attention backend is disabled")
"""


@pytest.fixture
def survey(tmp_path: Path) -> Survey:
    root = small_release.write(tmp_path)
    (root / "sglang/srt/server_args.py").write_text(SOURCE)
    return Survey(Modules(open_tree(root, "sglang", "0.0.1")))


def test_what_announces_or_refuses_is_kept(survey: Survey) -> None:
    rows = logs(survey)["sglang/srt/server_args.py"]
    assert [row[:4] for row in rows] == [
        ["attention", "WARNING", 9, "Backend.pick"],
        ["allreduce-fusion", "INFO", 10, "Backend.pick"],
    ]


@pytest.mark.parametrize(
    ("text", "line", "found"),
    [
        ("backend {} is off", "[2026-01-01] backend trtllm_mha is off", True),
        ("size (1.5) {}", "size (1.5) 3", True),
        ("size (1.5) {}", "size (125) 3", False),
        ("enabled: backend={}", "enabled: backend=", True),
    ],
)
def test_patterns(text: str, line: str, found: bool) -> None:
    assert bool(re.search(pattern(text), line)) is found
