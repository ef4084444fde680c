"""The unit: what systemd makes of it, what names it, and what can never stand in it."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglfleet import render as rendering
from sglfleet import stopping
from sglfleet.secrets import Hidden, digest
from tests.sglfleet.rendered import FACTS, dropped, release, service

needs_systemd = pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd-analyze is not here")
ANYTHING = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), max_size=60)
ASSIGNABLE = st.text(st.characters(exclude_categories=("Cs", "Cc")) | st.sampled_from("\t\n"), max_size=60)


def keys(unit: str) -> list[str]:
    """Section headers and keys as systemd reads lines: comments dropped, continued lines joined."""
    found, pending = [], ""
    for line in unit.split("\n"):
        if line.lstrip().startswith(("#", ";")):
            continue
        pending += line
        if pending.endswith("\\"):
            pending = pending[:-1] + " "
            continue
        if pending.strip():
            found.append(pending.split("=", 1)[0].strip())
        pending = ""
    return found


class TestInjection:
    PLAIN = keys(release(("--x", "y")).unit)

    @given(ANYTHING)
    def test_no_argument_makes_a_directive(self, value: str) -> None:
        assert keys(release(("--x", value)).unit) == self.PLAIN

    @given(ANYTHING)
    def test_no_reason_makes_a_directive(self, reason: str) -> None:
        unit = release(("--x", "y"), verdicts=(dropped(reason),)).unit
        assert keys(unit) == self.PLAIN

    @given(ASSIGNABLE)
    def test_no_environment_makes_a_directive(self, value: str) -> None:
        unit = release(("--x", "y"), of=service(env={"NAME": value})).unit
        assert [k for k in keys(unit) if k != "Environment"] == [k for k in self.PLAIN if k != "Environment"]

    @pytest.mark.parametrize("bad", ["a\0b", "a\ud800"])
    def test_what_cannot_reach_a_process_is_refused(self, bad: str) -> None:
        with pytest.raises(rendering.RenderError, match=r"^tiny: .*: "):
            release(("--x", bad))

    def test_control_characters_in_the_environment_are_refused(self) -> None:
        with pytest.raises(rendering.RenderError, match="environment variable NAME"):
            release(of=service(env={"NAME": "bell \a"}))


class TestIdentity:
    def test_the_wording_of_a_reason_restarts_nothing(self) -> None:
        assert release(verdicts=(dropped("one"),)).id == release(verdicts=(dropped("two"),)).id

    def test_everything_that_makes_it_changes_it(self) -> None:
        ids = [
            release().id,
            release(("--port", "30000", "--host", "0.0.0.0", "--tp-size", "2")).id,
            release(of=service(env={"A": "1"})).id,
            release(of=service(gpus=(0, 2))).id,
            release(of=service(sglang="0.5.22")).id,
            release(facts=FACTS.model_copy(update={"driver": "590.1"})).id,
            release(facts=FACTS.model_copy(update={"gpus": FACTS.gpus[:4] if FACTS.gpus else None})).id,
            release(values={"api-key": Hidden(b"one-secret")}).id,
            release(values={"api-key": Hidden(b"two-secret")}).id,
        ]
        assert len(set(ids)) == len(ids)

    def test_the_same_again(self) -> None:
        values = {"api-key": Hidden(b"one-secret")}
        assert release(values=values) == release(values=values)

    def test_every_path_is_of_this_release(self) -> None:
        one = release(values={"api-key": Hidden(b"one-secret")})
        assert set(re.findall(r"/var/lib/sglfleet/tiny/releases/(\w+)", one.unit)) == {one.id}
        assert f"/etc/sglfleet/tiny/{one.id}/api-key" in one.unit
        assert f"SGLFLEET_RELEASE={one.id} " in one.unit


class TestCommandLine:
    def test_one_flag_a_line(self) -> None:
        unit = release(("--a", "1", "--list", "x", "y", "--switch")).unit
        command = unit[unit.index("ExecStart=") :].split("\n# ")[0].split(" \\\n    ")
        assert command[1:] == ["--model-path /models/tiny", "--a 1", "--list x y", "--switch"]

    def test_what_was_dropped_stands_above(self) -> None:
        lines = release(verdicts=(dropped("no kernel\nfor it"),)).unit.splitlines()
        above = lines[lines.index(next(x for x in lines if x.startswith("ExecStart="))) - 1]
        assert above == "# dropped: --enable-x: no kernel for it"

    def test_ranks_of_a_group_do_not_wait_for_requests(self) -> None:
        unit = release(rank=1).unit
        assert "--rank 1" in unit
        assert "--listen" not in unit

    @pytest.mark.parametrize(
        ("bind", "url"),
        [("0.0.0.0", "http://127.0.0.1:30000"), ("::", "http://[::1]:30000"), ("10.0.0.5", "http://10.0.0.5:30000")],
    )
    def test_where_it_is_asked(self, bind: str, url: str) -> None:
        assert release(of=service(args={"port": 30000, "host": bind})).url == url


class TestSecrets:
    ONE = release(values={"api-key": Hidden(b"s3cr3t-value"), "HF_TOKEN": Hidden(b"hf_s3cr3t")})

    def test_nowhere_but_in_its_own_field(self) -> None:
        everything = self.ONE.unit + repr(self.ONE) + str(self.ONE.manifest) + str(self.ONE.files) + str(self.ONE.argv)
        assert "s3cr3t" not in everything

    def test_reaches_the_process_as_credential(self) -> None:
        assert f"LoadCredential=api-key:/etc/sglfleet/tiny/{self.ONE.id}/api-key" in self.ONE.unit
        assert "launch.py" in self.ONE.unit

    def test_digest_says_nothing_without_the_value(self) -> None:
        one, other = {"a": Hidden(b"one")}, {"a": Hidden(b"two")}
        assert digest("s", one, "k") == digest("s", one, "k")
        assert len({digest("s", one, "k"), digest("s", other, "k"), digest("t", one, "k"), digest("s", one, "l")}) == 4
        assert digest("s", {}) == ""


class TestStops:
    def test_a_release_that_kills_itself_counts_as_stopped(self) -> None:
        unit = release(of=service(sglang="0.5.9")).unit
        assert "SuccessExitStatus=SIGKILL\nRestart=always\n" in unit

    def test_a_release_that_leaves_with_zero(self) -> None:
        unit = release().unit
        assert "SuccessExitStatus" not in unit
        assert "Restart=on-failure\n" in unit

    @pytest.mark.parametrize(
        ("number", "restart"), [("0.5.18", "always"), ("0.5.19", "on-failure"), ("main", "on-failure")]
    )
    def test_where_it_changed(self, number: str, restart: str) -> None:
        assert stopping.of(number).restart == restart

    def test_times(self) -> None:
        unit = release().unit
        burst, interval, start = (
            int(re.search(rf"^{key}=(\d+)$", unit, re.M)[1])  # type: ignore[index]
            for key in ("StartLimitBurst", "StartLimitIntervalSec", "TimeoutStartSec")
        )
        assert interval > burst * start
        assert start >= 600
        assert "\nTimeoutStopSec=210\n" in unit


@needs_systemd
@pytest.mark.parametrize("home", [False, True])
@pytest.mark.parametrize("secret", [False, True])
def test_systemd_has_nothing_to_say(tmp_path: Path, home: bool, secret: bool) -> None:
    values = {"api-key": Hidden(b"one-secret")} if secret else {}
    argv = ("--x", 'quotes " and \\ % $HOME ${HOME} %h\nnewline ; # ü')
    one = release(argv, values=values, interpreter="/root/python" if home else "/usr/bin/python3")
    file = tmp_path / "sglang-tiny.service"
    file.write_text(one.unit.replace("/opt/engine/bin/python", "/bin/sh"))  # it wants programs that exist
    verify = subprocess.run(["systemd-analyze", "verify", str(file)], capture_output=True, text=True)
    ours = [line for line in verify.stderr.splitlines() if "sglang-tiny" in line]
    assert ours == []
    security = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--threshold=35", str(file)], capture_output=True, text=True
    )
    assert security.returncode == 0, security.stdout[-400:]
    exposure = re.search(r"exposure level for .*: ([\d.]+)", security.stdout)
    assert exposure
    assert float(exposure[1]) <= 3.5
