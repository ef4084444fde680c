"""Options of both generations of the parser, against argparse itself where it can be asked."""

from __future__ import annotations

import pytest

from sglfleet.extract.annotated import doubts
from sglfleet.extract.flags import flags
from sglfleet.extract.tree import ExtractError
from tests.sglfleet.extract.trees import SERVER_ARGS, interpreter

OLD = """
import argparse, dataclasses, json
from typing import Optional
from sglang.srt.names import Parser, SUPPORTED, nullable, Backend
CHOICES = ["a", "b"]
CHOICES.append("c")

@dataclasses.dataclass
class ServerArgs:
    model_path: str
    tp_size: int = 1
    tags: list = dataclasses.field(default_factory=list)
    mode: str = SUPPORTED[0]
    seed: Optional[int] = None
    off: bool = dataclasses.field(default=False)
    hooks: Optional[list] = None
    inner: int = 5

    @staticmethod
    def add_cli_args(parser: argparse.ArgumentParser):
        # Model
        parser.add_argument("--model-path", "--model", type=str, required=True, help="The model. More text.")
        parser.add_argument("--tensor-parallel-size", "--tp-size", type=int, default=ServerArgs.tp_size)
        names = list(Parser.MAP.keys())
        # Parsers
        parser.add_argument("--parser", choices=["auto"] + names, default="auto", help=f"One of {names}.")
        parser.add_argument("--mode", choices=CHOICES + [x for x in SUPPORTED], default=ServerArgs.mode)
        parser.add_argument("--off", action="store_true", help=argparse.SUPPRESS)
        parser.add_argument("--tri", action=argparse.BooleanOptionalAction, default=None)
        parser.add_argument("--hooks", type=json.loads, nargs="*", default=ServerArgs.hooks)
        parser.add_argument("--ratio", type=float, nargs="?", const=0.5, default=compute())
        parser.add_argument("--gone", action=Deprecated, help="NOTE: --gone is deprecated. Use --mode instead.")
        parser.add_argument("--backend", choices=[b.value for b in Backend], type=nullable)
        if machine():
            parser.add_argument("--maybe", action="store_true")

    @classmethod
    def from_cli_args(cls, args):
        args.tp_size = args.tensor_parallel_size
        return cls()

class Deprecated(argparse.Action):
    def __init__(self, option_strings, dest, nargs=0, **kwargs):
        super().__init__(option_strings, dest, nargs=nargs, **kwargs)
    def __call__(self, parser, namespace, values, option_string=None):
        raise ValueError(self.help)
"""
NAMES = """
from enum import Enum
class Detector: pass
class Parser:
    MAP = {"x": Detector, "y": Detector}
SUPPORTED = ("s1", "s2")
class Backend(str, Enum):
    ONE = "one"
    TWO = "two"
def nullable(text: str) -> "str | None":
    return text or None
"""


def old() -> dict[str, dict[str, object]]:
    rows, _ = flags(interpreter({SERVER_ARGS: OLD, "sglang/srt/names.py": NAMES}))
    return {row["name"]: row for row in rows}


def test_names_spellings_and_fields_of_the_first_generation():
    rows = old()
    assert rows["model-path"]["spellings"] == ["--model-path", "--model"]
    assert rows["model-path"]["required"] is True
    assert rows["model-path"]["help"] == "The model"
    assert rows["tp-size"]["spellings"] == ["--tensor-parallel-size", "--tp-size"]
    assert (rows["tp-size"]["dest"], rows["tp-size"]["field"]) == ("tensor_parallel_size", "tp_size")
    assert (rows["tp-size"]["type"], rows["tp-size"]["default"]) == ("int", 1)
    assert rows["parser"]["group"] == "Parsers"


def test_choices_that_are_built_elsewhere():
    rows = old()
    assert rows["parser"]["choices"] == ["auto", "x", "y"]
    assert rows["mode"]["choices"] == ["a", "b", "c", "s1", "s2"]
    assert rows["backend"]["choices"] == ["one", "two"]
    assert rows["mode"]["default"] == "s1"


def test_forms_of_values():
    rows = old()
    assert rows["off"]["hidden"] is True
    assert (rows["off"]["kind"], rows["off"]["default"], rows["off"]["const"]) == ("switch", False, True)
    assert rows["tri"]["spellings"] == ["--tri", "--no-tri"]
    assert rows["tri"]["kind"] == "tristate"
    assert (rows["hooks"]["type"], rows["hooks"]["nargs"]) == ("json", "*")
    assert (rows["ratio"]["nargs"], rows["ratio"]["const"]) == ("?", 0.5)


def test_what_cannot_be_known_is_said_and_not_guessed():
    rows = old()
    assert rows["ratio"]["default"] is None
    assert rows["ratio"]["default_source"] == "compute()"
    assert rows["maybe"]["notes"] == ["only if machine()"]


def test_a_flag_that_stops_the_launch():
    gone = old()["gone"]
    assert gone["refused"] == "NOTE: --gone is deprecated. Use --mode instead."
    assert (gone["replacement"], gone["nargs"], gone["kind"]) == ("mode", 0, "switch")


def test_fields_without_a_flag_keep_their_defaults():
    _, fields = flags(interpreter({SERVER_ARGS: OLD, "sglang/srt/names.py": NAMES}))
    assert fields == {"tags": [], "seed": None, "inner": 5}


NEW = """
from sglang.srt.arg_groups.arg_utils import add_cli_args_from_dataclass, A, Arg
from sglang.srt.environ import envs
from typing import List, Literal, Optional
KINDS = {"k1", "k2"}

class First:
    _NS_PATH = "exec.first"
    derived = Derived(fn="x")
    attn: A[str | None, Arg(help="Deprecated. Use --kind instead.", choices=["p", "q"], aliases=["--attention"])] = None
    many: A[List[int], "Several."] = field(default_factory=lambda: [1, 2])
    level: A[Literal["low", "high"], "Level."] = "low"
    quiet: A[bool, Arg(help="Quiet.", resolvable=True)] = False
    hidden_field: A[int, Arg(help="No flag.", no_cli=True)] = 7
    plain: int = 3
    size: A[Optional[int], Arg(help="Size.", cli_name="--the-size", nargs="?", const=4)] = None
    must: A[str, "Needed."]

class ServerArgs:
    @staticmethod
    def add_cli_args(parser):
        add_cli_args_from_dataclass(parser, ServerArgs)
        kinds = set(KINDS)
        if envs.EXTRA.get():
            kinds.add("k3")
        parser.add_argument("--kind", choices=kinds, default=_declared_default("level"))

_INPUT_NAMESPACES = [First]
"""
ENVIRON = "class Envs:\n    EXTRA = EnvBool(False)\nenvs = Envs()\nclass EnvBool: pass\n"
ORDER = 'POSITIONAL_FIELD_ORDER = ("must", "attn")\n'


def new() -> list[dict[str, object]]:
    files = {
        SERVER_ARGS: NEW,
        "sglang/srt/arg_groups/field_order.py": ORDER,
        "sglang/srt/environ.py": ENVIRON,
    }
    rows, fields = flags(interpreter(files))
    assert fields == {"hidden_field": 7, "plain": 3}
    return rows


def test_annotated_fields_become_options_in_the_parsers_order():
    assert [r["name"] for r in new()] == ["must", "attn", "many", "level", "quiet", "the-size", "kind"]


def test_annotated_options():
    rows = {row["name"]: row for row in new()}
    assert rows["attn"]["spellings"] == ["--attn", "--attention"]
    assert (rows["attn"]["choices"], rows["attn"]["group"]) == (["p", "q"], "exec.first")
    assert rows["attn"]["replacement"] == "kind"
    assert (rows["many"]["nargs"], rows["many"]["type"], rows["many"]["default"]) == ("+", "int", [1, 2])
    assert rows["level"]["choices"] == ["low", "high"]
    assert (rows["quiet"]["kind"], rows["quiet"]["default"]) == ("switch", False)
    assert (rows["the-size"]["field"], rows["the-size"]["dest"], rows["the-size"]["const"]) == ("size", "size", 4)
    assert rows["must"]["required"] is True


def test_an_environment_variable_that_adds_choices_is_noted_not_assumed():
    kind = new()[-1]
    assert kind["choices"] == ["k1", "k2"]
    assert kind["notes"] == ["other choices if envs.EXTRA.get()"]
    assert kind["default"] == "low"


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"sglang/other.py": ""}, "this is not an SGLang release"),
        ({SERVER_ARGS: "x = 1"}, "no class ServerArgs"),
        ({SERVER_ARGS: "class ServerArgs:\n    pass\n"}, "no add_cli_args"),
        ({SERVER_ARGS: "class ServerArgs:\n    x = [\n"}, "cannot parse it"),
    ],
)
def test_a_tree_without_a_known_parser_is_refused(files, message):
    with pytest.raises(ExtractError, match=message):
        flags(interpreter(files))


def test_other_rules_for_annotated_fields_are_a_doubt_not_a_guess():
    utils = "sglang/srt/arg_groups/arg_utils.py"
    assert doubts(interpreter({SERVER_ARGS: OLD})) == []
    changed = 'def add_cli_args_from_dataclass(parser, cls):\n    """Doc."""\n    return 1\n'
    assert "may differ" in doubts(interpreter({utils: changed}))[0]
