# ruff: noqa: E501 - messages are compared whole
"""YAML with positions: what is read, and what is said where it cannot be."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from validators.source import InputError, Mark, Plain, Problem, plain, printable, read


def said(text: bytes | str) -> list[str]:
    with pytest.raises(InputError) as raised:
        read(text, "f.yaml")
    return [str(problem) for problem in raised.value.problems]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "f.yaml:1:1: the file is empty: "),
        (b"# only a comment\n", "f.yaml:1:1: the file is empty: "),
        (b"a: 1\na: 2\n", "f.yaml:2:1: `a` is given twice, first in line 1: remove one"),
        (b"a:\n\t- x", "f.yaml:2:1: a tab: indent with spaces"),
        (b"a: 1\n---\nb: 2", "f.yaml:2:1: a second document (`---`): one service a file"),
        (b"\xff\xfea\x00", "f.yaml:1:1: the file is UTF-16: save it as UTF-8"),
        (b"a: ok\nb: \xe9", "f.yaml:2:4: byte 0xe9 is not UTF-8: save the file as UTF-8"),
        (b"a: [*b]", "f.yaml:1:5: found undefined alias 'b': define the anchor"),
        (b"&a [*a]", "f.yaml:1:1: nested too deeply: write it out without aliases"),
        (b"a: !!python/object/apply:os.system [x]", "f.yaml:1:4: tag tag:yaml.org,2002:python/object/apply:os.system"),
        (b"a: !foo x", "f.yaml:1:4: tag !foo: remove the tag"),
        (b"a: !!int '5'", "f.yaml:1:4: tag tag:yaml.org,2002:int: remove the tag"),
        (b"a: b: c", "f.yaml:1:5: mapping values are not allowed here: quote the text"),
        (b"a: [1", "f.yaml:1:6: while parsing a flow sequence"),
        (b"[" * 5000, "f.yaml:1:1: nested too deeply"),
        (b"- " * 2000, "f.yaml:1:1: nested too deeply"),
        (b"a: x\x00y", "f.yaml:1:5: character U+0000 is not allowed in YAML: remove or escape it"),
        (b"? [a]\n: b", "f.yaml:1:3: a list or mapping as a key: keys are words"),
        (b"a: " + b"x" * 70_000, "f.yaml:1:1: 70003 bytes, more than the 65536"),
        (b"<<: 5\na: 1", "f.yaml:1:5: `<<` takes a mapping"),
    ],
)
def test_refused(text: bytes, message: str) -> None:
    assert said(text)[0].startswith(message)


def test_every_problem_at_once() -> None:
    assert len(said(b"a: 1\na: 2\nb: !x 1\nb: 3\n")) == 3


def test_bomb_ends_early() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 12)]
    assert "more than 10000 values, aliases followed" in said("\n".join(lines))[0]


def test_places() -> None:
    found = read("a: 1\nb:\n  c: [x, {d: 2}]\n", "f.yaml")
    assert found.marks["b", "c"] == Mark("f.yaml", 3, 3)
    assert found.marks["b", "c", 1, "d"] == Mark("f.yaml", 3, 11)


def test_merge_key_is_weaker_and_keeps_the_written_place() -> None:
    found = read("x: &x {k: 1, l: 2}\ny:\n  <<: *x\n  k: 3\n", "f.yaml")
    assert {key: value.text for key, value in found.data["y"].items()} == {"k": "3", "l": "2"}
    assert found.marks["y", "k"].line == 4


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1", 1),
        ("-7", -7),
        ("2.50", 2.5),
        ("1e5", 1e5),
        (".5", 0.5),
        ("true", True),
        ("False", False),
        ("~", None),
        ("", None),
    ],
)
def test_values(text: str, value: object) -> None:
    assert plain(text) == Plain(text, value)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "text",
    ["on", "Off", "yes", "NO", "y", "010", "0o17", "0x1F", "0b1", "1_000", "1:30", "1:30:00.5", "2026-01-02", ".inf", "-.INF",
     ".nan", "1" * 25, "1e999"],
)  # fmt: skip
def test_traps(text: str) -> None:
    found = plain(text)
    assert found is not None
    assert found.trap
    assert found.value is None


@pytest.mark.parametrize(
    "text", ["fp8_e4m3", "0.5.23", "a:b", "/models/x", "25%", "30s", "1.2.3.4", "nope", "0.0.0.0:1"]
)
def test_words(text: str) -> None:
    assert plain(text) is None


def test_quoted_is_always_text() -> None:
    assert read("""a: "on"\nb: '010'\nc: !!str 5\nd: |\n  yes\n""", "f").data == {
        "a": "on",
        "b": "010",
        "c": "5",
        "d": "yes\n",
    }


@given(st.binary(max_size=200))
def test_never_a_traceback(raw: bytes) -> None:
    problems: tuple[Problem, ...] | None = None
    try:
        read(raw, "f.yaml")
    except InputError as error:
        problems = error.problems
    assert problems is None or (problems and all(str(one).startswith("f.yaml:") for one in problems))


@given(st.text(max_size=60))
def test_messages_are_one_printable_line(text: str) -> None:
    assert printable(str(Problem(Mark("f", 1, 1), text, text))).isprintable()
