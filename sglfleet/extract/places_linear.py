"""Places of linear attention: what its dispatchers take, which GPUs its kernels ask for, what stands around them.

Finders for `sglfleet.extract.places`; a fifth column as in `places_attention`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator

Found = Iterator[tuple[str, ast.AST, list[str]]]
Finder = Callable[[ast.Module], Found]
_ATTENTION = "layers/attention/"
_LINEAR = _ATTENTION + "linear/"
_KERNELS = ("gdn_flashinfer", "kda_flashinfer")
_PREFILLING = ("gdn_cutedsl", "kda_cutedsl", "kda_nvidia", "kda_ptx")
_SMS = ((8, 0), (8, 6), (8, 9), (9, 0), (10, 0), (10, 3), (11, 0), (12, 0), (12, 1))
_ASKS = re.compile(r"(major|torch\.cuda\.get_device_capability\(\)(?:\[0\])?) (>=|==) (\d+|\(\d+, \d+\))")


def linear_chains(tree: ast.Module) -> Found:
    """What the dispatchers of linear attention make of each back end, by stage: `takes` or `refuses`."""
    for cls in ast.walk(tree):
        if isinstance(cls, ast.ClassDef) and cls.name in ("GDNKernelDispatcher", "KDAKernelDispatcher"):
            kind = cls.name[:3].lower()
            for method in cls.body:
                if isinstance(method, ast.FunctionDef) and method.name == "__init__":
                    for node in method.body:
                        yield from _linear_chain(kind, node)


def _linear_chain(kind: str, node: ast.stmt) -> Found:
    while isinstance(node, ast.If):
        asked = re.fullmatch(r"(decode|prefill|verify)_backend\.is_(\w+)\(\)", ast.unparse(node.test))
        if asked is None:
            return
        stage, backend = asked[1], asked[2]
        stop = _stop(node.body)
        if stop is not None:
            yield f"linear.{kind}.{stage}.{backend}", stop, ["refuses"]
        else:
            yield f"linear.{kind}.{stage}.{backend}", node.test, ["takes", *_class(node.body)]
        rest = node.orelse
        if len(rest) == 1 and isinstance(rest[0], ast.If):
            node = rest[0]
            continue
        stop = _stop(rest)
        if stop is not None:
            yield f"linear.{kind}.{stage}.others", stop, ["refuses"]
        return


def _stop(body: list[ast.stmt]) -> ast.stmt | None:
    """A raise that is met on NVIDIA for certain: unconditional, or where the device is another maker's."""
    for node in body:
        if isinstance(node, ast.Raise):
            return node
        if isinstance(node, ast.If) and re.fullmatch(r"not is_(xpu|npu|hip)\(\)", ast.unparse(node.test)):
            return next((child for child in node.body if isinstance(child, ast.Raise)), None)
    return None


def _class(body: list[ast.stmt]) -> list[str]:
    """The kernel class that the branch imports; a branch that asks it what it can do falls back by itself."""
    whole = " ".join(ast.unparse(node) for node in body)
    fallback = ["fallback"] if "supports_prefill" in whole else []
    names = [node.names[0].name for node in _imports(body)]
    return [f"{names[0]} {' '.join(fallback)}".strip()] if names else []


def _imports(body: list[ast.stmt]) -> list[ast.ImportFrom]:
    found = [node for child in body for node in ast.walk(child) if isinstance(node, ast.ImportFrom)]
    return [node for node in found if "kernels" in (node.module or "")]


def linear_kernels(tree: ast.Module) -> Found:
    """Classes of kernels: the lowest major that their loader takes."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare) and re.fullmatch(
            r"torch\.cuda\.get_device_capability\(\)\[0\] >= \d+", ast.unparse(node)
        ):
            least = ast.unparse(node.comparators[0])
            for cls in tree.body:
                if isinstance(cls, ast.ClassDef) and cls.name.startswith("FlashInfer"):
                    yield f"linear.kernel.{cls.name}", node, [least]


def linear_supports(tree: ast.Module) -> Found:
    """SMs on which a kernel class says that it can prefill; elsewhere the dispatcher takes triton."""
    helpers = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    for cls in tree.body:
        for node in ast.walk(cls) if isinstance(cls, ast.ClassDef) else ():
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "self.supports_prefill":
                named = node.value.func if isinstance(node.value, ast.Call) else None
                where: ast.AST = helpers.get(named.id, node) if isinstance(named, ast.Name) else node
                for test in (one for one in ast.walk(where) if isinstance(one, ast.Compare)):
                    sms = _sms(test)
                    if sms and isinstance(cls, ast.ClassDef):
                        yield f"linear.supports.{cls.name}", test, [" ".join(sms)]


def _sms(test: ast.Compare) -> list[str]:
    """SMs that pass a comparison with a literal; a table of another module is its name."""
    text = ast.unparse(test)
    if text.endswith(" in SM_ARCHS"):
        return ["SM_ARCHS"]
    asks = _ASKS.fullmatch(text)
    if asks is None:
        return []
    wanted = ast.literal_eval(asks[3])
    found = []
    for sm in _SMS:
        one = sm if isinstance(wanted, tuple) else sm[0]
        if one == wanted or (asks[2] == ">=" and one > wanted):
            found.append(f"{sm[0]}.{sm[1]}")
    return found


def gdn_allowed(tree: ast.Module) -> Found:
    """Back ends that a hybrid GDN model may have on the GPUs that this release calls Blackwell; SM 12.x apart."""
    named = {
        node.targets[0].id: node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
    }
    for function in tree.body:
        if not isinstance(function, ast.FunctionDef) or function.name != "attn_backend_wrapper":
            continue
        for node in ast.walk(function):
            if not isinstance(node, ast.If):
                continue
            apart = "is_sm120" in ast.unparse(node.test)
            for name, body in ((".12", node.body), ("", node.orelse)):
                for child in body if apart else ():
                    if isinstance(child, ast.Assign) and ast.unparse(child.targets[0]) == "allowed":
                        value = child.value
                        value = named.get(value.id, value) if isinstance(value, ast.Name) else value
                        words = [n.value for n in ast.walk(value) if isinstance(n, ast.Constant)]
                        yield f"gdn.allowed{name}", child, [" ".join(sorted(map(str, words)))]


def hybrid(tree: ast.Module) -> Found:
    """Where a model without linear-attention layers passes by everything about them."""
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and "mambaish_config" in ast.unparse(node.test):
            yield "linear.asked", node.test, []


def imported(name: str, package: str) -> Finder:
    def find(tree: ast.Module) -> Found:
        for node in ast.walk(tree):
            if isinstance(node, ast.Import) and any(alias.name.split(".")[0] == package for alias in node.names):
                yield name, node, []

    return find


SEARCHES: tuple[tuple[str, Finder], ...] = (
    (_ATTENTION + "attention_registry.py", gdn_allowed),
    (_LINEAR + "gdn_backend.py", linear_chains),
    (_LINEAR + "kda_backend.py", linear_chains),
    *((_LINEAR + f"kernels/{name}.py", linear_kernels) for name in _KERNELS),
    *((_LINEAR + f"kernels/{name}.py", linear_supports) for name in _PREFILLING),
    (_LINEAR + "kernels/kda_flashkda.py", imported("linear.package.flashkda", "flash_kda")),
    (_LINEAR + "kernels/kda_helion.py", imported("linear.package.helion", "helion")),
    (_ATTENTION + "attention_registry.py", hybrid),
)
