"""The chain's data is sound everywhere; the chain itself runs where there is a card and the engine."""

from __future__ import annotations

import gzip
import json
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from sglfleet.verify import ship
from tests.gpu import scenarios

HERE = Path(__file__).resolve().parent


@pytest.mark.parametrize("which", sorted(scenarios.ALL))
def test_scenarios_are_sound(which):
    mine = scenarios.ALL[which]
    names = [s.name for s in mine]
    assert len(set(names)) == len(names)
    assert {arm for one in scenarios.BENCH[which] for arm in one.arms} <= set(names)
    for s in mine:
        assert s.control in ("", *names)
        assert s.expected in ("", "proven", "contradicted", "not proven", "crash")
        assert bool(s.flag) == bool(s.expected)
        if s.expected in ("proven", "contradicted"):
            value = s.args.get(s.flag, scenarios.FLAGS[which].get(s.flag, "auto"))
            assert scenarios.EXPECTS[s.flag, value]


def test_multicast_stays_off():
    text = (HERE / "run.sh").read_text()
    for setting in ("TORCH_SYMM_MEM_DISABLE_MULTICAST=1", "NCCL_NVLS_ENABLE=0", "NVSHMEM_DISABLE_NVLS=1"):
        assert setting in text
    assert not any("mnnvl" in str(s.args) for mine in scenarios.ALL.values() for s in mine)


def test_what_goes_to_hosts_is_the_same_every_time_and_small():
    assert ship.bundle() == ship.bundle()
    assert len(ship.script("{}")) < 100_000  # an argument of sh; Linux takes 128 KiB


@pytest.mark.gpu
@pytest.mark.skipif(not shutil.which("nvidia-smi"), reason="no NVIDIA card here")
@pytest.mark.skipif(find_spec("sglang") is None, reason="the engine is not importable here: use tests/gpu/run.sh")
def test_one_card(tmp_path):
    subprocess.run([sys.executable, HERE / "chain.py", "one", tmp_path, "560"], check=True, timeout=600)
    kept = json.loads(gzip.decompress((tmp_path / "evidence.json.gz").read_bytes()))
    assert "failed" not in kept
    for name, scenario in kept["scenarios"].items():
        assert scenario.get("found", "crash") == (scenario.get("expected") or "crash"), name
