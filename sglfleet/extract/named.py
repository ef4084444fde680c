"""The named places that rules rest on, as the text of their conditions.

A rule asks for a name (`fusion.attention`); here stands where each release keeps it. What is tested is stored as text
and evaluated by the gate for one service, SM included. A place that is not there says so (`missing`).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from sglfleet.extract.checks import Guard, Reader, Scope
from sglfleet.extract.tree import SourceTree

SRT = "sglang/srt/"
Row = dict[str, Any]


@dataclass(frozen=True)
class Where:
    """A place: files, function, and the statement in it."""

    files: str  # regular expression on the path below sglang/srt/
    symbol: str  # regular expression on the dotted function name, searched
    take: Callable[[ast.stmt], ast.expr | None]  # the tested expression of a statement that is the place


def returned(*words: str) -> Callable[[ast.stmt], ast.expr | None]:
    """A return expression with all the words in it."""
    return lambda node: node.value if isinstance(node, ast.Return) and node.value and _has(node.value, words) else None


def tested(*words: str) -> Callable[[ast.stmt], ast.expr | None]:
    """The test of an `if` with all the words in it."""
    return lambda node: node.test if isinstance(node, ast.If) and _has(node.test, words) else None


def assigned(name: str, *words: str) -> Callable[[ast.stmt], ast.expr | None]:
    """What a name is assigned."""

    def take(node: ast.stmt) -> ast.expr | None:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name and _has(node.value, words):
            return node.value
        return None

    return take


def called(*words: str) -> Callable[[ast.stmt], ast.expr | None]:
    """A bare call."""
    return lambda node: node.value if isinstance(node, ast.Expr) and _has(node.value, words) else None


def _has(node: ast.AST, words: tuple[str, ...]) -> bool:
    text = ast.unparse(node)
    return all(word in text for word in words)


FUSION = "flashinfer_allreduce_fusion"
NAMED: dict[str, tuple[Where, ...]] = {
    "fusion.attention": (
        Where(r"layers/layer_boundary/residual/add_norm\.py", r"flashinfer_ar_fusion_applies$", returned(FUSION)),
        Where(r"layers/communicator\.py", r"^apply_flashinfer_allreduce_fusion$", returned(FUSION)),
        Where(r"layers/communicator\.py", r"", tested(f"enable_{FUSION}", "hasattr(layernorm")),
    ),
    "fusion.next-layer": (
        Where(
            r"layers/communicator\.py",
            r"should_fuse_mlp_allreduce_with_next_layer",
            assigned("static_conditions_met", FUSION),
        ),
        Where(r"layers/communicator\.py", r"should_fuse_mlp_allreduce_with_next_layer", returned(f"apply_{FUSION}")),
        Where(r"models/deepseek_v2\.py", r"_should_fuse_mlp_allreduce_with_next_layer", tested("_is_sm100_supported")),
    ),
    "fusion.preinit": (
        Where(
            r"layers/flashinfer_comm_fusion\.py", r"^pre_initialize_workspaces$", called("ensure_workspace_initialized")
        ),
    ),
    "fusion.preflight": (
        Where(r"layers/flashinfer_comm_fusion\.py", r"initialize$", tested("_preflight_check_workspace_memory")),
    ),
    "fusion.off": (Where(r"server_args\.py|arg_groups/.*", r"", tested(f"enforce_disable_{FUSION}")),),
    "fusion.deterministic": (
        Where(r"server_args\.py|arg_groups/.*", r"deterministic", tested("enable_deterministic_inference", FUSION)),
        Where(r"server_args\.py", r"deterministic", tested(f"self.enable_{FUSION}")),
    ),
    "symm-mem.sizes": (
        Where(
            r"distributed/device_communicators/(all_reduce_utils|torch_symm_mem|custom_all_reduce_utils)\.py",
            r"^$",
            assigned("TORCH_SYMM_MEM_ALL_REDUCE_MAX_SIZES"),
        ),
    ),
    "symm-mem.guard": (
        Where(
            r"distributed/device_communicators/torch_symm_mem\.py",
            r"__init__",
            tested("is None", "TORCH_SYMM_MEM_ALL_REDUCE"),
        ),
        Where(
            r"distributed/device_communicators/torch_symm_mem\.py", r"__init__", tested("supported_max_sizes is None")
        ),
    ),
    "deep-gemm.off": (
        Where(
            r"layers/deep_gemm_wrapper/configurer\.py|layers/quantization/deep_gemm.*",
            r"",
            tested("sm_version", "< 90"),
        ),
    ),
    "custom-all-reduce.pcie": (
        Where(
            r"distributed/device_communicators/custom_all_reduce\.py",
            r"__init__",
            tested("world_size > 2", "full_nvlink"),
        ),
    ),
    "mooncake.protocol": (
        Where(
            r"distributed/device_communicators/mooncake_transfer_engine\.py",
            r"",
            assigned("protocol", "MOONCAKE_PROTOCOL"),
        ),
        Where(r"distributed/device_communicators/mooncake_transfer_engine\.py", r"", assigned("ret_value", "'rdma'")),
    ),
    "moe-sum.applies": (
        Where(r"layers/moe/.*", r"", assigned("use_fused_moe_sum_all_reduce", "enable_fused_moe_sum_all_reduce")),
    ),
}

# flag of the engine -> assignments or overrides that turn it on unasked
AUTOMATIC = {
    f"enable_{FUSION}": ("enable-flashinfer-allreduce-fusion", "True"),
    f"{FUSION}_backend": ("flashinfer-allreduce-fusion-backend", "auto"),
}


class _Finder(Reader):
    """Looks for one place in one module."""

    def __init__(self, tree: SourceTree, path: str, where: Where) -> None:
        super().__init__(tree, path)
        self.where = where

    def seen(self, node: ast.stmt, guards: list[Guard], scope: Scope) -> None:
        if re.search(self.where.symbol, scope.symbol):
            test = self.where.take(node)
            if test is not None:
                guard = self._guard(test, scope)
                self.found.append(
                    {
                        "file": self.path,
                        "symbol": scope.symbol,
                        "line": guard.line,
                        "condition": guard.quote,
                        "test": guard.text,
                        "guards": [g.text for g in guards],
                    }
                )

    def _add(self, kind: str, node: ast.stmt, guards: list[Guard], scope: Scope, message: str) -> None:
        """Raises are the business of `checks`."""


class _Switches(_Finder):
    """Looks for what turns a flag on unasked."""

    def seen(self, node: ast.stmt, guards: list[Guard], scope: Scope) -> None:
        for field, value in _turned_on(node):
            if not guards:
                continue
            test = " and ".join(f"({guard.text})" for guard in guards)
            last = guards[-1]
            self.found.append(
                {
                    "flag": AUTOMATIC[field][0],
                    "value": value,
                    "file": self.path,
                    "symbol": scope.symbol,
                    "line": last.line,
                    "condition": last.quote,
                    "test": test,
                }
            )


def _turned_on(node: ast.stmt) -> Iterator[tuple[str, str]]:
    if isinstance(node, ast.Assign):
        for target in node.targets:
            if isinstance(target, ast.Attribute) and target.attr in AUTOMATIC:
                value = ast.unparse(node.value).strip("'")
                if value not in ("False", "None"):
                    yield target.attr, value
    if isinstance(node, ast.Return) and isinstance(node.value, ast.Dict):
        for key, item in zip(node.value.keys, node.value.values, strict=True):
            if isinstance(key, ast.Constant) and key.value in AUTOMATIC:
                value = ast.unparse(item).strip("'")
                if value not in ("False", "None"):
                    yield str(key.value), value


def named(tree: SourceTree) -> list[Row]:
    """All named places of a release."""
    rows = []
    for name, places in NAMED.items():
        row = next((found for where in places for found in _find(tree, where)), None)
        rows.append({"name": name, **row} if row else {"name": name, "missing": True})
    rows.append(_next_layer_architectures(tree))
    rows.append(_mla_architectures(tree))
    return rows


def _find(tree: SourceTree, where: Where) -> Iterator[Row]:
    pattern = re.compile(SRT + "(" + where.files + ")$")
    for path in tree.list(SRT):
        if pattern.match(path):
            yield from _Finder(tree, path, where).read()


def automatic(tree: SourceTree) -> list[Row]:
    """What a release turns on by itself."""
    rows: list[Row] = []
    for path in tree.list(SRT):
        if re.match(SRT + r"(server_args\.py|arg_groups/)", path) and FUSION in tree.read(path):
            rows += _Switches(tree, path, Where("", "", returned())).read()
    return [row for row in rows if "deprecat" not in row["symbol"] and "no_cli" not in row["test"]]


_MARKS = ("_sglang_needs_allreduce_fusion = True", "should_fuse_mlp_allreduce_with_next_layer(")


def _next_layer_architectures(tree: SourceTree) -> Row:
    """Architectures whose own file fuses the MLP's all-reduce with the next layer, and those that borrow from one."""
    marking: dict[str, str] = {}
    for path in tree.list(SRT + "models/"):
        text = tree.read(path)
        if any(mark in text for mark in _MARKS):
            marking[path] = text
    sure: set[str] = set()
    maybe: set[str] = set()
    modules = [path.removesuffix(".py").replace("/", ".") for path in marking]
    for path in tree.list(SRT + "models/"):
        text = tree.read(path)
        names = _entries(tree, path) if path in marking or any(module in text for module in modules) else []
        (sure if path in marking else maybe).update(names)
    name = "fusion.next-layer.archs"
    if not marking:
        return {"name": name, "missing": True}
    first = min(marking)
    line = next(n for n, row in enumerate(marking[first].splitlines(), 1) if any(mark in row for mark in _MARKS))
    quote = marking[first].splitlines()[line - 1].strip()
    return {
        "name": name,
        "file": first,
        "symbol": "",
        "line": line,
        "condition": quote,
        "value": sorted(sure),
        "maybe": sorted(maybe - sure),
    }


class _Mla(_Finder):
    """Collects the architectures that the model configuration gives multi-head latent attention."""

    def seen(self, node: ast.stmt, guards: list[Guard], scope: Scope) -> None:
        if isinstance(node, ast.Assign) and ast.unparse(node) == "self.attention_arch = AttentionArch.MLA" and guards:
            last = guards[-1]
            test = ast.parse(last.text, mode="eval").body
            # each branch of an `or` stands for itself: only the one that also asks for a field of the model is unsure
            branches = test.values if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.Or) else [test]
            for branch in map(ast.unparse, branches):
                self.found.append(
                    {
                        "line": last.line,
                        "quote": last.quote,
                        "names": re.findall(r"'([A-Z]\w+)'", branch),
                        "unsure": "getattr" in branch,
                        "at": scope.symbol,
                    }
                )


def _mla_architectures(tree: SourceTree) -> Row:
    path = SRT + "configs/model_config.py"
    found = _Mla(tree, path, Where("", "", returned())).read() if tree.has(path) else []
    if not found:
        return {"name": "mla.archs", "missing": True}
    sure = {name for row in found if not row["unsure"] for name in row["names"]}
    maybe = {name for row in found if row["unsure"] for name in row["names"]}
    first = found[0]
    return {
        "name": "mla.archs",
        "file": path,
        "symbol": first["at"],
        "line": first["line"],
        "condition": first["quote"][:200],
        "value": sorted(sure),
        "maybe": sorted(maybe - sure),
    }


def _entries(tree: SourceTree, path: str) -> list[str]:
    for node in tree.ast(path).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "EntryClass":
            items = node.value.elts if isinstance(node.value, ast.List | ast.Tuple) else [node.value]
            return [ast.unparse(item) for item in items]
    return []
