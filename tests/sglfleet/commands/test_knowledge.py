"""`sglfleet knowledge` as people call it: a small fork goes in, is listed, shown, compared and checked."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from sglfleet.commands.knowledge import command
from sglfleet.extract.release import target
from validators.knowledge.loader import SHIPPED

SERVER_ARGS = """
import dataclasses
@dataclasses.dataclass
class ServerArgs:
    tp_size: int = {tp}
    @staticmethod
    def add_cli_args(parser):
        parser.add_argument("--tp-size", type=int, default=ServerArgs.tp_size, help="GPUs.")
        parser.add_argument("--{extra}", action="store_true")
"""


def fork(folder: Path, tp: int = 1, extra: str = "new-thing") -> Path:
    (folder / "sglang" / "srt").mkdir(parents=True, exist_ok=True)
    (folder / "sglang" / "__init__.py").write_text("")
    (folder / "sglang" / "srt" / "server_args.py").write_text(SERVER_ARGS.format(tp=tp, extra=extra))
    (folder / "pyproject.toml").write_text('[project]\ndependencies = ["torch==2.9.1"]\n')
    return folder


def call(*arguments: str) -> Result:
    return CliRunner().invoke(command, list(arguments))


@pytest.fixture(autouse=True)
def _own_project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_a_fork_is_added_listed_and_shown(tmp_path):
    done = call("add", "--tree", str(fork(tmp_path / "fork")), "--as", "my-fork")
    assert done.exit_code == 0, done.output
    assert (tmp_path / "knowledge" / "sglang" / "my-fork.json").is_file()
    again = call("add", "--tree", str(tmp_path / "fork"), "--as", "my-fork")
    assert "no change in" in again.output
    rows = json.loads(call("list", "--format", "json").output)["releases"]
    assert rows[-1]["sglang"] == "my-fork"
    assert rows[-1]["torch"] == "2.9.1"
    shown = json.loads(call("show", "my-fork", "--flag", "tp-si", "--format", "json").output)
    assert shown["flag"]["default"] == 1
    assert shown["flag"]["place"] == {
        "file": "sglang/srt/server_args.py",
        "symbol": "ServerArgs.add_cli_args",
        "line": 8,
    }
    assert "2 flags" in call("show", "my-fork").output


@pytest.mark.parametrize("text", ["v0.5.9", "0.5.09", "0.5.9"])
def test_one_release_has_one_name(text):
    assert target("sglang", text).stem == "0.5.9"


def test_what_changed_between_two(tmp_path):
    call("add", "--tree", str(fork(tmp_path / "a")), "--as", "a")
    call("add", "--tree", str(fork(tmp_path / "b", tp=2, extra="other-thing")), "--as", "b")
    changes = json.loads(call("diff", "a", "b", "--format", "json").output)["changes"]
    assert [(c["kind"], c["name"]) for c in changes] == [
        ("added", "other-thing"),
        ("default", "tp-size"),
        ("removed", "new-thing"),
    ]
    assert "flag default: tp-size: 1 → 2" in call("diff", "a", "b").output


def test_the_flags_of_two_shipped_releases(tmp_path):
    text = call("diff", "0.5.3.post3", "0.5.9").output
    assert "flag added: enable-dp-lm-head" not in text
    assert "pin changed: flashinfer-python: ==0.4.0 → ==0.6.3" in text
    now = call("diff", "0.5.9", "0.5.23").output
    assert "flag changed: --cuda-graph-max-bs: now ambiguous" in now


def test_what_is_shown_has_no_python_in_it(tmp_path):
    shown = call("show", "0.5.23", "--flag", "tp").output + call("show", "0.5.23").output
    assert "--tp-size, --tensor-parallel-size" in shown
    assert "sglang/srt/arg_groups/fields/parallel.py:45 Parallel" in shown
    assert not set("{}'") & set(shown)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["show", "9.9.9"], "sglang 9.9.9: no knowledge of this release: run `sglfleet knowledge add 9.9.9`"),
        (["show", "latest"], "sglang latest: not one exact release: write its number"),
        (["show", "0.5.9", "--flag", "nonsense-flag"], "no such flag"),
        (["show", "0.5.23", "--flag", "cuda-graph-max-bs"], "ambiguous: --cuda-graph-max-bs-decode"),
        (["diff", "0.5.9", "9.9.9"], "no knowledge of this release"),
        (["check", "9.9.9"], "no knowledge of this release"),
        (["add"], "nothing to add"),
        (["add", "no/such/file.whl"], "its name says no package"),
        (["add", "sglang-1.0-py3-none-any.whl"], "no such file"),
        (["add", "../evil"], "its name says no package"),
        (["add", "--kernel", "sgl-kernel"], "no version"),
        (["add", "--kernel", "torch==1"], "not a package that can be read"),
        (["add", "--tree", "."], "add `--as NAME`"),
        (["add", "--tree", ".", "--as", "../up"], "not a release number or name"),
        (["add", "--tree", ".", "--as", "x"], "no folder `sglang`"),
    ],
)
def test_bad_input_is_one_line_and_code_2(arguments, message, tmp_path):
    done = call(*arguments)
    assert done.exit_code == 2
    assert message in done.output
    assert "Traceback" not in done.output
    assert not (tmp_path / "knowledge").exists()


def test_a_release_that_fails_leaves_what_was_there(tmp_path):
    call("add", "--tree", str(fork(tmp_path / "fork")), "--as", "x")
    before = (tmp_path / "knowledge" / "sglang" / "x.json").read_bytes()
    (tmp_path / "fork" / "sglang" / "srt" / "server_args.py").write_text("class ServerArgs:\n  def (")
    done = call("add", "--tree", str(tmp_path / "fork"), "--as", "x")
    assert done.exit_code == 2
    assert "cannot parse it" in done.output
    assert [p.name for p in (tmp_path / "knowledge" / "sglang").iterdir()] == ["x.json"]
    assert (tmp_path / "knowledge" / "sglang" / "x.json").read_bytes() == before


def test_the_shipped_files_are_what_the_writer_writes():
    """The form of the files: read and written again, not a byte changes."""
    from sglfleet.extract.document import dump

    for path in sorted(SHIPPED.rglob("*.json")):
        text = path.read_text(encoding="utf-8")
        assert dump(json.loads(text)) == text, path.name
