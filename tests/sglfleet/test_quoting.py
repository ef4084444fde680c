"""What systemd passes to a process equals what was given: asked of systemd itself in a lab host."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.fleet import Lab
from sglfleet import systemd

HARD = [
    *["", " ", ";", "%", "%%h", "$HOME", "${HOME}", "$$", "$", "\\", "\\n", '"', "'", "a b", "\n", "\t", "\r", "#"],
    *["=", "-", "--flag=-1", '{"a": [1, "x y"]}', "ü€😀", "\x7f", "\x01", "a\\", '\\"', "|", "&", "@", "!", "+", ":"],
    *["%%", "[Service]", "\u2028", "\u0085", "*", "~", "`id`", "$(id)", "x\nExecStart=/bin/false", "'\"'", "\\x41"],
    *["\\u0041", "${", "$}"],
]  # fmt: skip
TEXT = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), max_size=40)
VALUE = st.text(st.characters(exclude_categories=("Cs", "Cc")) | st.sampled_from("\t\n"), max_size=40)
DUMP = "import json, os, sys; print(json.dumps([sys.argv[1:], os.environ.get('GIVEN')]))"


def passed(lab: Lab, words: list[str], value: str) -> list[object]:
    """(argv, value of GIVEN) as a process got them from systemd."""
    unit = "\n".join(
        [
            "[Service]",
            "Type=oneshot",
            f"Environment={systemd.assignment('GIVEN', value)}",
            f"ExecStart={systemd.commandline(('/usr/bin/python3', '/run/dump.py', *words))}",
            "StandardOutput=file:/run/dumped",
            "",
        ]
    )
    script = (
        f"cat > /run/systemd/system/quoting.service; echo {json.dumps(DUMP)} > /run/dump.py; rm -f /run/dumped;"
        " systemctl daemon-reload && systemctl start quoting && cat /run/dumped"
    )
    done = lab.host("h1").exec("sh", "-c", script, stdin=unit)
    assert done.returncode == 0, done.stdout + done.stderr + unit
    found: list[object] = json.loads(done.stdout)
    return found


@pytest.fixture(scope="module")
def one(make_lab: Callable[..., Lab]) -> Lab:
    return make_lab(1)


@pytest.mark.lab
def test_what_is_known_to_be_hard(one: Lab) -> None:
    assert passed(one, HARD, " ".join(w for w in HARD if w.isprintable())) == [
        HARD,
        " ".join(w for w in HARD if w.isprintable()),
    ]


@pytest.mark.lab
def test_anything(one: Lab) -> None:
    @settings(max_examples=25)
    @given(st.lists(TEXT, max_size=30), VALUE)
    def same(words: list[str], value: str) -> None:
        assert passed(one, words, value) == [words, value]

    same()


@given(TEXT)
def test_a_comment_is_one_line(text: str) -> None:
    line = systemd.comment(text)
    assert line.startswith("#")
    assert len(line.splitlines()) == 1
    assert not line.endswith("\\")
