"""What another engine does with the same flags."""

from __future__ import annotations

from sglfleet.launch.rewrite import upgraded
from validators.case import Case
from validators.load import load
from validators.upgrade import Kind, changes

TEXT = """\
# the big one
service: big
engine: {sglang: 0.5.9}   # pinned
model: /models/big
gpus: [0, 1]
args:
  tp-size: 2
  nsa-decode-backend: trtllm   # faster here
  cuda-graph-max-bs: 64
"""


def found(args, old="0.5.9", new="0.5.23", sm="9.0"):
    return {c.flag: c for c in changes(Case(sglang=old, args=args, sm=(sm,), gpus=8), new)}


def test_the_same_release_changes_nothing():
    assert changes(Case(sglang="0.5.23", args={"tp-size": 2}, sm=("9.0",), gpus=2), "0.5.23") == []


def test_a_flag_that_became_ambiguous_breaks():
    change = found({"cuda-graph-max-bs": 64})["cuda-graph-max-bs"]
    assert change.kind is Kind.BREAKS
    assert "ambiguous" in change.text


def test_a_renamed_flag_names_its_new_name():
    change = found({"nsa-decode-backend": "trtllm"}, sm="10.0")["nsa-decode-backend"]
    assert change.kind in (Kind.RENAMED, Kind.BREAKS)
    assert "dsa-decode-backend" in change.text


def test_changed_defaults_of_flags_that_are_not_given_are_listed_and_given_ones_are_not():
    defaults = [f for f, c in found({}).items() if c.kind is Kind.DEFAULT]
    assert defaults
    assert defaults[0] not in found({defaults[0]: 1}) or found({defaults[0]: 1})[defaults[0]].kind is not Kind.DEFAULT


def test_the_rewritten_file_keeps_everything_else():
    loaded = load(TEXT, "big.yaml")
    new = upgraded(TEXT, loaded, "0.5.23", {"nsa-decode-backend": ("dsa-decode-backend", "trtllm")})
    assert new == TEXT.replace("0.5.9", "0.5.23").replace("nsa-decode-backend", "dsa-decode-backend")
    assert load(new, "big.yaml").service is not None


def test_a_new_value_is_written_too():
    loaded = load(TEXT, "big.yaml")
    new = upgraded(TEXT, loaded, "0.5.23", {"cuda-graph-max-bs": ("cuda-graph-max-bs-decode", 32)})
    assert "cuda-graph-max-bs-decode: 32\n" in new
