"""What is kept of a condition of argument resolution: as text that the gate can evaluate, or as one it cannot tell."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from sglfleet.extract.checks import Guard
from sglfleet.extract.symbols import VIEW
from validators.conditions import UNKNOWN, atoms, holds

LONGEST = 1_200  # characters of one condition; a longer one is kept as one that nobody can tell
LONGEST_VALUE = 200
FIELD = re.compile(r"\.(\w+)")
_PATH = re.compile(r"model_path\)?\.lower\(\)$")
ALIAS = "_resolve_speculative_algorithm_alias"
_ELSEWHERE = re.compile(r"(is_|_is_)(hip|npu|xpu|mps|musa|cpu|hpu)\b|use_mlx\(\)")
_IS_MODEL = re.compile(r"[\w.()]*(architectures\[0\]|model_arch) (in|==) [\['(][\w\[\]'(), ]*$")
# what the gate can know of a case beside its flags: the GPU, the architecture, the environment, the stages' back ends
_TELLABLE = re.compile(
    r"^_?is_\w+\(\)$|platform|capability|architectures\[0\]$|model_arch$|^envs\.|backends?(_str)?(_of\(.*\)|\(\))?$|\bmajor$|\bminor$"
    r"|use_mla_backend|Backend\([\w.()]+\)\.is_\w+\(\)$|is_deepseek|is_attention_backend_not_set|ConnectorType|device_sm|prefer_custom_dsv41|\.decision_config$|_enabled_of\("
    r"|hf_config(\.\w+)?$|model_config(_of\(\w+\)|\(\))?\.\w+$|^as_given_\w+$|^importable\(|^SpeculativeAlgorithm\.([A-Z_0-9]+|from_string\(cfg\.speculative_algorithm\))$|^get_linear_attn_spec\(hf_config\)(\.\w+)?$"
)
_TOLD = re.compile(r"[\w.'\"+-]{1,60}(\.upper\(\))?$|\[[\w.'\", -]{0,60}\]$|-?\d+$")


def texts_of(guards: list[Guard]) -> list[str]:
    """What is evaluated. A path names a model (not `none`, not another instance), and arguments are resolved once."""
    here = [part for g in guards for part in parts_of(g.text) if holds(part, _at_every_launch) is not True]
    if any(_IS_MODEL.match(text) for text in here):  # then it is none of the models asked for before
        here = [text for text in here if not (text.startswith("not (") and _IS_MODEL.match(text[5:]))]
    here = [VIEW.sub("cfg", text) for text in here]
    texts = [text if len(text) <= LONGEST else "something_long" for text in here]
    return list(dict.fromkeys(texts))


def _at_every_launch(atom: str) -> Any:
    """A path names a model, not another instance of the engine; arguments are resolved once; there is no plugin."""
    if atom.startswith("parse_connector_type(") or _PATH.search(atom):
        return "a model"
    if atom.endswith(("._resolution_finished", "._resolution_failed")) or atom.endswith(", CustomSpecAlgo)"):
        return False
    return atom if atom == "ConnectorType.INSTANCE" else UNKNOWN


@lru_cache(maxsize=4096)
def parts_of(text: str) -> tuple[str, ...]:
    """`a and b` as two conditions, and `not (a or b)` too: each may be told without the other."""
    return tuple(
        ast.unparse(node) if negated is None else f"not ({ast.unparse(node)})" for node, negated in _parts(text)
    )


def _parts(text: str) -> Iterator[tuple[ast.expr, bool | None]]:
    tree = ast.parse(text, mode="eval").body
    stack: list[tuple[ast.expr, bool]] = [(tree, False)]
    while stack:
        node, negated = stack.pop()
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            stack.append((node.operand, not negated))
        elif isinstance(node, ast.BoolOp) and isinstance(node.op, ast.Or if negated else ast.And):
            stack += [(value, negated) for value in reversed(node.values)]
        else:
            yield node, negated or None


def tellable(text: str, fields: frozenset[str]) -> bool:
    """Can the gate ever tell such a condition. One of several parts that cannot be told may not matter."""
    if text.startswith("something_"):
        return False
    if " or " in text or (text.startswith("not ") and " and " in text):
        return True
    return all(_TELLABLE.search(atom) or atom.rpartition(".")[2] in fields for atom in atoms(text))


def told(value: str, fields: frozenset[str]) -> str:
    """What a field is set to, as far as the gate can tell it: a literal, another field, a choice between such."""
    if value.startswith(ALIAS + "("):
        return f"{ALIAS}(cfg.speculative_algorithm)"
    if "get_default_attn_backend(" in value:
        return "default_attention()"
    choice = len(value) <= LONGEST_VALUE and " if " in value and " or " not in value
    return value if _TOLD.match(value) or (choice and tellable(value, fields)) else ""


def needs_of(guards: list[str], known: dict[str, Any]) -> list[str] | None:
    """Fields at whose default one of the conditions does not hold; None: it holds on no NVIDIA GPU at all."""
    needs: set[str] = set()
    for guard in guards:
        if holds(guard, _not_elsewhere) is False:
            return None
        asked = {name for name in FIELD.findall(guard) if name in known}
        if len(asked) == 1:
            name = next(iter(asked))

            def lookup(atom: str, name: str = name) -> Any:
                return known[name] if atom.endswith("." + name) else UNKNOWN

            if holds(guard, lookup) is False:
                needs.add(name)
    return sorted(needs)


def _not_elsewhere(atom: str) -> Any:
    """Questions about other makers' devices have one answer on an NVIDIA GPU."""
    return False if _ELSEWHERE.search(atom) else UNKNOWN
