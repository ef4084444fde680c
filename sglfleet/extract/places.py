"""Places outside argument resolution where a release stops for any GPU: the table beside the rules that rest on them.

    python -m sglfleet.extract.places FOLDER-OF-UNPACKED-RELEASES > validators/rules/places.json
    python -m sglfleet.extract.places FOLDER-OF-UNPACKED-RELEASES moe > validators/rules/places_moe.json

Each place is found by what it is (a call, an import, an assignment) and quoted as it stands. A release without it has
no row, and the rule then names the flag's own declaration or answers `unknown`.
"""

from __future__ import annotations

import ast
import json
import posixpath
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from packaging.version import Version

from sglfleet.extract import places_attention, places_environment, places_linear, places_moe

_FRACTION = re.compile(r"1 - .*\.mem_fraction_static")
_OLD_NAME = re.compile(r"getattr\(.*\) == 'compressed'")
_SRT = "sglang/srt/"
_PACKAGES = ("flashinfer_python", "sgl-kernel", "sglang-kernel")
Found = Iterator[tuple[str, ast.AST, list[str]]]


def _calls(tree: ast.Module) -> Found:
    """`assert_pkg_version("name", "minimum", …)`: name, call, [minimum]."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "assert_pkg_version" and len(node.args) > 1:
            name, least = (getattr(arg, "value", None) for arg in node.args[:2])
            if name in _PACKAGES and isinstance(least, str):
                yield f"minimum.{str(name).replace('_', '-')}", node.args[1], [least]


def _ranks(tree: ast.Module) -> Found:
    """The ranks of one node; none are started where the range is empty."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            name = getattr(node.targets[0], "id", "")
            if name in ("tp_rank_range", "pp_rank_range") and getattr(node.value.func, "id", "") == "range":
                yield f"ranks.{name[:2]}", node, []


def _serves(tree: ast.Module) -> Found:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("uvicorn.run", "uvicorn.Config"):
            yield "serve", node.func, []


def _fraction(tree: ast.Module) -> Found:
    """What is set aside of the memory: 1 - fraction."""
    for node in ast.walk(tree):
        if isinstance(node, ast.BinOp) and _FRACTION.fullmatch(ast.unparse(node)):
            yield "fraction", node, []


def _device(tree: ast.Module) -> Found:
    for node in ast.walk(tree):
        found = isinstance(node, ast.Attribute) and node.attr in ("set_device", "Stream")
        if found and ast.unparse(node).startswith("torch.get_device_module("):
            yield "device", node, []


def _replicas(tree: ast.Module) -> Found:
    """Everything but one replica is started by a controller, which asks the first of them for its size."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare) and ast.unparse(node) == "server_args.dp_size == 1":
            yield "replicas", node, []


def _imports(name: str, package: str) -> Callable[[ast.Module], Found]:
    def find(tree: ast.Module) -> Found:
        for node in ast.walk(tree):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            if any(one.split(".")[0] == package for one in names):
                yield name, node, []

    return find


def _operator(tree: ast.Module) -> Found:
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and ast.unparse(node) == "torch.ops.sgl_kernel.decode_attention_cpu":
            yield "attention.intel_amx", node, []


def _counter(tree: ast.Module) -> Found:
    """trtllm_mla hands FlashInfer a buffer that only one of FlashInfer's kernels takes."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]).endswith("['multi_ctas_kv_counter_buffer']"):
            yield "trtllm_mla.counter", node.targets[0], []
        if isinstance(node, ast.keyword) and node.arg == "multi_ctas_kv_counter_buffer":
            yield "trtllm_mla.counter", node.value, []


def _aliases(tree: ast.Module) -> Found:
    """Other names of attention back ends: a table, or before there were several one comparison."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "aliases":
            table = ast.literal_eval(node.value)
            for old, new in table.items():
                yield f"alias.{old}", node, [new]
        elif isinstance(node, ast.Compare) and _OLD_NAME.fullmatch(ast.unparse(node)):
            yield "alias.compressed", node, ["dsv4"]


def _oldest(tree: ast.Module) -> Found:
    """Symmetric memory: GPUs below a major are turned away with a warning before the table of sizes is asked."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare) and ast.unparse(node) == "self.device_capability < 9":
            yield "symm-mem.oldest", node, []


_ATTENTION = "layers/attention/"
Searches = tuple[tuple[str, Callable[[ast.Module], Found]], ...]
_SEARCHES: Searches = (
    ("distributed/device_communicators/torch_symm_mem.py", _oldest),
    ("distributed/device_communicators/symm_mem.py", _oldest),
    ("server_args.py", _aliases),
    ("arg_groups/serving_hook.py", _aliases),
    ("entrypoints/engine.py", _calls),
    ("entrypoints/engine.py", _ranks),
    ("entrypoints/engine.py", _replicas),
    ("entrypoints/http_server.py", _serves),
    ("model_executor/model_runner.py", _device),
    ("model_executor/model_runner.py", _fraction),
    ("model_executor/model_runner_kv_cache_mixin.py", _fraction),
    ("mem_cache/kv_cache_configurator.py", _fraction),
    ("model_executor/model_runner_components/kv_pool_runtime.py", _fraction),
    (_ATTENTION + "ascend_backend.py", _imports("attention.ascend", "torch_npu")),
    ("hardware_backend/npu/attention/ascend_backend.py", _imports("attention.ascend", "torch_npu")),
    (_ATTENTION + "aiter_backend.py", _imports("attention.aiter", "aiter")),
    (_ATTENTION + "wave_backend.py", _imports("attention.wave", "wave_lang")),
    (_ATTENTION + "intel_amx_backend.py", _operator),
    (_ATTENTION + "trtllm_mla_backend.py", _counter),
    *places_attention.SEARCHES,
    *places_linear.SEARCHES,
    *places_environment.SEARCHES,
)


def places(root: Path, searches: Searches = _SEARCHES) -> dict[str, list[object]]:
    """Name -> [file, line, symbol, quote, …] of one unpacked release; the first of a kind in a file counts."""
    found: dict[str, list[object]] = {}
    for tail, search in searches:
        path = root / _SRT / tail
        if not path.is_file():
            continue
        source = path.read_text(encoding="utf-8")
        tree = ast.parse(source)
        lines = source.splitlines()
        for name, node, more in search(tree):
            line: int = node.lineno  # type: ignore[attr-defined]
            quote = lines[line - 1].strip()
            found.setdefault(name, [posixpath.normpath(_SRT + tail), line, symbol_of(tree, line), quote, *more])
    return found


def symbol_of(tree: ast.Module, line: int) -> str:
    """Dotted name of the function or class around a line."""
    names = [
        (node.lineno, node.name)
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and node.lineno <= line <= (node.end_lineno or 0)
    ]
    return ".".join(name for _, name in sorted(names))


def main(folder: Path, family: str = "") -> None:
    searches = {"": _SEARCHES, "moe": places_moe.SEARCHES}[family]
    table = {}
    for root in sorted(folder.glob("sglang-[0-9]*"), key=lambda path: Version(path.name.removeprefix("sglang-"))):
        table[root.name.removeprefix("sglang-")] = places(root, searches)
    rows = ",\n".join(f"  {json.dumps(name)}: {json.dumps(row)}" for name, row in table.items())
    sys.stdout.write("{\n" + rows + "\n}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:3])
