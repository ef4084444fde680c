"""A launch command becomes a service file that loads, and nothing secret is written down."""

from __future__ import annotations

import pytest
import yaml
from click.testing import CliRunner

from sglfleet.commands.import_ import command
from validators.load import load

COMMAND = (
    "NCCL_P2P_LEVEL=SYS HF_TOKEN=hf_secret sglang serve /models/Qwen3.5-122B-A10B --tp 4 --mem-frac 0.9 "
    '--api-key verysecret --speculative-algorithm EAGLE --nonsense 3 --json-model-override-args \'{"a": "b c"}\''
)


def call(*args: str):
    return CliRunner().invoke(command, list(args))


def test_the_file_loads_and_says_the_same():
    out = call("--sglang", "0.5.23", COMMAND)
    assert out.exit_code == 0, out.output
    service = load(out.output, "x.yaml").service
    assert service is not None
    assert (service.service, service.engine.sglang, service.gpus) == ("qwen3-5-122b-a10b", "0.5.23", (0, 1, 2, 3))
    assert service.args["tp-size"] == 4
    assert service.args["mem-fraction-static"] == 0.9
    assert service.args["json-model-override-args"] == '{"a": "b c"}'
    assert service.env == {"NCCL_P2P_LEVEL": "SYS"}
    assert set(service.secrets) == {"api-key", "HF_TOKEN"}
    assert "nonsense" not in service.args


def test_what_is_refused_stays_as_a_comment_with_its_reason():
    out = call("--sglang", "0.5.23", COMMAND)
    (line,) = [line for line in out.output.splitlines() if "nonsense" in line]
    assert line.startswith("  # nonsense: ")
    assert "unknown to 0.5.23" in line


def test_secrets_are_not_written_down():
    out = call("--sglang", "0.5.23", COMMAND)
    assert "verysecret" not in out.output
    assert "hf_secret" not in out.output


def test_several_servers_become_several_files(tmp_path):
    script = tmp_path / "two.sh"
    script.write_text("sglang serve /models/a --port 1 &\nsglang serve /models/b --port 2 &\n")
    out = call("--sglang", "0.5.23", str(script), "-o", str(tmp_path / "services"))
    assert out.exit_code == 0, out.output
    assert sorted(p.name for p in (tmp_path / "services").iterdir()) == ["a.yaml", "b.yaml"]
    again = call("--sglang", "0.5.23", str(script), "-o", str(tmp_path / "services"))
    assert again.exit_code == 2
    assert "exists" in again.output


@pytest.mark.parametrize("value", ["on", "1:30", "0x10", "null", "a: b", "- x", "#x", "'", "%h", "ä\tb", "1e3", "~"])
def test_any_text_value_survives(value):
    from shlex import quote

    out = call("--sglang", "0.5.23", f"sglang serve /models/m --served-model-name m --chat-template {quote(value)}")
    assert out.exit_code == 0, out.output
    assert yaml.safe_load(out.output)["args"]["chat-template"] == value


def test_without_a_gpu_nothing_is_assumed_of_one():
    flags = "sglang serve /models/m --attention-backend trtllm_mla --enable-pdmux"
    out = call("--sglang", "0.5.23", flags)
    assert out.exit_code == 0, out.output
    assert set(yaml.safe_load(out.output)["args"]) == {"attention-backend", "enable-pdmux"}
    hopper = call("--sglang", "0.5.23", "--sm", "12.0", flags)
    assert "# enable-pdmux: true   # refused" in hopper.output


def test_servers_of_one_model_get_names_of_their_own(tmp_path):
    script = tmp_path / "pd.sh"
    start = "sglang serve /models/a --disaggregation-mode"
    script.write_text(f"{start} prefill &\n{start} decode --port 1 &\n{start} decode --port 2 &\n{start} prefill &\n")
    out = call("--sglang", "0.5.23", str(script), "-o", str(tmp_path / "services"))
    assert out.exit_code == 0, out.output
    assert sorted(p.stem for p in (tmp_path / "services").iterdir()) == ["a", "a-2", "a-decode"]
    assert "pd.sh:4: the same as another command" in out.output


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("--name", "Bad Name"), "no service name"),
        (("-o", "services.yaml"), "a folder is wanted"),
        (("--gpu", "nonsense"), "an unknown GPU"),
    ],
)
def test_bad_options_write_nothing(args, says):
    out = call("--sglang", "0.5.23", "sglang serve /m", *args)
    assert out.exit_code == 2
    assert says in out.output
    assert "service:" not in out.output


def test_gpus_of_a_container_and_what_the_unit_sets():
    words = "docker run --gpus '\"device=2,3\"' -e CUDA_DEVICE_ORDER=FASTEST_FIRST -e REDIS_PASSWORD=abc"
    words += " -e TOKENIZERS_PARALLELISM=false lmsysorg/sglang:v0.5.23 sglang serve /m --tp four --tp 2"
    out = call(words)
    assert out.exit_code == 0, out.output
    service = load(out.output, "x.yaml").service
    assert service is not None
    assert service.gpus == (2, 3)
    assert list(service.args.values()) == [2]  # what is overridden is not what is written
    assert service.env == {"TOKENIZERS_PARALLELISM": "false"}
    assert set(service.secrets) == {"REDIS_PASSWORD"}
    assert "abc" not in out.output
    assert "# env: CUDA_DEVICE_ORDER=FASTEST_FIRST is left out" in out.output


def test_an_output_that_is_a_file_is_bad_input(tmp_path):
    script = tmp_path / "run.sh"
    script.write_text("sglang serve /m\n")
    for folder in (script, script / "below"):
        out = call("--sglang", "0.5.23", str(script), "-o", str(folder))
        assert out.exit_code == 2, out.output
        assert "folder" in out.output


def test_nothing_that_was_written_vanishes(tmp_path):
    """A flag that cannot be read, a value that a variable holds, a variable that the release does not read."""
    script = tmp_path / "run.sh"
    script.write_text(
        "SGLANG_NOPE=1 CUDA_VISIBLE_DEVICES=2,3 sglang serve $MODEL --enable-metrics=true --tp $TP -dp 2 --port 1 "
        "--dist-init-addr $HEAD:5000 --served-model-name $NAME --api-key s$ecret --port 1 $REST\n"
    )
    out = call("--sglang", "0.5.23", "--sm", "9.0", str(script))
    assert out.exit_code == 0, out.output
    service = load(out.output, "x.yaml").service
    assert service is not None
    assert (service.args, service.env, service.gpus) == ({"port": 1}, {}, (2, 3))
    assert service.model.path == "/models/MODEL"
    for left in (
        "enable-metrics",
        'tp: "$TP"',
        "dp:",
        "served-model-name:",
        "--port 1 is given more than once",
        "$REST: which flags",
        "SGLANG_NOPE",
        "$MODEL",
    ):
        assert "s$ecret" not in out.output
        assert any(left in line for line in out.output.splitlines() if line.lstrip().startswith("#")), left
