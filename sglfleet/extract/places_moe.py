"""Places of expert layers, matrix products and quantization that no SM test decides: finders for `places.py`.

What they yield besides a name and a node is kept in the row: names that a chain knows, or conditions of a place.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator

Found = Iterator[tuple[str, ast.AST, list[str]]]
_ASKS = re.compile(r"\bis_(\w+)\(\)")
_RUNNER = re.compile(r"triton|deep_gemm|flashinfer|cutlass|marlin|humming|aiter|hpc_ops|lora|intel_xpu|ascend$")
_ON_NVIDIA = {"is_cuda()": True, "_is_cuda": True}  # every other platform's test is false on these hosts


def _functions(tree: ast.Module, name: str) -> Iterator[ast.FunctionDef]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name == name:
            yield node


def _class(tree: ast.Module, name: str) -> ast.ClassDef | None:
    return next((n for n in ast.walk(tree) if isinstance(n, ast.ClassDef) and n.name == name), None)


def _branches(body: list[ast.stmt]) -> Iterator[tuple[ast.If, list[ast.stmt]]]:
    """Each `if`/`elif` of the chains in a body, and what stands in the last `else`."""
    for statement in body:
        chain: ast.stmt | None = statement
        while isinstance(chain, ast.If):
            rest = chain.orelse
            yield chain, ([] if len(rest) == 1 and isinstance(rest[0], ast.If) else rest)
            chain = rest[0] if len(rest) == 1 else None


def fp8_products(tree: ast.Module) -> Found:
    """Back ends of the FP8 product: what is asked before each is handed out, and the raise for any other."""
    for function in _functions(tree, "_dispatch_explicit_backend"):
        for branch, rest in _branches(function.body):
            asked = _ASKS.findall(ast.unparse(branch.test))
            inner = next((one for one in branch.body if isinstance(one, ast.If)), None)
            if asked and inner is not None and any(isinstance(one, ast.Raise) for one in inner.body):
                yield f"fp8.{asked[0]}", inner.test, [ast.unparse(inner.test)]
            if rest and isinstance(rest[0], ast.Raise):
                yield "fp8.unknown", rest[0], []


def deep_gemm(tree: ast.Module) -> Found:
    """The conditions under which a release goes on without DeepGEMM, in the order in which it asks."""
    for function in _functions(tree, "_compute_enable_deep_gemm"):
        off = [
            one
            for one in function.body
            if isinstance(one, ast.If) and ast.unparse(one.body[0]) == "return False" and not one.orelse
        ]
        if off:
            yield "deep_gemm.off", off[0].test, [ast.unparse(one.test) for one in off]


def bf16_products(tree: ast.Module) -> Found:
    """The BF16 product that a deterministic run refuses."""
    for function in _functions(tree, "initialize_bf16_gemm_config"):
        for node in ast.walk(function):
            asks = isinstance(node, ast.If) and ast.unparse(node.test).endswith("enable_deterministic_inference")
            if asks and isinstance(node.body[0], ast.Raise):  # type: ignore[attr-defined]
                yield "bf16.deterministic", node.test, []  # type: ignore[attr-defined]


def dispatchers(tree: ast.Module) -> Found:
    """All-to-all back ends that have a dispatcher on an NVIDIA host, and the raise for every other one."""
    for function in _functions(tree, "create_moe_dispatcher"):
        known: list[str] = []
        for branch, rest in _branches(function.body):
            text = ast.unparse(branch.test)
            if "is_npu()" not in text.replace("_is_npu", "is_npu()"):
                known += _ASKS.findall(text)
            if rest and isinstance(rest[0], ast.Raise):
                yield "a2a.unknown", rest[0], sorted(set(known))


def deepep(tree: ast.Module) -> Found:
    """What the expert layer of DeepEP asserts about DeepGEMM."""
    found = _class(tree, "DeepEPMoE")
    for node in ast.walk(found) if found else ():
        if isinstance(node, ast.Assert) and ast.unparse(node.test).endswith("ENABLE_JIT_DEEPGEMM"):
            yield "a2a.deepep", node.test, []
    mori = _class(tree, "MoriEPMoE")
    for node in ast.walk(mori) if mori else ():
        if isinstance(node, ast.Assert) and "aiter" in ast.unparse(node.test):
            yield "a2a.mori", node.test, []


def runners(tree: ast.Module) -> Found:
    """Runners that a layer of experts can be built with, and the raise for every other one."""
    found = _class(tree, "MoeRunner")
    for function in _functions(tree, "__init__"):
        if found is None or function not in found.body:
            continue
        known: list[str] = []
        for branch, rest in _branches(function.body):
            if ast.unparse(branch.test).startswith("runner_backend."):
                known += _ASKS.findall(ast.unparse(branch.test))
            if rest and isinstance(rest[0], ast.Raise):
                yield "runner.unknown", rest[0], sorted(set(known))


def named(tree: ast.Module) -> Found:
    """The names that a release's own list of runners has; any other is refused when the process reads its flags."""
    found = _class(tree, "MoeRunnerBackend")
    if found is not None:
        values = [one.value for one in found.body if isinstance(one, ast.Assign)]
        words = [one.value for one in values if isinstance(one, ast.Constant)]
        yield "runner.names", found, [str(word) for word in words]


def asked_by(name: str, cls: str) -> Callable[[ast.Module], Found]:
    """Runners that the experts of one format ask for anywhere in their class: a runner not among them is not theirs."""

    def find(tree: ast.Module) -> Found:
        found = _class(tree, cls)
        if found is None:
            return
        known = sorted(one for one in set(_ASKS.findall(ast.unparse(found))) if _RUNNER.match(one))
        for node in found.body:
            if isinstance(node, ast.FunctionDef) and node.name == "create_moe_runner":
                yield name, node, known

    return find


def refused_by(name: str, cls: str) -> Callable[[ast.Module], Found]:
    """Runners that the experts of one format name; every other one is refused when built, or by the first batch."""

    def find(tree: ast.Module) -> Found:
        found = _class(tree, cls)
        for function in found.body if found else ():
            if not isinstance(function, ast.FunctionDef):
                continue
            if function.name == "create_moe_runner":
                known: list[str] = []
                for branch, rest in _branches(function.body):
                    known += _ASKS.findall(ast.unparse(branch.test))
                    if rest and isinstance(rest[0], ast.Raise):
                        yield name, rest[0], sorted(one for one in set(known) if _RUNNER.match(one))
            elif function.name == "apply" and isinstance(function.body[-1], ast.Raise):
                asked = set(_ASKS.findall(ast.unparse(function)))
                yield name, function.body[-1], sorted(one for one in asked if _RUNNER.match(one))

    return find


def methods(tree: ast.Module) -> Found:
    """Quantization methods that are registered on an NVIDIA host."""
    tables = ("BASE_QUANTIZATION_METHODS", "VLLM_QUANTIZATION_METHODS")
    known: dict[str, list[str]] = {name: [] for name in tables}
    place: ast.AST | None = None
    for statement in tree.body:
        if isinstance(statement, ast.AnnAssign | ast.Assign) and isinstance(statement.value, ast.Dict):
            target = statement.target if isinstance(statement, ast.AnnAssign) else statement.targets[0]
            name = getattr(target, "id", "")
            if name in known:
                known[name] += [str(key.value) for key in statement.value.keys if isinstance(key, ast.Constant)]
                place = place or statement
        elif isinstance(statement, ast.If):
            for branch, _ in _branches([statement]):
                parts = ast.unparse(branch.test).split(" or ")
                if any(_ON_NVIDIA.get(part.strip("()").replace("is_cuda", "is_cuda()"), False) for part in parts):
                    for node in branch.body:
                        known["BASE_QUANTIZATION_METHODS"] += _keys(node)
    if place is not None:
        yield "quant.methods", place, sorted(set(known[tables[0]]))
        if known[tables[1]]:
            yield "quant.vllm", place, sorted(set(known[tables[1]]))


def _keys(node: ast.stmt) -> list[str]:
    return [
        str(key.value)
        for one in ast.walk(node)
        if isinstance(one, ast.Dict)
        for key in one.keys
        if isinstance(key, ast.Constant)
    ]


def unknown_method(tree: ast.Module) -> Found:
    for function in _functions(tree, "_verify_quantization"):
        for node in ast.walk(function):
            if isinstance(node, ast.Compare) and ast.unparse(node) == "self.quantization not in supported_quantization":
                yield "quant.unknown", node, []


def other_names(tree: ast.Module) -> Found:
    """Names given for a method that a checkpoint's own kind turns into another, registered one."""
    for function in _functions(tree, "override_quantization_method"):
        for node in ast.walk(function):
            if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "is_valid_user_quant":
                named = [one.value for one in ast.walk(node.value) if isinstance(one, ast.Constant)]
                yield "quant.other_names", node, [name for name in named if isinstance(name, str)]


def unquantized(tree: ast.Module) -> Found:
    """`--quantization unquant`: what the checkpoint says is left aside."""
    for node in ast.walk(tree):
        text = ast.unparse(node) if isinstance(node, ast.Compare) else ""
        if text in ("self.quantization == 'unquant'", "cfg.quantization == 'unquant'"):
            yield "quant.unquant", node, []


def refuses(name: str, function: str, test: str) -> Callable[[ast.Module], Found]:
    """The raise in `Class.function` under the condition `test`, or the first one where no condition is named."""
    cls, _, method = function.rpartition(".")

    def find(tree: ast.Module) -> Found:
        within: ast.AST | None = _class(tree, cls) if cls else tree
        for node in ast.walk(within) if within else ():
            if isinstance(node, ast.FunctionDef) and node.name == method:
                for one in ast.walk(node):
                    if test and isinstance(one, ast.If) and re.fullmatch(test, ast.unparse(one.test)):
                        yield name, one.test, []
                    elif not test and isinstance(one, ast.Raise):
                        yield name, one, []

    return find


def imports(name: str, package: str) -> Callable[[ast.Module], Found]:
    """The first import of another maker's package that a function does when it is called."""

    def find(tree: ast.Module) -> Found:
        for function in ast.walk(tree):
            if isinstance(function, ast.FunctionDef):
                for node in ast.walk(function):
                    named = [one.name for one in node.names] if isinstance(node, ast.Import) else []
                    named += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
                    if any(one.split(".")[0] == package for one in named):
                        yield name, node, []

    return find


def head(name: str, package: str) -> Callable[[ast.Module], Found]:
    """The first import of another maker's package at the head of a file, whatever guards it."""

    def find(tree: ast.Module) -> Found:
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == package:
                yield name, node, []

    return find


def takes(name: str, package: str, taken: str) -> Callable[[ast.Module], Found]:
    """The import of one name of a package that only another build of it has."""

    def find(tree: ast.Module) -> Found:
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module == package:
                for one in node.names:
                    if one.name == taken:
                        yield name, one, []

    return find


def names(name: str, function: str, attribute: str) -> Callable[[ast.Module], Found]:
    """Where `function` (any, if empty) takes something of another maker's library."""

    def find(tree: ast.Module) -> Found:
        for node in ast.walk(tree):
            if function and not (isinstance(node, ast.FunctionDef) and node.name == function):
                continue
            for one in ast.walk(node):
                if isinstance(one, ast.Attribute) and ast.unparse(one).startswith(attribute):
                    yield name, one, []
            if not function:
                return

    return find


_QUANTIZATION = "layers/quantization/"
_WRAPPERS = ("layers/deep_gemm_wrapper/", _QUANTIZATION + "deep_gemm_wrapper/")
SEARCHES: tuple[tuple[str, Callable[[ast.Module], Found]], ...] = (
    (_QUANTIZATION + "fp8_utils.py", fp8_products),
    (_QUANTIZATION + "unquant.py", bf16_products),
    *((folder + "configurer.py", deep_gemm) for folder in _WRAPPERS),
    ("layers/moe/fused_moe_triton/layer.py", dispatchers),
    ("layers/moe/ep_moe/layer.py", deepep),
    ("layers/moe/utils.py", named),
    ("layers/moe/token_dispatcher/moriep.py", imports("a2a.mori", "mori")),
    ("layers/moe/moe_runner/aiter.py", imports("runner.aiter", "aiter")),
    ("layers/moe/moe_runner/runner.py", runners),
    (_QUANTIZATION + "fp8.py", asked_by("experts.fp8", "Fp8MoEMethod")),
    (_QUANTIZATION + "unquant.py", asked_by("experts.bf16", "UnquantizedFusedMoEMethod")),
    (_QUANTIZATION + "mxfp4.py", refused_by("experts.mxfp4", "Mxfp4MoEMethod")),
    (_QUANTIZATION + "modelopt_quant.py", refused_by("experts.nvfp4", "ModelOptNvFp4FusedMoEMethod")),
    (_QUANTIZATION + "__init__.py", methods),
    *((_QUANTIZATION + f"{folder}gptq.py", other_names) for folder in ("", "gptq/")),
    ("configs/model_config.py", unknown_method),
    ("server_args.py", unquantized),
    ("arg_groups/serving_hook.py", unquantized),
    (_QUANTIZATION + "petit_utils.py", refuses("quant.petit_nvfp4", "prepare_nvfp4_layer_for_petit", "")),
    (
        _QUANTIZATION + "quark_int4fp8_moe.py",
        refuses("quant.quark_int4fp8_moe", "QuarkInt4Fp8MoEMethod.__init__", "not _is_hip"),
    ),
    (_QUANTIZATION + "npu_mxfp4.py", refuses("quant.mxfp_w4a8", "get_quant_method", "")),
    ("hardware_backend/npu/quantization/linear_method_npu.py", names("quant.modelslim", "", "torch.ops.npu.")),
    ("layers/attention/vision.py", refuses("mm.ascend_attn", "VisionAscendAttention.__init__", "not _is_npu")),
    (
        "layers/attention/vision.py",
        refuses("mm.aiter_attn", "VisionAiterAttention.__init__", "not (_is_hip|_use_aiter)"),
    ),
    ("layers/attention/vision.py", refuses("mm.amx_attn", "VisionAMXAttention.__init__", "not _is_cpu or .*")),
    ("layers/attention/vision.py", refuses("mm.xpu_attn", "VisionIntelXPUAttention.__init__", "not _is_xpu")),
    ("layers/attention/xpu_backend.py", takes("attention.intel_xpu", "sgl_kernel", "flash_mla_decode")),
    *((f"layers/attention/{stem}_backend.py", head("dsa.aiter", "aiter")) for stem in ("nsa", "dsa")),
    ("disaggregation/mori/conn.py", head("transfer.mori", "mori")),
    (
        "disaggregation/ascend/transfer_engine.py",
        refuses("transfer.ascend", "AscendTransferEngine.__init__", "import_error is not None"),
    ),
    ("lora/backend/ascend_backend.py", names("lora.ascend", "", "torch.ops.npu.")),
    (
        "layers/sampler.py",
        names("sampling.ascend", "top_k_top_p_min_p_sampling_from_logits_ascend", "torch_npu."),
    ),
)
