"""Which models of a release reach the all-reduce fusion: the table beside the rule that rests on it.

    python -m sglfleet.extract.fused_models FOLDER-OF-UNPACKED-RELEASES > validators/rules/fused_models.json

The fusion stands where a layer's sum is completed: in the layer communicator, or the layer boundary of newer releases.
A model that never builds one completes its sums itself, and no flag fuses them. Read by name through `models/`: what a
class builds, derives from and names, over imports; with a `forward` of its own it does not inherit the mark for the
next layer.
"""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path

from packaging.version import Version

BUILDERS = ("LayerCommunicator", "append_stages", "make_stages", "make_attn_stage", "make_ffn_stage")
_GATES = ("apply_flashinfer_allreduce_fusion", "flashinfer_ar_fusion_applies")
_FILES = (
    "layers/layer_boundary/factories.py",
    "layers/layer_boundary/residual/add_norm.py",
    "layers/communicator.py",
    "server_args.py",
    "arg_groups/model_hook.py",
)
_MARK = "_sglang_needs_allreduce_fusion"
_DYNAMIC = frozenset({"ModelRegistry", "get_model_architecture", "AutoModel", "AutoModelForCausalLM"})
_SRT = "sglang/srt/"
_MODELS = "sglang.srt.models"
Key = tuple[str, str]


@dataclass(slots=True)
class Node:
    """A class, function or name at the top of a module; `made` is what a class names in its `__init__`."""

    bases: list[str] = field(default_factory=list)
    named: set[str] = field(default_factory=set)
    made: set[str] = field(default_factory=set)
    norms: set[str] = field(default_factory=set)
    builds: bool = False
    forward: bool = False
    alone: bool = False  # an `__init__` that does not run the one of its bases
    marks: bool = False


@dataclass(slots=True)
class Module:
    nodes: dict[str, Node] = field(default_factory=dict)
    imports: dict[str, Key] = field(default_factory=dict)
    entries: list[str] = field(default_factory=list)


def _read(statement: ast.stmt) -> Node:
    found = Node()
    if not isinstance(statement, ast.ClassDef):
        _look(statement, found, found.named)
        return found
    found.bases = [base.id for base in statement.bases if isinstance(base, ast.Name)]
    for one in statement.body:
        name = getattr(one, "name", "")
        _look(one, found, found.made if name == "__init__" else found.named)
        found.forward |= name == "forward"
        if name == "__init__":
            found.alone = "super().__init__" not in ast.unparse(one)
    return found


def _look(part_of: ast.stmt, found: Node, names: set[str]) -> None:
    for part in ast.walk(part_of):
        if isinstance(part, ast.Name):
            names.add(part.id)
            found.builds |= part.id in BUILDERS or part.id.endswith("LayerCommunicator")
        elif isinstance(part, ast.Call):
            name = part.func.attr if isinstance(part.func, ast.Attribute) else getattr(part.func, "id", "")
            if name.endswith("Norm"):
                found.norms.add(name)
        elif isinstance(part, ast.Attribute) and part.attr == _MARK and isinstance(part.ctx, ast.Store):
            found.marks = True


def _module(tree: ast.Module) -> Module:
    found = Module()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(_MODELS):
            for alias in node.names:
                found.imports[alias.asname or alias.name] = (str(node.module), alias.name)
    for statement in tree.body:
        if isinstance(statement, ast.ClassDef | ast.FunctionDef):
            found.nodes[statement.name] = _read(statement)
        elif isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            name = statement.targets[0].id
            found.nodes[name] = _read(statement)
            if name == "EntryClass":
                found.entries = [part.id for part in ast.walk(statement.value) if isinstance(part, ast.Name)]
    return found


def modules(root: Path) -> dict[str, Module]:
    """Dotted name -> module, of everything under `models/`."""
    found = {}
    for path in sorted((root / _SRT / "models").rglob("*.py")):
        name = ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")
        found[name] = _module(ast.parse(path.read_text(encoding="utf-8-sig")))
    return found


def fusing_norms(root: Path) -> frozenset[str]:
    """Norms with a fused forward."""
    tree = ast.parse((root / _SRT / "layers/layernorm.py").read_text(encoding="utf-8-sig"))
    return frozenset(
        node.name
        for node in tree.body
        if isinstance(node, ast.ClassDef)
        and any(getattr(one, "name", "") == "forward_with_allreduce_fusion" for one in node.body)
    )


def _find(known: dict[str, Module], module: str, name: str) -> Key | None:
    for _ in range(8):  # a name may be handed on by several modules
        here = known.get(module)
        if here is None:
            return None
        if name in here.nodes:
            return module, name
        if name not in here.imports:
            return None
        module, name = here.imports[name]
    return None


def _links(known: dict[str, Module], key: Key, names: Iterator[str] | list[str] | set[str]) -> Iterator[Key]:
    for name in names:
        found = _find(known, key[0], name)
        if found is not None and found != key:
            yield found


def _reach(known: dict[str, Module], entry: Key) -> set[Key]:
    """What a model uses. A class that is only derived from is looked through, and is not itself used."""
    used: set[Key] = set()
    seen: set[tuple[Key, bool, bool]] = set()
    todo = [(entry, True, True)]
    while todo:
        step = todo.pop()
        if step in seen:
            continue
        seen.add(step)
        key, whole, direct = step
        if direct:
            used.add(key)
        node = known[key[0]].nodes[key[1]]
        names = node.named | node.made if whole else node.named
        todo += [(found, True, True) for found in _links(known, key, names)]
        todo += [(base, whole and not node.alone, False) for base in _links(known, key, node.bases)]
    return used


def _norms(known: dict[str, Module], key: Key) -> frozenset[str]:
    one = known[key[0]].nodes[key[1]]
    if one.norms:
        return frozenset(one.norms)
    return frozenset().union(*(_norms(known, base) for base in _links(known, key, one.bases)))


def _marks(known: dict[str, Module], key: Key) -> bool:
    """Its own forward decides; without one, the forward it inherits."""
    one = known[key[0]].nodes[key[1]]
    if one.marks or one.forward:
        return one.marks
    return any(_marks(known, base) for base in _links(known, key, one.bases))


def _builds(known: dict[str, Module], key: Key) -> bool:
    one = known[key[0]].nodes[key[1]]
    return one.builds or any(_builds(known, base) for base in _links(known, key, one.bases))


def state(known: dict[str, Module], entry: Key, norms: frozenset[str]) -> str:
    """`plain` (no sum of it is fused), `fused`, `marked` (fused, and hands on the sum of the MLP), or `unsure`."""
    used = _reach(known, entry)
    if any((known[key[0]].nodes[key[1]].named | known[key[0]].nodes[key[1]].made) & _DYNAMIC for key in used):
        return "unsure"
    builders = [key for key in used if _builds(known, key)]
    if not builders:
        near = {key[0] for key in used}
        return "unsure" if any(node.builds for name in near for node in known[name].nodes.values()) else "plain"
    kinds = {bool(_norms(known, key) & norms) for key in builders}
    if kinds == {False}:
        return "plain" if all(_norms(known, key) for key in builders) else "unsure"
    if kinds != {True}:
        return "unsure"
    return "marked" if any(_marks(known, key) for key in builders) else "fused"


def models(root: Path) -> dict[str, str]:
    """Architecture -> state, of one unpacked release."""
    known, norms = modules(root), fusing_norms(root)
    return {
        entry: state(known, (name, entry), norms)
        for name, module in known.items()
        for entry in module.entries
        if entry in module.nodes
    }


def places(root: Path) -> dict[str, list[object]]:
    """Name -> [file, line, symbol, quote, text]: what a model builds, the layers' own test, what switches it off."""
    found: dict[str, list[object]] = {}
    for tail in _FILES:
        path = root / _SRT / tail
        source = path.read_text(encoding="utf-8") if path.is_file() else ""
        lines = source.splitlines()
        for name, symbol, node, text in _places(ast.parse(source)):
            found.setdefault(name, [_SRT + tail, node.lineno, symbol, lines[node.lineno - 1].strip(), text])
    return found


def _places(tree: ast.Module) -> Iterator[tuple[str, str, ast.stmt, str]]:
    for outer in ast.walk(tree):
        if not isinstance(outer, ast.ClassDef | ast.FunctionDef):
            continue
        if outer.name in BUILDERS:
            yield "home", outer.name, outer, ""
        if isinstance(outer, ast.ClassDef):
            continue
        if outer.name in _GATES:
            for last in outer.body:
                if isinstance(last, ast.Return) and last.value is not None:
                    yield "gate", outer.name, last, ast.unparse(last.value)
        for node in ast.walk(outer):
            if isinstance(node, ast.If) and "enable_deterministic_inference" in ast.unparse(node.test):
                yield from (("deterministic", outer.name, one, "") for one in node.body if _switches_off(one))


def _switches_off(node: ast.stmt) -> bool:
    """`self.enforce_disable_… = True`, or the same declared to the resolver."""
    return "enforce_disable_flashinfer_allreduce_fusion=True" in ast.unparse(node).replace(" ", "")


def main(folder: Path) -> None:
    roots = sorted(folder.glob("sglang-[0-9]*"), key=lambda path: Version(path.name.removeprefix("sglang-")))
    releases = [path.name.removeprefix("sglang-") for path in roots]
    states = [models(path) for path in roots]
    table = {}
    for name in sorted(set().union(*states)):
        runs = groupby(found.get(name, "none") for found in states)
        table[name] = " ".join(f"{key}:{len(list(group))}" for key, group in runs)
    out = {"releases": releases, "places": [places(path) for path in roots], "models": table}
    sys.stdout.write(json.dumps(out, indent=0) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
