"""What FlashInfer's Python asks of the GPU before it runs a kernel: the table beside the rules that rest on it.

    python -m sglfleet.extract.libraries FOLDER-OF-UNPACKED-RELEASES > validators/rules/libraries.json

Places, each quoted as it stands: the list of capabilities over a back end's requirement
(`@supported_compute_capability([100, 103])`); the chain that picks the CUTLASS module of fused experts by the exact SM
and raises for every other one; the C++ function that says on which SM a compiled kernel of the trtllm experts runs.
What generators build is in the knowledge files; see `flashinfer.py`.
"""

from __future__ import annotations

import ast
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from packaging.version import Version

from sglfleet.extract.places import symbol_of

# back ends of products that SGLang asks for by name, and the wrappers of fused experts in CuTe DSL
_REQUIREMENT = re.compile(
    r"_(cudnn|trtllm|cutlass|cute_dsl)_gemm_(fp4|mxfp8|fp8_nt_groupwise)_requirement|cute_dsl_fused_moe_nvfp4|__init__"
)
_FILES = ("gemm.py", "gemm/gemm_base.py", "fused_moe/core.py", "fused_moe.py", "fused_moe/cute_dsl/fused_moe.py")
_DECORATOR = "supported_compute_capability"
_PICKER = "get_cutlass_fused_moe_module"
_RUNNER = "flashinfer/data/csrc/trtllm_batched_gemm_runner.cu"
_COMPATIBLE = re.compile(r"^bool isArchCompatible\(.*?^}", re.DOTALL | re.MULTILINE)
_RUNS_ON = re.compile(r"smVersion == (\d+)")
_OLD_TRTLLM = "trtllm_gen_fused_moe_sm100_module"  # before it was called gen_… and named the GPUs it is for
Row = list[object]


def _sm(number: int) -> str:
    return f"{number // 10}.{number % 10}"


def _lists(tree: ast.Module) -> Iterator[tuple[str, ast.AST, list[str]]]:
    """`name`, decorator, SMs: of functions, and of the constructor of a class by the class's name."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef) or not _REQUIREMENT.fullmatch(node.name):
            continue
        for decorator in node.decorator_list:
            if isinstance(decorator, ast.Call) and getattr(decorator.func, "id", "") == _DECORATOR and decorator.args:
                listed = decorator.args[0]
                if isinstance(listed, ast.List):
                    numbers = [item.value for item in listed.elts if isinstance(item, ast.Constant)]
                    name = node.name if node.name != "__init__" else symbol_of(tree, node.lineno).split(".")[0]
                    yield name, decorator, [_sm(one) for one in numbers if isinstance(one, int)]


def _picked(tree: ast.Module) -> Iterator[tuple[str, ast.AST, list[str]]]:
    """The SMs for which the chain of CUTLASS modules has a branch; the raise of the rest is the place."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name == _PICKER:
            chain = next((one for one in node.body if isinstance(one, ast.If)), None)
            found: list[str] = []
            while chain is not None:
                found += [
                    _sm(int(one.value))
                    for one in ast.walk(chain.test)
                    if isinstance(one, ast.Constant) and isinstance(one.value, str) and one.value.isdigit()
                ]
                rest = chain.orelse
                if rest and isinstance(rest[0], ast.Raise):
                    yield "moe.cutlass", rest[0], sorted(found, key=Version)
                chain = rest[0] if rest and isinstance(rest[0], ast.If) else None


def _old_trtllm(tree: ast.Module) -> Iterator[tuple[str, ast.AST, list[str]]]:
    """Compiled for SM 10.0 alone, by flags of its own."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name == _OLD_TRTLLM:
            for one in ast.walk(node):
                if isinstance(one, ast.Name) and one.id == "sm100a_nvcc_flags":
                    yield "moe.trtllm", one, ["10.0"]


def _compatible(path: Path) -> Iterator[tuple[str, Row]]:
    """The SMs that kernels of the trtllm experts are compiled for, by the runner that chooses among them."""
    text = path.read_text(encoding="utf-8")
    match = _COMPATIBLE.search(text)
    if match is not None:
        sms = sorted({_sm(int(number)) for number in _RUNS_ON.findall(match[0])}, key=Version)
        line = text[: match.start()].count("\n") + 1
        yield "moe.trtllm.kernels", [_RUNNER, line, "isArchCompatible", match[0].splitlines()[0].strip(), sms]


def libraries(root: Path) -> dict[str, Row]:
    """Name -> [file, line, symbol, quote, [SMs]] of one unpacked FlashInfer release."""
    found: dict[str, Row] = {}
    for tail in _FILES:
        path = root / "flashinfer" / tail
        if not path.is_file():
            continue
        source = path.read_text(encoding="utf-8")
        tree = ast.parse(source)
        lines = source.splitlines()
        for search in (_lists, _picked, _old_trtllm):
            for name, node, sms in search(tree):
                line: int = node.lineno  # type: ignore[attr-defined]
                row: Row = [f"flashinfer/{tail}", line, symbol_of(tree, line) or name, lines[line - 1].strip(), sms]
                found.setdefault(name, row)
    if (root / _RUNNER).is_file():
        found |= dict(_compatible(root / _RUNNER))
    return found


def main(folder: Path) -> None:
    prefix = "flashinfer-python-"
    table = {}
    for root in sorted(folder.glob(prefix + "*"), key=lambda path: Version(path.name.removeprefix(prefix))):
        table[root.name.removeprefix(prefix)] = libraries(root)
    rows = ",\n".join(f"  {json.dumps(name)}: {json.dumps(row)}" for name, row in table.items())
    sys.stdout.write("{\n" + rows + "\n}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
