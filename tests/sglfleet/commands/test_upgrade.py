"""`sglfleet upgrade` from outside: what a new engine does with a service file."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from sglfleet.commands.upgrade import command

FILE = """service: demo
engine: {sglang: 0.5.9, venv: /opt/sglang}
model: {path: /models/demo, arch: Qwen3MoeForCausalLM}
gpus: [0, 1, 2, 3]
args:
  tp-size: 4
  enable-flashinfer-allreduce-fusion: true
"""


@pytest.fixture
def service(tmp_path):
    path = tmp_path / "demo.yaml"
    path.write_text(FILE)
    return path


def upgrade(service, *words):
    return CliRunner().invoke(command, [str(service), *map(str, words)])


def test_what_breaks_is_said_with_its_line_and_refused(service):
    """0.5.9 leaves the fusion out on SM 12.0; 0.5.23 dies of it at warm-up."""
    done = upgrade(service, "--to", "0.5.23", "--sm", "12.0")
    assert done.exit_code == 1
    assert "demo.yaml:7:3: SM 12.0: enable-flashinfer-allreduce-fusion: breaks:" in done.output


def test_where_it_works_before_and_after_nothing_breaks(service):
    done = upgrade(service, "--to", "0.5.23", "--sm", "9.0")
    assert done.exit_code == 0
    assert "breaks" not in done.output


def test_the_checkpoint_decides_with_its_config(service, tmp_path):
    """The architecture of the checkpoint is believed before that of the service file."""
    service.write_text(FILE.replace("0.5.9", "0.5.3.post3").replace("  enable-flashinfer-allreduce-fusion: true\n", ""))
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"architectures": ["LlamaForCausalLM"], "model_type": "llama"}))

    def automatic(*words):
        document = json.loads(upgrade(service, "--to", "0.5.23", "--sm", "9.0", "--format", "json", *words).stdout)
        return {row["flag"] for row in document["changes"] if row["kind"] == "turns on by itself"}

    assert automatic() - automatic("--config", config)


def test_a_feature_that_only_has_another_name_changes_nothing(service):
    """Both turn the fusion on by themselves; the flag has been another one since 0.5.14."""
    service.write_text(FILE.replace("0.5.9", "0.5.7").replace("  enable-flashinfer-allreduce-fusion: true\n", ""))
    done = upgrade(service, "--to", "0.5.23", "--sm", "9.0")
    assert done.exit_code == 0
    assert "demo: 0.5.7 to 0.5.23: the given flags mean the same." in done.output


@pytest.mark.parametrize("text", ["{", "[]"])
def test_a_config_that_cannot_be_read_is_bad_input(service, tmp_path, text):
    config = tmp_path / "config.json"
    config.write_text(text)
    done = upgrade(service, "--to", "0.5.23", "--sm", "9.0", "--config", config)
    assert done.exit_code == 2
    assert f"{config}: cannot be read" in done.output


def test_a_release_that_nobody_knows_is_bad_input(service):
    done = upgrade(service, "--to", "0.9.9", "--sm", "9.0")
    assert done.exit_code == 2
    assert "0.9.9" in done.output
