"""Finders of attention and linear attention: each on a source as small as what it looks for."""

from __future__ import annotations

import ast
import io
import zipfile
from typing import Any

import pytest

from sglfleet.extract import places_attention, places_kernels, places_linear

INTERFACE = """
def _flash_attn_fwd(arch, page_table, qv):
    assert arch // 10 in [9, 10, 11], "Unsupported compute capability. Supported: 9.x, 10.x, 11.x"
    if qv is not None:
        assert arch // 10 in [10, 11], "only support Blackwell arch with qv"
    if arch // 10 == 9:
        assert page_table is None, "paged KV not supported on SM 9.0"
"""
HOSTED = INTERFACE.replace('in [9, 10, 11], "Unsupported', 'in [9, 10] or arch_forward_host is not None, "Unsupported')
SPARSE = """
class DeepseekSparseAttnBackend:
    def forward_decode(self):
        dsa_impl = self.dsa_decode_impl
        if dsa_impl == "fa3":
            return 1
        elif dsa_impl in ("flashmla_kv", "tilelang"):
            return 2
        else:
            assert False, f"Unsupported {dsa_impl = }"
"""
DISPATCHER = """
class GDNKernelDispatcher:
    def __init__(self, decode_backend, prefill_backend):
        if decode_backend.is_triton():
            self.a = 1
        elif decode_backend.is_intel_xpu():
            if not is_xpu():
                raise ValueError("XPU")
        elif decode_backend.is_flashinfer():
            if not is_cuda():
                raise ValueError("CUDA")
            from x.kernels.gdn_flashinfer import FlashInferGDNKernel
        else:
            raise ValueError("Unsupported")
        if prefill_backend.is_cutedsl():
            from x.kernels.gdn_cutedsl import CuteDSLGDNKernel
            if CuteDSLGDNKernel().supports_prefill:
                self.b = 1
"""
SUPPORTS = """
def _is_blackwell():
    major, _ = torch.cuda.get_device_capability()
    return major >= 10

class CuteDSLGDNKernel:
    def __init__(self):
        self.supports_prefill = _is_blackwell()

class PtxKDAKernel:
    def __init__(self):
        self.supports_prefill = torch.cuda.is_available() and torch.cuda.get_device_capability() == (10, 3)
"""
WRAPPER = """
LISTED = {"triton", "fa4"}
def attn_backend_wrapper(runner):
    if is_blackwell():
        if get_platform().is_sm120:
            allowed = {"triton", "flashinfer"}
        else:
            allowed = LISTED
"""
GPT_OSS = """
def handle(model_arch):
    if model_arch in ["GptOssForCausalLM"]:
        if not (is_mps() and use_mlx()):
            supported_backends = ["triton", "fa3"]
            assert prefill_attn_backend in supported_backends and decode_attn_backend in supported_backends, (
                f"requires one of {supported_backends} attention backend"
            )
"""


def found(finder: Any, source: str) -> dict[str, tuple[str, ...]]:
    out: dict[str, tuple[str, ...]] = {}
    for name, _, more in finder(ast.parse(source)):
        out.setdefault(name, tuple(more))
    return out


@pytest.mark.parametrize(
    ("finder", "source", "expected"),
    [
        (places_attention.fa4, INTERFACE, {"fa4.majors": ("9 10 11",), "fa4.latent": ("10 11",), "fa4.paged.9": ()}),
        (places_attention.fa4, HOSTED, {"fa4.majors": ("9 10 12",), "fa4.latent": ("10 11",), "fa4.paged.9": ()}),
        (places_attention.sparse_chains, SPARSE, {"dsa.decode": ("fa3 flashmla_kv tilelang",)}),
        (places_attention.only_some, GPT_OSS, {"attn.only.GptOssForCausalLM": ("fa3 triton",)}),
        (
            places_linear.gdn_allowed,
            WRAPPER,
            {"gdn.allowed.12": ("flashinfer triton",), "gdn.allowed": ("fa4 triton",)},
        ),
        (
            places_linear.linear_supports,
            SUPPORTS,
            {
                "linear.supports.CuteDSLGDNKernel": ("10.0 10.3 11.0 12.0 12.1",),
                "linear.supports.PtxKDAKernel": ("10.3",),
            },
        ),
        (
            places_linear.linear_chains,
            DISPATCHER,
            {
                "linear.gdn.decode.triton": ("takes",),
                "linear.gdn.decode.intel_xpu": ("refuses",),
                "linear.gdn.decode.flashinfer": ("takes", "FlashInferGDNKernel"),
                "linear.gdn.decode.others": ("refuses",),
                "linear.gdn.prefill.cutedsl": ("takes", "CuteDSLGDNKernel fallback"),
            },
        ),
    ],
)
def test_what_stands_there_is_found(finder: Any, source: str, expected: dict[str, tuple[str, ...]]) -> None:
    assert found(finder, source) == expected


@pytest.mark.parametrize(
    ("finder", "source"),
    [
        (places_attention.fa4, "def other(arch):\n    assert arch // 10 in [9], 'Unsupported compute capability'\n"),
        (places_attention.sparse_chains, SPARSE.replace("Unsupported", "something else")),
        (places_attention.only_some, GPT_OSS.replace("decode_attn_backend in", "decode_attn_backend not in")),
        (places_linear.gdn_allowed, WRAPPER.replace("is_sm120", "is_sm90")),
        (places_linear.linear_supports, SUPPORTS.replace("major >= 10", "known(major)").replace("== (10, 3)", "")),
    ],
)
def test_what_has_changed_is_not_found(finder: Any, source: str) -> None:
    assert found(finder, source) == {}


def test_a_kernel_package_tells_its_images_and_what_it_refuses() -> None:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("sgl_kernel/_fa4_interface.py", INTERFACE)
        archive.writestr(
            "sgl_kernel/sm90/common_ops.abi3.so",
            b"\0cutlass_mla_decode is only supported on compute capability 10.0, but\0",
        )
        archive.writestr("sgl_kernel/flashmla_ops.abi3.so", b"\0")
    with zipfile.ZipFile(file) as archive:
        rows = places_kernels.rows(archive, [("sgl_kernel/flashmla_ops.abi3.so", ["9.0a", "10.0f"])])
    assert rows["images.flashmla"] == ["sgl_kernel/flashmla_ops.abi3.so", 0, "", "", "9.0a 10.0f"]
    assert rows["cutlass_mla"][4] == "10.0"
    assert "flashmla.dense" not in rows
    assert rows["fa4.majors"][:2] == ["sgl_kernel/_fa4_interface.py", 3]
    assert "fa4.paged.9" in rows
