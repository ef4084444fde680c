"""`sglfleet lint` as people meet it: one line, on a laptop."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from sglfleet.commands.lint import command

SEED = "sglang serve /m --tp 4 --enable-flashinfer-allreduce-fusion --enable-fused-moe-sum-all-reduce"


def call(*args: str, stdin: str = ""):
    return CliRunner().invoke(command, list(args), input=stdin)


def test_a_flag_of_a_newer_release_is_told_with_its_release():
    out = call("--sglang", "0.5.9", "--gpu", "rtx-pro-6000 x4", SEED)
    assert out.exit_code == 1
    assert "enable-fused-moe-sum-all-reduce" in out.output
    assert "is not in 0.5.9 yet: it came with 0.5." in out.output


def test_an_ambiguous_abbreviation_names_both():
    out = call("--sglang", "0.5.23", "--sm", "9.0", "sglang serve /m --cuda-graph-max-bs 8")
    assert out.exit_code == 1
    assert "--cuda-graph-max-bs-decode, --cuda-graph-max-bs-prefill" in out.output


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ("--tp", "--tp needs a value"),
        ("--trust-remote-code yes", "'yes' belongs to no flag"),
        ("--disable-radix-cache=true", "takes no value"),
        ("--resoning-parser glm45", "did you mean --reasoning-parser"),
        ("--enable-metrcs", "did you mean --enable-metrics"),
        ("--enable-foo", "--enable-foo is unknown to 0.5.23 and to every release known"),  # and not --enable-lora
        ("--kv-cache-dtype fp9", "does not take"),
        ("--tp four", "needs a whole number"),
        ("-tp 4", "-tp has one dash"),
        ("–tp 4", "Type --tp: this one begins with a long dash"),
        ("--context-length 32x", "needs a whole number such as 32768, 32k or 32Ki"),
        ("--enable-metrics=true", "Write --enable-metrics alone"),
        ("--disaggregation-mode", "Give disaggregation-mode its value: null, prefill, decode"),
    ],
)
def test_what_the_parser_refuses(flags, says):
    out = call("--sglang", "0.5.23", "--sm", "9.0", f"sglang serve /m {flags}")
    assert out.exit_code == 1, out.output
    assert says in out.output


def test_a_plain_command_has_nothing_to_say():
    out = call("--sglang", "0.5.23", "--sm", "9.0", "sglang serve /m --tp-size 1 --mem-fraction-static 0.9")
    assert out.exit_code == 0
    assert out.output.count("\n") == 1
    assert "active" in out.output


def test_files_standard_input_and_images(tmp_path):
    script = tmp_path / "run.sh"
    script.write_text("docker run lmsysorg/sglang:v0.5.9 python -m sglang.launch_server --model-path /m --nonsense\n")
    for out in (call("--sm", "9.0", str(script)), call("--sm", "9.0", "-", stdin=script.read_text())):
        assert out.exit_code == 1
        assert "SGLang 0.5.9 on SM 9.0" in out.output
        assert "nonsense" in out.output


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("--sm", "9.0", "sglang serve /m"), "no release is named"),
        (("--sglang", "0.5.23", "sglang serve /m"), "no GPU is named"),
        (("--sglang", "0.5.23", "--sm", "blackwell", "sglang serve /m"), "no compute capability"),
        (("--sglang", "0.5.23", "--gpu", "mi300x", "sglang serve /m"), "an unknown GPU"),
        (("--sglang", "0.5.99", "--sm", "9.0", "sglang serve /m"), "sglfleet knowledge add 0.5.99"),
        (
            ("--sglang", "latest", "--sm", "9.0", "sglang serve /m"),
            "not one exact release: write its number, such as 0.5.",
        ),
        (("--sglang", "v0.5.23-cu130", "--sm", "9.0", "sglang serve /m"), "write 0.5.23"),
        (("--sglang", "0.5.23", "--sm", "9.1", "sglang serve /m"), "no GPU that releases were read for"),
        (("--sglang", "0.5.23", "--gpu", "h100 x0", "sglang serve /m"), "write a count from 1 to 64"),
        (("--sglang", "0.5.23", "--gpu", "h100 x1000", "sglang serve /m"), "write a count from 1 to 64"),
        (("--sglang", "0.5.23", "--sm", "9.0", "sglang serve '/m"), "a quote in it is not closed"),
        (("--sglang", "0.5.23", "--sm", "9.0", "/"), "a folder"),
        (("--sglang", "0.5.23", "--sm", "9.0", "nowhere.sh"), "no such file"),
        (("--sglang", "0.5.23", "--sm", "9.0", "vllm serve /m"), "no SGLang launch command"),
    ],
)
def test_bad_input_exits_2_and_says_what_to_do(args, says):
    out = call(*args)
    assert out.exit_code == 2, out.output
    assert says in out.output
    assert "Traceback" not in out.output


def test_json_has_everything():
    out = call("--sglang", "0.5.9", "--sm", "12.0", "--format", "json", "sglang serve /m --tp 2 --nonsense")
    document = json.loads(out.stdout)
    (launch,) = document["launches"]
    assert (document["schema_version"], launch["decision"], launch["sglang"]) == (1, "refuse", "0.5.9")
    assert launch["abbreviated"] == {"tp": "--tp-size"}


def test_the_engines_yaml_reader_is_warned_of(tmp_path):
    config = tmp_path / "config.yaml"
    config.write_text("model-path: /m\ntp-size: 1\nlora-strict-loading: false\n")
    out = call("--sglang", "0.5.23", "--sm", "9.0", str(config))
    assert "lora-strict-loading: the engine's own YAML reader does not take" in out.output


@pytest.mark.parametrize("value", ["4", "32k", "25.6k", "32Ki", "1_000"])
def test_lengths_with_a_suffix_are_taken_as_the_engine_takes_them(value):
    out = call("--sglang", "0.5.23", "--sm", "9.0", f"sglang serve /m --context-length {value}")
    assert out.exit_code == 0, out.output


@pytest.mark.parametrize(
    "rank", ["$NODE_RANK", "${SLURM_NODEID}", "$((RANK + 1))", "$(hostname | tail -c 2)", "{{ .Values.rank }}"]
)
def test_a_value_that_is_set_elsewhere_is_unknown_and_no_refusal(rank, tmp_path):
    script = tmp_path / "run.sh"
    script.write_text(f'sglang serve /m --tp-size 16 --nnodes "$NODES" --node-rank "{rank}" --attention-backend "$B"\n')
    out = call("--sglang", "0.5.23", "--gpu", "h100 x8", str(script))
    assert out.exit_code == 0, out.output
    assert "3 unknown" in out.output
    assert "crash" not in out.output  # how many GPUs there are hangs on $NODES
    assert "--nnodes '$NODES'" in out.output.partition("what would run:")[2]
    assert call("--sglang", "0.5.23", "--gpu", "h100 x8", "--strict", str(script)).exit_code == 3


@pytest.mark.parametrize("gpu", ["DGX B200", "RTX PRO 6000 Max-Q", "GeForce RTX 5090", "h100"])
def test_a_letter_x_in_a_name_is_no_count(gpu):
    out = call("--sglang", "0.5.23", "--gpu", gpu, "sglang serve /m --tp-size 4")
    assert out.exit_code == 0, out.output


def test_every_file_that_is_not_there_is_named(tmp_path):
    script = tmp_path / "run.sh"
    script.write_text("sglang serve /m\n")
    binary = tmp_path / "x.bin"
    binary.write_bytes(b"\xff\x00")
    out = call("--sglang", "0.5.23", "--sm", "9.0", str(script), "gone.sh")
    assert out.exit_code == 2
    assert "gone.sh: no such file" in out.output
    assert "not a text file" in call("--sglang", "0.5.23", "--sm", "9.0", str(binary)).output


def test_what_is_missing_is_said_at_once():
    out = call("sglang serve /m")
    assert "no GPU is named" in out.output
    assert "no release is named" in out.output


@pytest.mark.parametrize(
    ("line", "code", "says"),
    [
        ("enable-metrics: false", 0, "2 active"),  # a switch that is false is left out
        ("enable-metrics: true", 0, "3 active"),
        ('json-model-override-args: {"a": {"b": 1}}', 0, "3 active"),
        ("tp_size: 2", 1, "did you mean --tp-size"),  # the engine does not mend the key
        ("enable-metrics: 'true'", 1, "belongs to no flag"),
    ],
)
def test_the_engines_own_file_is_read_as_the_engine_does(line, code, says, tmp_path):
    config = tmp_path / "config.yaml"
    config.write_text(f"model-path: /m\nport: 1\n{line}\n")
    out = call("--sglang", "0.5.23", "--sm", "9.0", str(config))
    assert out.exit_code == code, out.output
    assert says in out.output


def test_another_release_than_the_images_is_told(tmp_path):
    script = tmp_path / "run.sh"
    script.write_text("docker run lmsysorg/sglang:v0.5.9-cu130 sglang serve /m\n")
    assert (
        "its image is of SGLang 0.5.9: judged for 0.5.23"
        in call("--sglang", "0.5.23", "--sm", "9.0", str(script)).output
    )
    assert "its image" not in call("--sglang", "0.5.9", "--sm", "9.0", str(script)).output


def test_notes_of_a_script_in_a_manifest_name_the_manifests_line(tmp_path):
    manifest = tmp_path / "pod.yaml"
    manifest.write_text(
        "kind: Pod\nspec:\n  containers:\n  - image: x\n    args: [bash, -c, 'sglang serve /m --host $IP']\n"
    )
    out = call("--sglang", "0.5.23", "--sm", "9.0", str(manifest)).output
    assert f"{manifest}:5: the value of $IP is not known here" in out


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("attention-backnd",), "did you mean --attention-backend"),
        (("tp-size",), "has no values to list: `sglfleet explain tp-size=VALUE --sglang 0.5.23 --sm 9.0` judges one"),
        (("attention-backend", "--sm", "9.1"), "no GPU that releases were read for"),
    ],
)
def test_matrix_of_what_has_none(args, says):
    from sglfleet.commands.matrix import command as matrix

    out = CliRunner().invoke(matrix, ["--sglang", "0.5.23", "--sm", "9.0", *args])
    assert out.exit_code == 2
    assert says in out.output


@pytest.mark.parametrize("rest", ['"$@"', "$EXTRA_ARGS", '"${EXTRA[@]}"', "{{ .Values.extra }}"])
def test_flags_that_a_variable_holds_are_unknown_and_no_refusal(rest, tmp_path):
    script = tmp_path / "run.sh"
    script.write_text(f"sglang serve /m --port 1 {rest}\n".replace("{{ .Values.extra }}", "'{{ .Values.extra }}'"))
    out = call("--sglang", "0.5.23", "--sm", "9.0", str(script))
    assert out.exit_code == 0, out.output
    assert "1 unknown, 2 active" in out.output
    assert call("--sglang", "0.5.23", "--sm", "9.0", "--strict", str(script)).exit_code == 3


@pytest.mark.parametrize(
    ("flags", "code", "says"),
    [
        ("--tp 2 --tp-size 4", 0, "--tp 2 is overridden by the later --tp-size 4, as the parser takes the last one"),
        ("--tp 4 --tp 4", 0, "--tp 4 is given more than once"),
        ("--tp four --tp 4", 1, "It is given again, but the parser looks at every value."),
        ("--enable-metrics --enable-metrics", 0, "--enable-metrics is given more than once"),
        ("--attention-backend nope --attention-backend triton", 1, "does not take"),
        ("--port $P --port 1", 0, "--port $P is overridden by the later --port 1"),
        ("--nonsense 1 --nonsense 2", 1, "--nonsense 1 is overridden"),
    ],
)
def test_a_flag_that_is_given_again(flags, code, says):
    out = call("--sglang", "0.5.23", "--gpu", "h100 x8", f"sglang serve /m {flags}")
    assert says in out.output
    assert out.exit_code == code, out.output
    assert "Traceback" not in out.output


def test_a_long_condition_is_shortened_in_text_and_whole_in_json():
    shown = call("--sglang", "0.5.9", "--sm", "12.0", SEED).output
    whole = json.loads(call("--sglang", "0.5.9", "--sm", "12.0", "--format", "json", SEED).stdout)
    conditions = [e["condition"] for v in whole["launches"][0]["verdicts"] for e in v["evidence"] if "condition" in e]
    long = max(conditions, key=len)
    assert len(long) > 200
    assert long not in shown
    assert long[:80] in shown
    assert max(map(len, shown.splitlines())) < 300


def test_what_hangs_on_an_unknown_number_of_ranks_is_unknown():
    """With one rank there is no all-reduce to fuse; whether there is one, nobody can tell."""
    out = call("--sglang", "0.5.9", "--sm", "9.0", "--format", "json",
               "sglang serve /m --tp-size $TP --enable-flashinfer-allreduce-fusion --enable-metrics")  # fmt: skip
    assert out.exit_code == 0, out.output
    (launch,) = json.loads(out.stdout)["launches"]
    told = {v["flag"]: (v["outcome"], v["decision"]) for v in launch["verdicts"]}
    assert told["enable-flashinfer-allreduce-fusion"] == told["tp-size"] == ("unknown", "warn")
    assert told["enable-metrics"] == ("active", "keep")
    assert "--enable-flashinfer-allreduce-fusion" in launch["argv"]
    # on SM 12.0 it does nothing with any number of them
    out = call("--sglang", "0.5.9", "--sm", "12.0", "sglang serve /m --tp $TP --enable-flashinfer-allreduce-fusion")
    assert "enable-flashinfer-allreduce-fusion: does nothing: dropped" in out.output


@pytest.mark.parametrize(
    ("sglang", "sm", "written", "flag", "named"),
    [
        # two nodes: the back end is refused on SM 9.0, one node: it runs
        (
            "0.5.16",
            "9.0",
            "--tp 4 --nnodes $N --flashinfer-allreduce-fusion-backend auto",
            "flashinfer-allreduce-fusion-backend",
            "nnodes ($N)",
        ),
        # several replicas with DP attention leave nothing to fuse
        (
            "0.5.9",
            "9.0",
            "--tp 4 --dp $DP --enable-dp-attention --enable-flashinfer-allreduce-fusion",
            "enable-flashinfer-allreduce-fusion",
            "dp ($DP)",
        ),
        # beside an all-to-all back end nobody knows
        (
            "0.5.9",
            "9.0",
            "--tp 4 --moe-a2a-backend ${A2A} --enable-flashinfer-allreduce-fusion",
            "enable-flashinfer-allreduce-fusion",
            "moe-a2a-backend (${A2A})",
        ),
    ],
)
def test_what_hangs_on_a_variable_is_unknown_and_names_it(
    sglang: str, sm: str, written: str, flag: str, named: str
) -> None:
    out = call("--sglang", sglang, "--sm", sm, "--arch", "Qwen3MoeForCausalLM", f"sglang serve /m {written}")
    assert f"  {flag}" in out.output
    assert f"depends on {named}" in out.output
    assert out.exit_code == 0


def test_a_size_that_nobody_knows_makes_no_room() -> None:
    out = call("--sglang", "0.5.9", "--sm", "9.0", "--gpus", "4", "sglang serve /m --tp 8 --pp-size $PP")
    assert out.exit_code == 1
    assert "TP 8 needs 8 GPUs, 4 are there" in out.output


def test_the_file_of_a_config_flag_is_read_with_the_command(tmp_path):
    (tmp_path / "engine.yaml").write_text("tp-size: 4\nnonsense: 1\nenable-metrics: true\ntrust-remote-code: false\n")
    script = tmp_path / "run.sh"
    script.write_text("sglang serve /m --config engine.yaml --tp-size 2\n")
    out = call("--sglang", "0.5.23", "--sm", "9.0", "--all", str(script))
    assert out.exit_code == 1
    assert "nonsense" in out.output  # in the file, and unknown to the parser
    assert "enable-metrics" in out.output
    assert "--tp-size 4 is overridden by the later --tp-size 2" in out.output  # the command line counts
    assert "--config engine.yaml: its flags are judged with the others" in out.output
    assert "trust-remote-code" not in out.output


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("gone.yaml", None, "no such file here"),
        (300 * "x" + ".yaml", None, "file name too long"),
        ("a.json", "{}", "the engine takes .yaml and .yml only"),
        ("list.yaml", "- a\n", "no mapping of flags to values"),
        ("broken.yaml", "a: [1\nb: }", "no YAML"),
    ],
)
def test_what_is_not_read_is_not_judged_and_said(tmp_path, name, text, why):
    if text is not None:
        (tmp_path / name).write_text(text)
    out = call("--sglang", "0.5.9", "--sm", "9.0", "--strict", f"sglang serve /m --config {tmp_path / name}")
    assert out.exit_code == 3, out.output
    assert f"{name} was not read, so nothing in it is judged" in out.output
    assert why in out.output
