"""Places of attention back ends: what they ask of the model, which kernels they reach, what a dispatcher refuses.

Finders for `sglfleet.extract.places`. A fifth column, where there is one, is what stands there as words: the SM majors
that pass, the back ends that a chain of tests knows, the package that kernels come from.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator

from sglfleet.extract.places_linear import imported

Found = Iterator[tuple[str, ast.AST, list[str]]]
Finder = Callable[[ast.Module], Found]
_ATTENTION = "layers/attention/"
_MAJOR = re.compile(r"compute_capability|arch // 10")
_ARCH = re.compile(r"(?:compute_capability|arch // 10) == (\d+)")
_STAGE = re.compile(r"self\.(?:nsa|dsa)_(?:prefill|decode)_impl|(?:nsa|dsa)_impl|(?:NSA|DSA)_(?:PREFILL|DECODE)_IMPL")


def _asserts(name: str, test: str) -> Finder:
    """The assert with this test."""

    def find(tree: ast.Module) -> Found:
        for node in ast.walk(tree):
            if isinstance(node, ast.Assert) and re.fullmatch(test, ast.unparse(node.test)):
                yield name, node.test, []

    return find


def _assigned(name: str, value: str) -> Finder:
    """The assignment of this value."""

    def find(tree: ast.Module) -> Found:
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign) and ast.unparse(node.value) == value:
                yield name, node.value, []

    return find


def _raised(name: str, text: str, test: str = ".*") -> Finder:
    """The test whose branch raises this text."""

    def find(tree: ast.Module) -> Found:
        for node in ast.walk(tree):
            if not isinstance(node, ast.If) or not re.search(test, ast.unparse(node.test)):
                continue
            for child in node.body:
                if isinstance(child, ast.Raise) and text in _words(child):
                    yield name, node.test, []

    return find


def _words(node: ast.AST) -> str:
    return " ".join(n.value for n in ast.walk(node) if isinstance(n, ast.Constant) and isinstance(n.value, str))


def fa4(tree: ast.Module) -> Found:
    """FlashAttention 4: the majors it takes, those without paged KV, those that take the latent query."""
    for function in tree.body:
        if not isinstance(function, ast.FunctionDef) or function.name not in (
            "_flash_attn_fwd",
            "_flash_attn_fwd_impl",
        ):
            continue
        for node in ast.walk(function):
            if isinstance(node, ast.Assert):
                majors = _majors(node.test)
                name = "fa4.latent" if "with qv" in _words(node) else "fa4.majors"
                if majors and ("Unsupported compute" in _words(node) or name == "fa4.latent"):
                    hosted = ["12"] if "arch_forward_host is not None" in ast.unparse(node.test) else []
                    yield name, node.test, [" ".join([*majors, *hosted])]
            if isinstance(node, ast.If):
                arch = _ARCH.fullmatch(ast.unparse(node.test))
                for child in node.body if arch else ():
                    if isinstance(child, ast.Assert) and ast.unparse(child.test) == "page_table is None":
                        assert arch is not None
                        yield f"fa4.paged.{arch[1]}", child.test, []


def _majors(test: ast.expr) -> list[str]:
    """The numbers of `arch // 10 in [9, 10]`, alone or as the first part of an `or`."""
    first = test.values[0] if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.Or) else test
    if not isinstance(first, ast.Compare) or not isinstance(first.ops[0], ast.In):
        return []
    if not _MAJOR.search(ast.unparse(first.left)) or not isinstance(first.comparators[0], ast.List | ast.Tuple):
        return []
    return [str(n.value) for n in first.comparators[0].elts if isinstance(n, ast.Constant)]


def fa4_source(tree: ast.Module) -> Found:
    """The package that the kernels of FlashAttention 4 are imported from; the release's own copy counts first."""
    found: dict[str, ast.AST] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            if re.fullmatch(r"sglang\..*flash_att(n|ention)\.cute", node.module):
                found.setdefault("own", node)
            elif node.module == "flash_attn.cute":
                found.setdefault("flash-attn-4", node)
    for name in ("own", "flash-attn-4"):
        if name in found:
            yield "attn.fa4.source", found[name], [name]
            return


def fa4_in_kernels(tree: ast.Module) -> Found:
    """Before it had a module of its own: the kernel package's function, told the version."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "kwargs['ver']":
            yield "attn.fa4.source", node.targets[0], ["sgl-kernel"]


def fa4_in_kernels_later(tree: ast.Module) -> Found:
    """0.5.8: one import for both versions."""
    for node in ast.walk(tree):
        if isinstance(node, ast.keyword) and node.arg == "ver" and ast.unparse(node.value) == "self.fa_impl_ver":
            yield "attn.fa4.source", node.value, ["sgl-kernel"]


def fa4_decode(tree: ast.Module) -> Found:
    """0.5.3 to 0.5.7: decoding asserts version 3 for every model."""
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef) and function.name == "forward_decode":
            for node in function.body:
                if isinstance(node, ast.Assert) and ast.unparse(node.test) == "self.fa_impl_ver in [3]":
                    yield "attn.fa4.decode", node.test, []


def xqa(tree: ast.Module) -> Found:
    """FlashInfer: MLA decoding outside SM 10.x goes to XQA, which takes SM 12.x only."""
    for branch in ast.walk(tree):
        if not isinstance(branch, ast.If) or ast.unparse(branch.test) != "backend == 'xqa'":
            continue
        for node in branch.body:
            if isinstance(node, ast.If) and any(isinstance(child, ast.Raise) for child in node.body):
                text = ast.unparse(node.test)
                if "(query.device)[0] != 12" in text or text == "not is_sm12x_supported(query.device)":
                    yield "flashinfer.xqa_mla", node.test, ["12"]


def rocm_only(tree: ast.Module) -> Found:
    """Back ends of sparse attention that argument resolution takes on AMD GPUs only."""
    for function in tree.body:
        if not isinstance(function, ast.FunctionDef):
            continue
        for number, node in enumerate(function.body):
            if isinstance(node, ast.If) and ast.unparse(node.test) == "not hip and rocm_only":
                before = function.body[number - 1]
                words = [n.value for n in ast.walk(before) if isinstance(n, ast.Constant)]
                yield "dsa.rocm", node.test, [" ".join(sorted(map(str, words)))]


def sparse_chains(tree: ast.Module) -> Found:
    """Back ends that prefill and decode of DeepSeek's sparse attention know, at what stops all others."""
    for cls in ast.walk(tree):
        if not isinstance(cls, ast.ClassDef) or not cls.name.endswith("SparseAttnBackend"):
            continue
        for method in cls.body:
            if isinstance(method, ast.FunctionDef) and method.name in ("forward_extend", "forward_decode"):
                known = sorted(_compared(method))
                last = [node for node in ast.walk(method) if _stops_unsupported(node)]
                if known and last:
                    stage = "prefill" if method.name == "forward_extend" else "decode"
                    yield f"dsa.{stage}", last[-1], [" ".join(known)]


def generated(tree: ast.Module) -> Found:
    """The sparse kernels that are asked of FlashInfer by name, whatever the GPU."""
    for node in ast.walk(tree):
        if isinstance(node, ast.keyword) and node.arg == "backend" and ast.unparse(node.value) == "'trtllm-gen'":
            yield "dsa.trtllm", node.value, []


def _compared(method: ast.FunctionDef) -> set[str]:
    found = set()
    for node in ast.walk(method):
        if isinstance(node, ast.Compare) and _STAGE.fullmatch(ast.unparse(node.left)):
            for side in node.comparators:
                found |= {n.value for n in ast.walk(side) if isinstance(n, ast.Constant) and isinstance(n.value, str)}
    return found


def _stops_unsupported(node: ast.AST) -> bool:
    stops = isinstance(node, ast.Raise) or (isinstance(node, ast.Assert) and ast.unparse(node.test) == "False")
    return stops and "Unsupported" in _words(node)


def tilelang_cache(tree: ast.Module) -> Found:
    """What an FP8 cache asks of tilelang on NVIDIA: both stages, and a GPU from SM 8.9 on."""
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and isinstance(node.body[0], ast.Raise):
            said = _words(node.body[0])
            if "requires both DSA backends to be tilelang" in said:
                yield "dsa.tilelang.both", node.test, []
            elif "TileLang FP8 KV requires SM89" in said:
                yield "dsa.tilelang.sm89", node.test, []


def only_some(tree: ast.Module) -> Found:
    """Architectures that have a list of attention back ends for both stages, asserted whatever the GPU."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.If):
            continue
        asked = re.fullmatch(r"(?:self\.)?model_arch in \[('\w+'(?:, '\w+')*)\]", ast.unparse(node.test))
        body = [n for child in node.body if isinstance(child, ast.Assign | ast.Assert | ast.If) for n in _plain(child)]
        lists = [n for n in body if isinstance(n, ast.Assign) and ast.unparse(n.targets[0]) == "supported_backends"]
        asserted = [n for n in body if isinstance(n, ast.Assert) and "attention backend" in _words(n)]
        if asked and lists and asserted and "decode_attn_backend in" in ast.unparse(asserted[0].test):
            words = [n.value for n in ast.walk(lists[0].value) if isinstance(n, ast.Constant)]
            for arch in re.findall(r"\w+", asked[1]):
                yield f"attn.only.{arch}", asserted[0], [" ".join(sorted(map(str, words)))]


def _plain(node: ast.stmt) -> list[ast.stmt]:
    """A statement, or those under the one test that is about another maker's device."""
    if isinstance(node, ast.If):
        return list(node.body) if re.fullmatch(r"not \(?is_mps\(\).*", ast.unparse(node.test)) else []
    return [node]


def drafts(tree: ast.Module) -> Found:
    """Back ends with which EAGLE can draft: the table that decoding of the draft is looked up in."""
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef) and function.name == "create_decode_backend":
            for node in ast.walk(function):
                if isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict):
                    keys = [key.value for key in node.value.keys if isinstance(key, ast.Constant)]
                    yield "draft.decode", node, [" ".join(sorted(map(str, keys)))]


def topk(name: str) -> Finder:
    """A back end whose drafts have one candidate each."""

    def find(tree: ast.Module) -> Found:
        for node in ast.walk(tree):
            if not isinstance(node, ast.If) or ast.unparse(node.test) not in ("topk > 1", "self.topk > 1"):
                continue
            if any(isinstance(child, ast.Raise) and "topk" in _words(child) for child in node.body):
                yield f"draft.topk.{name}", node.test, []

    return find


def outside(name: str, package: str) -> Finder:
    """The import of a package that is no part of the release."""

    def find(tree: ast.Module) -> Found:
        for node in tree.body:
            if isinstance(node, ast.ImportFrom) and node.module == package:
                yield name, node, [package]

    return find


def _graphs(backend: str) -> Finder:
    """The class of a back end that has nothing for CUDA graphs: the base class refuses it in its stead."""

    def find(tree: ast.Module) -> Found:
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and node.name.startswith("Torch") and node.name.endswith("AttnBackend"):
                names = {child.name for child in node.body if isinstance(child, ast.FunctionDef)}
                if "init_cuda_graph_state" not in names:
                    yield f"attn.eager.{backend}", node, []

    return find


def _no_graphs(tree: ast.Module) -> Found:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name == "init_cuda_graph_state":
            stop = node.body[-1]
            if isinstance(stop, ast.Raise) and "NotImplementedError" in ast.unparse(stop):
                yield "attn.graphs", stop, []


def vision(tree: ast.Module) -> Found:
    """Image encoders of other makers' devices: what their constructors raise on NVIDIA."""
    keys = {"VisionAscendAttention": "ascend_attn", "VisionAiterAttention": "aiter_attn"}
    keys |= {"VisionAMXAttention": "amx_attn", "VisionIntelXPUAttention": "xpu_attn"}
    for cls in ast.walk(tree):
        if isinstance(cls, ast.ClassDef) and cls.name in keys:
            for node in ast.walk(cls):
                first = node.body[0] if isinstance(node, ast.If) else None
                if isinstance(first, ast.Raise) and "only available" in _words(first):
                    yield f"attn.mm.{keys[cls.name]}", first, []


_MLA = "model_runner.model_config.kv_lora_rank"
SEARCHES: tuple[tuple[str, Finder], ...] = (
    (_ATTENTION + "flashmla_backend.py", _assigned("attn.model.flashmla", _MLA)),
    (_ATTENTION + "flashmla_backend.py", outside("attn.package.flashmla", "flash_mla")),
    (_ATTENTION + "cutlass_mla_backend.py", _assigned("attn.model.cutlass_mla", _MLA)),
    (_ATTENTION + "nsa_backend.py", _asserts("attn.model.dsa", r"self\.use_[nd]sa")),
    (_ATTENTION + "dsa_backend.py", _asserts("attn.model.dsa", r"self\.use_[nd]sa")),
    (
        _ATTENTION + "dual_chunk_flashattention_backend.py",
        _asserts("attn.model.dual_chunk_flash_attn", r"dual_chunk_attention_config is not None"),
    ),
    (_ATTENTION + "deepseek_v4_backend.py", _asserts("attn.model.dsv4", r"head_dim == 512")),
    (_ATTENTION + "minicpm/backend.py", _raised("attn.model.minicpm", "must have sparse attention enabled")),
    ("../jit_kernel/flash_attention/cute/interface.py", fa4),
    ("../jit_kernel/flash_attn/cute/interface.py", fa4),
    ("../kernels/ops/attention/flash_attn/cute/interface.py", fa4),
    ("../jit_kernel/flash_attention_v4.py", fa4_source),
    ("../kernels/ops/attention/flash_attention_v4.py", fa4_source),
    (_ATTENTION + "flashattention_backend.py", fa4_in_kernels),
    (_ATTENTION + "flashattention_backend.py", fa4_in_kernels_later),
    ("../jit_kernel/flash_attention_v4.py", _raised("attn.fa4.qv", "updating KV cache in-place", r"qv is not None")),
    (
        "../kernels/ops/attention/flash_attention_v4.py",
        _raised("attn.fa4.qv", "updating KV cache in-place", r"qv is not None"),
    ),
    (_ATTENTION + "flashattention_backend.py", fa4_decode),
    (_ATTENTION + "attention_registry.py", _raised("attn.model.llada2_cfg_flashinfer", "does not use an MLA backend")),
    (_ATTENTION + "qwen_sparse_attn_backend.py", _raised("attn.model.qsa", "requires topk_indices")),
    (_ATTENTION + "nsa_backend.py", sparse_chains),
    (_ATTENTION + "dsa_backend.py", sparse_chains),
    (_ATTENTION + "nsa_backend.py", generated),
    (_ATTENTION + "dsa_backend.py", generated),
    (_ATTENTION + "nsa/tilelang_kernel.py", imported("dsa.tilelang", "tilelang")),
    (_ATTENTION + "dsa/tilelang_kernel.py", imported("dsa.tilelang", "tilelang")),
    ("../kernels/ops/attention/dsa/tilelang_kernel.py", imported("dsa.tilelang", "tilelang")),
    ("arg_groups/overrides.py", rocm_only),
    ("../kernels/ops/attention/flash_mla_sm120.py", _raised("dsa.sm12", "supports only GLM DSA")),
    ("../kernels/ops/attention/flash_mla_sm120.py", _raised("dsa.glm", "supports only flashinfer_sparse_mla")),
    ("arg_groups/overrides.py", tilelang_cache),
    ("server_args.py", only_some),
    ("arg_groups/model_hook.py", only_some),
    ("speculative/draft_utils.py", drafts),
    (_ATTENTION + "flashmla_backend.py", topk("flashmla")),
    (_ATTENTION + "flashinfer_mla_backend.py", topk("flashinfer_mla")),
    (_ATTENTION + "torch_native_backend.py", _graphs("torch_native")),
    (_ATTENTION + "torch_flex_backend.py", _graphs("flex_attention")),
    (_ATTENTION + "base_attn_backend.py", _no_graphs),
    (_ATTENTION + "vision.py", vision),
)
