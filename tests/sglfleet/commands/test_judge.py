"""`sglfleet judge`: lines in, lines out, in order; bad lines named; ten thousand cases in little time and memory."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from click.testing import CliRunner, Result

from sglfleet.commands.judge import command

FUSION = "enable-flashinfer-allreduce-fusion"
RELEASES = ("0.4.9.post6", "0.5.3.post3", "0.5.9", "0.5.12", "0.5.16", "0.5.23")
SMS = ("8.0", "8.9", "9.0", "10.0", "10.3", "11.0", "12.0", "12.1")


def run(tmp_path: Path, *lines: str, options: tuple[str, ...] = ()) -> Result:
    path = tmp_path / "cases.jsonl"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return CliRunner().invoke(command, ["--cases", str(path), *options])


def test_one_line_out_for_each_line_in(tmp_path: Path) -> None:
    cases = [
        {"id": f"c{n}", "sglang": "0.5.9", "sm": sm, "args": {"tp-size": 4, FUSION: True}} for n, sm in enumerate(SMS)
    ]
    result = run(tmp_path, *map(json.dumps, cases))
    assert result.exit_code == 0
    answers = [json.loads(line) for line in result.stdout.splitlines()]
    assert [answer["id"] for answer in answers] == [case["id"] for case in cases]
    last = answers[SMS.index("12.0")]
    assert last["decision"] == "downgrade"
    assert last["argv"] == ["--tp-size", "4"]
    assert last["verdicts"][0]["evidence"][0]["file"] == "sglang/srt/layers/communicator.py"
    assert last["verdicts"][0]["expects"] == [
        {
            "kind": "kernel",
            "absent": "allreduce_fusion_kernel",
            "where": "every rank",
            "source": last["verdicts"][0]["evidence"][0],
        }
    ]


def test_bad_lines_are_named_and_the_others_judged(tmp_path: Path) -> None:
    good = '{"id": "good", "sglang": "0.5.9", "sm": "9.0", "args": {}}'
    result = run(tmp_path, "{", good, '{"id": "worse", "sm": "x"}', "[]", "\x00")
    assert result.exit_code == 2
    answers = [json.loads(line) for line in result.stdout.splitlines()]
    assert [("error" in answer, answer["id"]) for answer in answers] == [
        (True, ""),
        (False, "good"),
        (True, "worse"),
        (True, ""),
        (True, ""),
    ]
    assert "cases.jsonl:3: sglang: missing: name the exact release" in result.stderr
    assert "cases.jsonl:3: sm: should be a compute capability" in result.stderr
    assert "Traceback" not in result.output


def test_a_refusal_is_an_answer_not_a_failure(tmp_path: Path) -> None:
    result = run(tmp_path, '{"sglang": "0.5.9", "sm": "9.0", "args": {"no-such-flag": 1}}')
    assert result.exit_code == 0
    assert json.loads(result.stdout)["decision"] == "refuse"


def test_brief_leaves_out_the_evidence(tmp_path: Path) -> None:
    result = run(tmp_path, '{"sglang": "0.5.9", "sm": "9.0", "args": {"tp-size": 1}}', options=("--brief",))
    assert "evidence" not in json.loads(result.stdout)["verdicts"][0]


def test_memory_of_ten_thousand_cases(tmp_path: Path) -> None:
    path = tmp_path / "many.jsonl"
    case = {"sglang": "0.5.23", "sm": "9.0", "args": {"tp-size": 4, "attention-backend": "triton"}}
    path.write_text((json.dumps(case) + "\n") * 10_000, encoding="utf-8")
    script = (
        "import sys\n"
        "from sglfleet.cli import main\n"
        "sys.argv = ['sglfleet', 'judge', '--cases', sys.argv[1]]\n"
        "try:\n    main()\n"
        "except SystemExit:\n    pass\n"
        "status = open('/proc/self/status').read()\n"  # ru_maxrss would count the parent's memory before exec too
        "print(status.split('VmHWM:')[1].split()[0], file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", script, str(path)], capture_output=True, check=True, text=True)
    assert int(done.stderr.strip()) < 200 * 1024
