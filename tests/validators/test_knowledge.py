"""The loader, and the parser's prefix rules against argparse itself."""

from __future__ import annotations

import argparse
import contextlib
import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from validators.knowledge import (
    BrokenKnowledgeError,
    UnknownReleaseError,
    load_flashinfer,
    load_kernels,
    load_sglang,
    releases,
)
from validators.knowledge.loader import SHIPPED
from validators.knowledge.model import Generator, Place

PLACE = Place("f.py", "g", 1)


@pytest.mark.parametrize("release", ["9.9.9", "../../etc/passwd", ".", "nightly"])
def test_an_unknown_release_says_what_adds_it(release):
    with pytest.raises(UnknownReleaseError, match="sglfleet knowledge add"):
        load_sglang(release)


def test_an_unknown_flashinfer_and_kernel_say_it_too():
    with pytest.raises(UnknownReleaseError, match=r"--flashinfer 9\.9"):
        load_flashinfer("9.9")
    with pytest.raises(UnknownReleaseError, match=r"--kernel sgl-kernel==9\.9"):
        load_kernels("sgl-kernel", "9.9")


@pytest.mark.parametrize("text", ["{", "[]", '{"format": 99}'])
def test_a_broken_file_is_named(tmp_path, monkeypatch, text):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "knowledge" / "sglang").mkdir(parents=True)
    (tmp_path / "knowledge" / "sglang" / "1.0.json").write_text(text)
    with pytest.raises(BrokenKnowledgeError, match=r"1\.0\.json"):
        load_sglang("1.0")


def test_a_projects_own_file_comes_before_the_shipped_one(tmp_path, monkeypatch):
    own = json.loads((SHIPPED / "sglang" / "0.5.9.json").read_text())
    own["artifact"]["file"] = "mine"
    (tmp_path / "knowledge" / "sglang").mkdir(parents=True)
    (tmp_path / "knowledge" / "sglang" / "0.5.9.json").write_text(json.dumps(own))
    assert load_sglang("0.5.9").artifact.file != "mine"
    monkeypatch.chdir(tmp_path)
    assert load_sglang("0.5.9").artifact.file == "mine"


def test_enough_is_shipped():
    known = releases("sglang")
    assert len(known) >= 25
    assert known.index("0.5.9") < known.index("0.5.10")
    since = ["0.5.8", "0.5.8.post1", "0.5.9", "0.5.10", "0.5.10.post1", "0.5.11", "0.5.12", "0.5.12.post1", "0.5.13"]
    since += ["0.5.13.post1", "0.5.14", "0.5.15", "0.5.15.post1", *(f"0.5.{n}" for n in range(16, 24))]
    assert set(since) <= set(known)
    assert "0.4.9.post6" in known


def test_every_pinned_flashinfer_is_shipped():
    known = set(releases("flashinfer"))
    assert {load_sglang(v).flashinfer for v in releases("sglang")} <= known


def test_kernel_packages_of_the_newest_releases_are_shipped():
    for version in releases("sglang")[-3:]:
        kernel = load_sglang(version).kernel
        assert kernel is not None
        assert "9.0a" in load_kernels(*kernel).archs()


def test_together_they_are_small():
    assert sum(p.stat().st_size for p in SHIPPED.rglob("*.json")) < 10_000_000


@pytest.mark.parametrize("release", releases("sglang"))
def test_every_row_says_where_it_was_read(release):
    known = load_sglang(release)
    assert len(known.artifact.sha256) == 64
    for row in [*known.flags.values(), *known.env.values()]:
        assert row.place.file.startswith("sglang/")
        assert row.place.line > 0


@pytest.mark.parametrize("release", releases("flashinfer"))
def test_every_generator_says_where_it_was_read(release):
    known = load_flashinfer(release)
    assert known.generators
    for row in known.generators.values():
        assert row.place.line > 0
        assert not row.certain or bool(row.source) == (row.majors is not None)


def test_facts_of_the_fusion_kernels():
    """Majors of the communication kernels, release by release; they decide what the fusion flag can do."""
    majors = {"0.2.9rc2": (10,), "0.4.0": (9, 10), "0.6.3": (9, 10), "0.6.11.post1": (9, 10), "0.7.2": (9, 10, 12)}
    for release, expected in majors.items():
        generator = load_flashinfer(release).generator("gen_trtllm_comm_module")
        assert generator is not None
        assert generator.majors == expected


def test_names_and_pins_of_known_releases():
    known = load_sglang("0.5.9")
    assert (known.flashinfer, known.kernel) == ("0.6.3", ("sgl-kernel", "0.3.21"))
    newest = load_sglang("0.5.23")
    assert (newest.flashinfer, newest.pin("torch")) == ("0.7.2", "2.14.1")
    for name in ("tp-size", "--tp-size", "tp_size", "tensor-parallel-size"):
        assert newest.flag(name) is newest.flags["tp-size"]
    assert newest.resolve_spelling("--cuda-graph-max-bs").candidates == (
        "--cuda-graph-max-bs-decode",
        "--cuda-graph-max-bs-prefill",
    )
    assert newest.flags["enable-flashinfer-allreduce-fusion"].replacement == "flashinfer-allreduce-fusion-backend=auto"


NEWEST = load_sglang("0.5.23")
SPELLINGS = sorted(s for flag in NEWEST.flags.values() for s in flag.spellings)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(exit_on_error=False)
    for flag in NEWEST.flags.values():
        parser.add_argument(*flag.spellings, dest=flag.name, action="store_true")
    return parser


PARSER = _parser()


@given(st.sampled_from(SPELLINGS).flatmap(lambda s: st.integers(3, len(s)).map(lambda n: s[:n])))
def test_abbreviations_as_argparse_understands_them(text):
    resolved = NEWEST.resolve_spelling(text)
    said = _asked(text)
    if said == "ambiguous":
        assert resolved.ambiguous
    elif said == "help":
        assert resolved.spelling == "--help"
    else:
        assert resolved.flag is not None
        assert said == resolved.flag.name


def _asked(text: str) -> str:
    """What argparse makes of one option: the flag's name, "ambiguous", or "help"."""
    said = io.StringIO()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(said):
        try:
            parsed = vars(PARSER.parse_args([text]))
        except argparse.ArgumentError as error:
            return "ambiguous" if "could match" in str(error) else str(error)
        except SystemExit as stop:
            return "help" if stop.code == 0 else "ambiguous" if "could match" in said.getvalue() else "refused"
    return next(name for name, given_ in parsed.items() if given_)


def generator(majors, *, always=True, certain=True) -> Generator:
    return Generator("gen_x", majors, (), always, {}, "", PLACE, certain)


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (generator((9, 10)), False),
        (generator((9, 12)), True),
        (generator((9,), always=False), None),
        (generator(None), True),
        (generator(None, certain=False), None),
    ],
)
def test_what_a_generator_builds_for_major_12(made, expected):
    assert made.builds_for(12) is expected
