"""Which variables may stand in `env`: secrets and what only looks like one, and what the unit sets."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from validators import environment
from validators.knowledge import load_sglang, releases
from validators.load import load

SURE = [
    ("HF_TOKEN", "hf_x"),
    ("HF_TOKEN", "$HF_TOKEN"),  # the letters as they stand: no shell reads it
    ("HUGGING_FACE_HUB_TOKEN", "abc"),
    ("OPENAI_API_KEY", "sk-proj-x"),
    ("AWS_SECRET_ACCESS_KEY", "abc+def/ghi"),
    ("MY_TOKEN", "ghp_x"),
    ("WHATEVER", "hf_abcdefghijklmnopqrstuvwxyz"),
    ("WHATEVER", "-----BEGIN RSA PRIVATE KEY-----\nMII"),
]
PERHAPS = [("REDIS_PASSWORD", "x1y2"), ("S3_KEY", "models-a"), ("A_SECRET", "b"), ("HTTPS_PROXY", "http://me:pw@proxy")]
NONE = [
    ("SSL_KEY_PATH", "/etc/key.pem"),
    ("SSL_KEY", "/etc/key.pem"),
    ("HF_HUB_DISABLE_IMPLICIT_TOKEN", "1"),
    ("OPENAI_API_KEY", "EMPTY"),
    ("HF_TOKEN", ""),
    ("TOKENIZERS_PARALLELISM", "false"),
    ("SGLANG_LOG_DECODE_GRAPH_KEY", "some"),
    ("MAX_TOKENS", "4096"),
    ("KEYBOARD", "de"),
    ("NCCL_P2P_LEVEL", "SYS"),
    ("HTTPS_PROXY", "http://proxy:3128"),
    ("MODEL", "sk-learn"),
]


@pytest.mark.parametrize(
    ("name", "value", "sure", "perhaps"),
    [(*one, True, None) for one in SURE]
    + [(*one, False, True) for one in PERHAPS]
    + [(*one, False, False) for one in NONE],
)
def test_secrets(name: str, value: str, sure: bool, perhaps: bool | None) -> None:
    assert environment.is_secret(name, value) is sure
    if perhaps is not None:
        assert environment.looks_secret(name, value) is perhaps


def test_no_variable_of_a_release_is_refused_with_a_plain_value() -> None:
    names = {name for release in releases("sglang") for name in load_sglang(release).env}
    assert len(names) > 500
    for name in names:
        for value in ("1", "true", "0.5", "auto"):
            found = environment.is_secret(name, value)
            assert not found or name in ("HF_TOKEN", "API_KEY", "EXA_API_KEY", "OPENAI_API_KEY"), (name, value)


@pytest.mark.parametrize(
    ("env", "gpus", "says"),
    [
        ({"CUDA_VISIBLE_DEVICES": "0,1"}, [0, 1], ""),
        ({"CUDA_VISIBLE_DEVICES": " 0, 1"}, [0, 1], ""),
        ({"CUDA_VISIBLE_DEVICES": "1,0"}, [0, 1], "or write `gpus: [1, 0]`"),
        ({"CUDA_VISIBLE_DEVICES": "GPU-8932f937"}, [0], "remove it: `gpus` sets it"),
        ({"CUDA_VISIBLE_DEVICES": ""}, [0], "contradicts `gpus: [0]`"),
        ({"CUDA_VISIBLE_DEVICES": "7"}, None, ""),
        ({"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}, [0], ""),
        ({"CUDA_DEVICE_ORDER": "FASTEST_FIRST"}, [0], "name the GPUs in `gpus` as nvidia-smi numbers them"),
        ({"SGLFLEET_RELEASE": "x"}, [0], "is set by the unit"),
        ({"CREDENTIALS_DIRECTORY": "/x"}, [0], "is set by the unit"),
        ({"NCCL_DEBUG": "INFO", "HOME": "/tmp"}, [0], ""),
    ],
)
def test_what_the_unit_sets(env: dict[str, str], gpus: list[int] | None, says: str) -> None:
    found = [": ".join(one) for one in environment.wrong(env, gpus)]
    assert bool(found) is bool(says)
    assert says in "".join(found)


def test_every_one_is_said_at_its_line_beside_other_errors_and_no_value_is_shown() -> None:
    text = (
        "service: a\nengine: {sglang: 0.5.9}\nmodel: /m\ngpus: [1]\nnonsense: 1\n"
        "env:\n  CUDA_VISIBLE_DEVICES: 0\n  HF_TOKEN: hf_very_private\n"
    )
    said = [str(problem) for problem in load(text, "a.yaml").problems]
    assert [line.split(": ")[0] for line in said] == ["a.yaml:5:1", "a.yaml:8:3"]  # gpus are not sure yet
    assert "very_private" not in "".join(said)
    said = [str(problem) for problem in load(text.replace("nonsense: 1\n", ""), "a.yaml").problems]
    assert [line.split(": ")[0] for line in said] == ["a.yaml:6:3", "a.yaml:7:3"]


@given(st.dictionaries(st.text(max_size=20), st.text(max_size=60)), st.lists(st.integers(0, 9)))
def test_nothing_breaks_it(env: dict[str, str], gpus: list[int]) -> None:
    assert all(name in env and what and todo for name, what, todo in environment.wrong(env, gpus))
    assert all(isinstance(environment.looks_secret(*one), bool) for one in env.items())
