"""Secrets are found on the controller, refused where they cannot arrive unchanged, and shown nowhere."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

from sglfleet import secrets
from tests.sglfleet.rendered import service
from validators.service import Secret, Waiver

TODAY = date(2026, 6, 1)
KEY = {"api-key": Secret(env="KEY")}
TOKEN = {"HF_TOKEN": Secret(env="KEY")}


def resolved(kind: dict[str, Secret], value: str) -> tuple[dict[str, secrets.Hidden], list[str]]:
    return secrets.resolve(service(secrets=kind), {"KEY": value})


def test_never_printed() -> None:
    values, problems = resolved(KEY, "s3cr3t-value")
    assert problems == []
    assert bytes(values["api-key"]) == b"s3cr3t-value"
    for text in (repr(values), str(values["api-key"]), f"{values['api-key']}", repr([values])):
        assert "s3cr3t" not in text


def test_masked_in_what_a_host_prints() -> None:
    resolved(KEY, "s3cr3t-to-mask")
    assert secrets.mask("server_args={'api_key': 's3cr3t-to-mask'}") == "server_args={'api_key': '<hidden>'}"


@pytest.mark.parametrize("value", ["two\nlines", "umlaut ü", " leading", "trailing ", "tab\t", ""])
def test_a_key_that_no_header_carries_is_refused_without_being_shown(value: str) -> None:
    values, problems = resolved(KEY, value)
    assert values == {}
    assert len(problems) == 1
    assert problems[0].startswith("tiny: secret api-key: ")
    assert not value.strip() or value not in problems[0]


@pytest.mark.parametrize("value", ["two\nlines", "umlaut ü", "100% $HOME ${X} \"quoted\" 'too' \\n"])
def test_an_environment_variable_takes_any_text(value: str) -> None:
    values, problems = resolved(TOKEN, value)
    assert problems == []
    assert bytes(values["HF_TOKEN"]).decode() == value


def test_all_that_is_missing_at_once(tmp_path: Path) -> None:
    both = {"api-key": Secret(env="NOT_THERE"), "HF_TOKEN": Secret(file="none.txt")}
    _, problems = secrets.resolve(service(secrets=both), {}, tmp_path)
    assert problems == [
        f"tiny: secret HF_TOKEN: {tmp_path}/none.txt: No such file or directory: put the secret there",
        "tiny: secret api-key: the environment variable NOT_THERE is not set: export it",
    ]


def test_a_file_loses_its_last_newline_only(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("a\n\n")
    values, _ = secrets.resolve(service(secrets={"HF_TOKEN": Secret(file="token")}), {}, tmp_path)
    assert bytes(values["HF_TOKEN"]) == b"a\n"


class TestLeaks:
    def test_a_release_that_was_seen_to_keep_it(self) -> None:
        assert secrets.leaks(service(secrets=KEY), TODAY) == []

    def test_any_other_release_is_refused(self) -> None:
        [problem] = secrets.leaks(service(sglang="0.5.9", secrets=KEY), TODAY)
        assert problem.startswith("tiny: secret api-key: sglang 0.5.9 is not known to keep it out of its log")

    def test_unless_waived(self) -> None:
        waiver = Waiver(flag="api-key", reason="behind a router", until=date(2026, 12, 31))
        assert secrets.leaks(service(sglang="0.5.9", secrets=KEY, allow=(waiver,)), TODAY) == []
        assert secrets.leaks(service(sglang="0.5.9", secrets=KEY, allow=(waiver,)), date(2027, 1, 1)) != []

    def test_a_variable_is_in_no_argument(self) -> None:
        assert secrets.leaks(service(sglang="0.5.9", secrets=TOKEN), TODAY) == []

    def test_several_tokenizer_workers_do_not_ask_for_it(self) -> None:
        [problem] = secrets.leaks(service(secrets=KEY, args={"tokenizer-worker-num": 2}), TODAY)
        assert problem.startswith("tiny: tokenizer-worker-num: ")
