"""What a release picks by itself on each SM when a flag is left out: the branches that fill an empty value."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from sglfleet.extract.evaluate import CUDA, SMS, Machine, State
from sglfleet.extract.evaluate_modules import source
from sglfleet.extract.evaluate_values import FALSE, NONE, TRUE, Function, Value, const, join
from sglfleet.extract.sites import Survey, functions

# a plain language model, no speculative decoding: what is said of other models is another table's business
PLAIN_MODEL = {
    "is_no_spec_infer_or_topk_one": TRUE, "speculative_algorithm": NONE, "speculative_eagle_topk": NONE,
    "has_asymmetric_kv": FALSE, "has_attention_sinks": FALSE, "is_fa3_default_architecture": TRUE,
    "enable_hierarchical_cache": FALSE, "architectures": const(("LlamaForCausalLM",)), "is_encoder_decoder": FALSE,
    "attention_backend": NONE, "prefill_attention_backend": NONE, "decode_attention_backend": NONE,
}  # fmt: skip


@dataclass(frozen=True)
class Choice:
    """A value that is filled in: where the code may stand, and what is taken for granted there."""

    name: str
    files: re.Pattern[str]
    function: re.Pattern[str]  # the function that holds it
    test: re.Pattern[str] | None  # the `if` whose body fills it; None: what the function returns
    targets: tuple[str, ...]  # names or fields that are set
    assume: dict[str, Value] = field(default_factory=dict)


_ARGS = re.compile(r"sglang/srt/(server_args|model_executor/model_runner|arg_groups/.*)\.py$")
_EMPTY = re.compile(r"^(not )?\w+(\.\w+)*\.attention_backend( is None)?$")
_OLD = re.compile(r"_handle_attention_backend_compatibility$|model_specific_adjustment$")
_DETERMINISTIC = re.compile(r"_deterministic_attention_backend$|_handle_deterministic_inference$")
_NEW = re.compile(r"(get_default_attn_backend|_get_default_attn_backend)$")
_BACKEND = ("attention_backend", "backend")


def _attention(name: str, mla: bool) -> tuple[Choice, ...]:
    assume = PLAIN_MODEL | {"use_mla_backend": TRUE if mla else FALSE}
    return (
        Choice(name, _ARGS, _NEW, None, (), assume),
        Choice(name, _ARGS, _OLD, _EMPTY, _BACKEND, assume),
    )


def _deterministic(name: str, deepseek: Value) -> tuple[Choice, ...]:
    assume = {"is_deepseek_model": deepseek, "_deterministic_is_deepseek_model": deepseek}
    return (Choice(name, _ARGS, _DETERMINISTIC, _EMPTY, _BACKEND, assume),)


CHOICES = (
    *_attention("attention.default.mha", False),
    *_attention("attention.default.mla", True),
    *_deterministic("deterministic.attention", FALSE),
    *_deterministic("deterministic.attention.deepseek", TRUE),
)


def tables(survey: Survey) -> dict[str, Any]:
    """Name -> {file, symbol, line, condition, by_sm: {SM: value, or a list where it depends on more, or null}}.

    A table that is not there was not found in the release: the code moved or is new, and nothing is said.
    """
    found: dict[str, Any] = {}
    for choice in CHOICES:
        if choice.name not in found:
            row = next(_rows(survey, choice), None)
            if row is not None:
                found[choice.name] = row
    return dict(sorted(found.items()))


def _rows(survey: Survey, choice: Choice) -> Iterator[dict[str, Any]]:
    for module, path in sorted(survey.modules.files.items(), key=lambda item: item[1]):
        if not choice.files.match(path):
            continue
        text = survey.modules.text(module)
        if "attention_backend" not in text and "attn_backend" not in text:
            continue
        for symbol, function in functions(survey.modules, module):
            if choice.function.search(symbol):
                node = _place(text, function, choice)
                if node is not None:
                    by_sm = {sm: _answer(survey, sm, function, node, choice) for sm in SMS}
                    if any(by_sm.values()):
                        yield {
                            "file": path,
                            "symbol": symbol,
                            "line": (node.test if isinstance(node, ast.If) else node).lineno,
                            "condition": source(text, node.test) if isinstance(node, ast.If) else "",
                            "by_sm": by_sm,
                        }


def _place(text: str, function: Function, choice: Choice) -> ast.If | ast.FunctionDef | None:
    if choice.test is None:
        return function.node if isinstance(function.node, ast.FunctionDef) else None
    for node in ast.walk(function.node):
        if isinstance(node, ast.If) and choice.test.match(source(text, node.test)):
            return node
    return None


def _answer(survey: Survey, sm: str, function: Function, node: ast.If | ast.FunctionDef, choice: Choice) -> Any:
    machine = Machine(survey.modules, sm, CUDA, dict(choice.assume), survey.sm_conditions)
    machine.globals = survey.machine(sm).globals
    state = machine.enter(function)
    for name in ("use_mla_backend", "is_deepseek_model"):
        if name in choice.assume:
            state.env[name] = choice.assume[name]
    taken: list[Value] = []

    def note(name: str, value: Value, _state: State, _node: ast.stmt) -> None:
        if name.rpartition(".")[2] in choice.targets:
            taken.append(value)

    machine.assigned = note
    machine.block(node.body, state)
    values = taken if choice.test is not None else state.returns
    options = join(values).options if values else None
    names = sorted({x for x in options or () if isinstance(x, str)})
    if not names or len(names) != len(options or ()):
        return None
    return names[0] if len(names) == 1 else names
