"""For which GPUs a generator builds: lists, helpers, exact architectures, and paths that restrict nothing."""

from __future__ import annotations

import pytest

from sglfleet.extract.cuda import aot_minimums, minimums
from sglfleet.extract.flashinfer import generators
from sglfleet.extract.tree import ExtractError
from tests.sglfleet.extract.trees import interpreter

JIT = """
from .core import gen_jit_spec, sm90a_nvcc_flags, sm100a_nvcc_flags, current_compilation_context as ctx
from ..consts import MAJORS
from .helper import flags_for
_LOCAL = (9, 12)

def gen_literal_module():
    return gen_jit_spec("x", extra=ctx.get_nvcc_flags_list(supported_major_versions=[9, 10]) + ["-DX"])

def gen_constant_module():
    return gen_jit_spec("x", extra=ctx.get_nvcc_flags_list(supported_major_versions=list(MAJORS)))

def gen_helper_module(wide=False):
    return gen_jit_spec("x", extra=flags_for(wide))

def gen_exact_module():
    return gen_jit_spec("x", extra=sm100a_nvcc_flags)

def gen_sometimes_module(backend):
    return gen_jit_spec("x", extra=sm90a_nvcc_flags if backend == "fa3" else [])

def gen_either_module(rubin):
    if rubin:
        flags = ["-gencode=arch=compute_107a,code=sm_107a"]
    else:
        flags = ctx.get_nvcc_flags_list(supported_major_versions=_LOCAL)
    return gen_jit_spec("x", extra=flags)

def gen_any_module():
    return gen_jit_spec("x", extra=ctx.get_nvcc_flags_list(supported_major_versions=None))

def gen_given_module(majors):
    return gen_jit_spec("x", extra=ctx.get_nvcc_flags_list(supported_major_versions=majors))

def gen_needs_cuda_module():
    if not is_cuda_version_at_least("12.8"):
        raise RuntimeError("CUDA 12.8")
    return gen_jit_spec("x")
"""
HELPER = """
from .core import current_compilation_context
def flags_for(wide):
    if wide:
        return current_compilation_context.get_nvcc_flags_list(supported_major_versions=[8, 9])
    return current_compilation_context.get_nvcc_flags_list([10])
"""
CORE = """
sm90a_nvcc_flags = []
sm100a_nvcc_flags = []
current_compilation_context = object()
def gen_jit_spec(*a): pass
"""
FILES = {
    "flashinfer/__init__.py": "",
    "flashinfer/consts.py": "MAJORS = (9, 10, 11)\n",
    "flashinfer/jit/__init__.py": "from . import core\n",
    "flashinfer/jit/core.py": CORE,
    "flashinfer/jit/helper.py": HELPER,
    "flashinfer/jit/all.py": JIT,
}


@pytest.mark.parametrize(
    ("name", "majors", "archs", "always"),
    [
        ("gen_literal_module", [9, 10], [], True),
        ("gen_constant_module", [9, 10, 11], [], True),
        ("gen_helper_module", [8, 9, 10], [], True),
        ("gen_exact_module", [10], ["10.0a"], True),
        ("gen_sometimes_module", [9], ["9.0a"], False),
        ("gen_either_module", [9, 12], ["10.7a"], True),
        ("gen_any_module", None, [], False),
        ("gen_needs_cuda_module", None, [], False),
    ],
)
def test_majors(name, majors, archs, always):
    row = next(r for r in generators(interpreter(FILES, "flashinfer-python")) if r["name"] == name)
    assert (row["majors"], row["archs"], row["always"], row["certain"]) == (majors, archs, always, True)


def test_a_list_that_the_caller_gives_is_unknown_not_unrestricted():
    row = next(r for r in generators(interpreter(FILES, "flashinfer-python")) if r["name"] == "gen_given_module")
    assert (row["majors"], row["certain"], row["source"]) == (None, False, "majors")


def test_a_lowest_cuda_that_the_generator_tests():
    rows = {r["name"]: r for r in generators(interpreter(FILES, "flashinfer-python"))}
    assert rows["gen_needs_cuda_module"]["cuda_min"] == {"": "12.8"}


def test_two_generators_of_one_name_are_told_apart_by_module():
    files = {**FILES, "flashinfer/norm.py": "def gen_any_module():\n    pass\n"}
    keys = [r["key"] for r in generators(interpreter(files, "flashinfer-python"))]
    assert "norm.gen_any_module" in keys
    assert "jit.all.gen_any_module" in keys
    assert "gen_any_module" not in keys


def test_a_tree_without_generators_is_refused():
    with pytest.raises(ExtractError, match="not a FlashInfer release"):
        generators(interpreter({"flashinfer/__init__.py": ""}, "flashinfer-python"))


CONTEXT = """
class CompilationContext:
    @staticmethod
    def _normalize_cuda_arch(major, minor):
        if major == 12:
            from flashinfer.jit.cpp_ext import is_cuda_version_at_least
            if minor == 0:
                if is_cuda_version_at_least("12.9"):
                    return (major, "0f")
                if is_cuda_version_at_least("12.8"):
                    return (major, "0a")
                raise RuntimeError("SM 120 requires CUDA >= 12.8")
            if is_cuda_version_at_least("12.9"):
                return (major, str(minor) + "a")
            raise RuntimeError("SM 12.1+ requires CUDA >= 12.9")
        return (major, str(minor))
"""


def test_lowest_cuda_per_sm_is_found_by_following_the_release():
    assert minimums(interpreter({"flashinfer/compilation_context.py": CONTEXT})) == {"12.0": "12.8", "12.1": "12.9"}


def test_a_release_that_tests_no_cuda_has_no_minimum():
    assert minimums(interpreter({"flashinfer/compilation_context.py": "x = 1"})) == {}


def test_the_table_of_the_precompiled_cache():
    source = 'def caps():\n    return {"sm100f": has_sm("compute_100", "12.9"), "sm90": has_sm("compute_90", "12.3")}\n'
    assert aot_minimums(interpreter({"flashinfer/aot.py": source})) == {"9.0": "12.3", "10.0f": "12.9"}
