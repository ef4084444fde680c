"""`sglfleet explain` judges what is written, in every way people write it, and says where that was not possible."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from sglfleet.commands.explain import as_given, command

WHERE = ("--sglang", "0.5.23", "--sm", "12.0")


def call(*args: str):
    return CliRunner().invoke(command, [*args, *WHERE])


@pytest.mark.parametrize(
    "beside",
    [("attention-backend=trtllm_mha",), ("--attention-backend", "trtllm_mha"), ("--attention-backend=trtllm_mha",)],
)
def test_flags_beside_it_count_however_they_are_written(beside):
    out = call("kv-cache-dtype=fp8_e4m3", *beside)
    assert "crashes: refused" in out.output
    # SGLang 0.5.23 builds trtllm_mha on no other SM: the pair starts where both do
    assert "0.5.23 runs it on SM 9.0, 10.0, 10.3." in out.output


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("",), "no flag"),
        (("kv-cache-dtype fp8_e4m3",), "no flag"),
        (("kv-cache-dtype=fp8_e4m3", "--attention-backend"), "needs a value"),
        (("kv-cache-dtype=fp8_e4m3", "surplus"), "belongs to no flag"),
        (("SGLANG_NOPE",), "write SGLANG_NOPE=VALUE"),
    ],
)
def test_what_cannot_be_judged_is_bad_input(args, says):
    out = call(*args)
    assert out.exit_code == 2, out.output
    assert says in out.output


def test_variables_of_the_environment_are_judged_as_such():
    assert "the last release that did is 0.5.20" in call("SGLANG_ENABLE_SPEC_V2=1").output
    assert "0.5.23 reads it in sglang/srt/environ.py" in call("SGLANG_RADIX_FORCE_MISS=1").output
    assert "No release known" not in call("SGLANG_ENABLE_SPEC_V2=1").output


def test_words_as_given():
    assert as_given(("tp=4", "--port", "1", "A_B=x=y", "dp-size=2")) == (
        ("--tp", "4", "--port", "1", "--dp-size", "2"),
        {"A_B": "x=y"},
    )


def test_a_name_that_no_release_knows_is_not_looked_for_in_all():
    out = call("attn-backend=fa3").output
    assert "unknown to 0.5.23" in out
    assert "No release known" not in out
    assert call("attn-backend=fa3").exit_code == 2
    assert "active in" in call("enable-nan-detection").output  # gone since 0.5.13
    assert call("enable-nan-detection").exit_code == 0


def test_a_flag_without_its_value_is_told_what_it_needs_and_is_bad_input():
    for form in ("text", "json"):
        out = call("tp", "--format", form)
        assert out.exit_code == 2
        assert "needs a value" in out.output


def test_a_stop_that_no_gpu_decides_is_explained_with_its_place():
    out = call("enable-pdmux", "--disable-overlap-schedule", "--arch", "LlamaForCausalLM")
    assert out.exit_code == 0, out.output
    assert "not compatible with chunked prefill" in out.output
    assert "arg_groups/validation_hook.py" in out.output
