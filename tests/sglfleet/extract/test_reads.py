"""Which arguments a small release reads behind a condition, said by hand for every way in which one can be read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sglfleet.extract.reads.reader import Reader
from sglfleet.extract.reads.simpler import Condition, needed, plain
from sglfleet.extract.reads.table import dump, rows, table
from validators.knowledge.model import Artifact, Flag, Place, Sglang

FIELDS: dict[str, Any] = {
    "enable_cache": False,
    "enable_trace": False,
    "mode": "null",
    "cache_ratio": 2.0,
    "cache_policy": "lru",
    "trace_level": 1,
    "decode_width": 4,
    "batch": 8,
}
ARGS = """
class ServerArgs:
    def __post_init__(self):
        if self.cache_policy is None:
            self.cache_policy = "lru"
"""
ENTRY = """
from sglang.srt.worker import Worker

def main(server_args):
    Worker(server_args).run()
"""
WORKER = """
class Worker:
    def __init__(self, server_args):
        self.server_args = server_args
        self.enable_cache = server_args.enable_cache
        {body}

    def run(self):
        return None
"""


def release() -> Sglang:
    def flag(name: str, default: Any) -> Flag:
        place = Place("sglang/srt/server_args.py", "ServerArgs", 1)
        kind: Any = "switch" if isinstance(default, bool) else "value"
        dashed = name.replace("_", "-")
        return Flag(
            name=dashed,
            spellings=(f"--{dashed}",),
            dest=name,
            field=name,
            kind=kind,
            type="str",
            converter="",
            nargs=None,
            choices=None,
            default=default,
            const=None,
            required=False,
            action="store",
            deprecated="",
            replacement="",
            refused="",
            hidden=False,
            help="",
            place=place,
        )

    flags = {name.replace("_", "-"): flag(name, default) for name, default in FIELDS.items()}
    return Sglang("1.2.3", Artifact("sglang-1.2.3", "", ""), "", "", flags, {}, {}, {})


def behind(tmp_path: Path, body: str, **files: str) -> dict[str, list[str]]:
    """Field -> conditions before every use of it, with `body` in the constructor of the worker."""
    indented = body.strip().replace("\n", "\n        ") or "pass"
    contents = {"server_args": ARGS, "worker": WORKER.format(body=indented), **files}
    for name, text in contents.items():
        path = tmp_path / "sglang" / "srt" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    (tmp_path / "sglang" / "launch_server.py").write_text(ENTRY, encoding="utf-8")
    found = rows(Reader(tmp_path, release()))
    return {name: sorted(one.text for one in conditions) for name, conditions in found.items()}


CACHE = ["args.enable_cache"]
CASES = {
    "an if around it": ("if server_args.enable_cache:\n    use(server_args.cache_ratio)", CACHE),
    "an exit before it": ("if not server_args.enable_cache:\n    return\nuse(server_args.cache_ratio)", CACHE),
    "a copy of the master": ("if self.enable_cache:\n    use(server_args.cache_ratio)", CACHE),
    "an and": ("self.x = server_args.enable_cache and use(server_args.cache_ratio)", CACHE),
    "one of two values": ("self.x = use(server_args.cache_ratio) if server_args.enable_cache else None", CACHE),
    "two conditions": (
        "if server_args.enable_cache:\n    use(server_args.cache_ratio)\n"
        "if server_args.enable_trace:\n    use(server_args.cache_ratio)",
        ["args.enable_cache", "args.enable_trace"],
    ),
    "read by name": ("if server_args.enable_cache:\n    use(getattr(server_args, 'cache_ratio', 1))", CACHE),
    "a local copy": ("ratio = server_args.cache_ratio\nif server_args.enable_cache:\n    use(ratio)", CACHE),
    "only printed": ("print(server_args.cache_ratio)\nif self.enable_cache:\n    use(server_args.cache_ratio)", CACHE),
}
OPEN = {
    "no condition": "use(server_args.cache_ratio)",
    "a condition that nobody can tell": "if something():\n    use(server_args.cache_ratio)",
    "a condition on itself": "if server_args.cache_ratio > 5:\n    use(server_args.cache_ratio)",
    "a copy that is read freely": "self.x = server_args.cache_ratio\nuse(self.x)",
    "a name that is made": "part = 'ratio'\nuse(getattr(server_args, f'cache_{part}'))",
    "a master that is on by default": "if not server_args.enable_cache:\n    use(server_args.cache_ratio)",
}


@pytest.mark.parametrize("name", sorted(CASES))
def test_behind_a_condition(tmp_path: Path, name: str) -> None:
    body, expected = CASES[name]
    assert behind(tmp_path, body).get("cache_ratio") == expected


@pytest.mark.parametrize("name", sorted(OPEN))
def test_nothing_is_said(tmp_path: Path, name: str) -> None:
    assert "cache_ratio" not in behind(tmp_path, OPEN[name])


def test_a_class_that_is_made_under_a_condition(tmp_path: Path) -> None:
    cache = "class Cache:\n    def __init__(self, ratio):\n        self.ratio = ratio\n        use(self.ratio)\n"
    body = (
        "if server_args.enable_cache:\n"
        "    from sglang.srt.cache import Cache\n"
        "    self.cache = Cache(server_args.cache_ratio)"
    )
    assert behind(tmp_path, body, cache=cache)["cache_ratio"] == CACHE


def test_a_function_that_is_called_under_a_condition(tmp_path: Path) -> None:
    helper = "def build(server_args):\n    use(server_args.cache_ratio)\n"
    body = "if server_args.enable_cache:\n    from sglang.srt.helper import build\n    build(server_args)"
    assert behind(tmp_path, body, helper=helper)["cache_ratio"] == CACHE


def test_a_class_that_nobody_names_may_be_found_in_another_way(tmp_path: Path) -> None:
    plugin = "class Plugin:\n    def start(self, server_args):\n        use(server_args.cache_ratio)\n"
    assert "cache_ratio" not in behind(tmp_path, "if self.enable_cache:\n    use(server_args.cache_ratio)", p=plugin)


def test_what_is_handed_to_another_package_under_the_same_name_is_used(tmp_path: Path) -> None:
    wrapper = (
        "try:\n    import outside\n    _outside = outside.saver\nexcept ImportError:\n    pass\n"
        "class Wrapper:\n    def region(self, ratio):\n        return _outside.region(ratio)\n"
    )
    body = "from sglang.srt.wrapper import Wrapper\nwith Wrapper().region(server_args.cache_ratio):\n    pass"
    assert "cache_ratio" not in behind(
        tmp_path, f"{body}\nif self.enable_cache:\n    use(server_args.cache_ratio)", wrapper=wrapper
    )


def test_a_master_that_the_engine_turns_on_by_itself_is_none(tmp_path: Path) -> None:
    body = "if server_args.enable_cache:\n    use(server_args.cache_ratio)"
    turned_on = ARGS + "        if something():\n            self.enable_cache = True\n"
    assert "cache_ratio" not in behind(tmp_path, body, server_args=turned_on)


def test_what_turns_the_master_on_is_asked_for_too(tmp_path: Path) -> None:
    body = "if server_args.enable_cache:\n    use(server_args.cache_ratio)"
    turned_on = ARGS + "        if self.mode == 'decode':\n            self.enable_cache = True\n"
    found = behind(tmp_path, body, server_args=turned_on)
    assert found["cache_ratio"] == ["args.enable_cache", "args.mode == 'decode'"]


def test_a_test_that_sets_another_argument_is_a_use_of_that_one(tmp_path: Path) -> None:
    setting = ARGS + "        if self.cache_ratio > 3:\n            self.batch = 16\n"
    body = "if server_args.enable_cache:\n    use(server_args.cache_ratio)"
    assert "cache_ratio" not in behind(tmp_path, f"{body}\nuse(server_args.batch)", server_args=setting)
    other = f"{body}\nif server_args.enable_trace:\n    use(server_args.batch)"
    assert behind(tmp_path, other, server_args=setting)["cache_ratio"] == ["args.enable_cache", "args.enable_trace"]


def test_what_stops_the_start_is_kept(tmp_path: Path) -> None:
    stopping = ARGS + "        if self.cache_ratio < 1:\n            raise ValueError('too small')\n"
    body = "if server_args.enable_cache:\n    use(server_args.cache_ratio)"
    assert behind(tmp_path, body, server_args=stopping)["cache_ratio"] == CACHE
    reader = Reader(tmp_path, release())
    assert reader.stops()["cache_ratio"] == ["args.cache_ratio < 1"]


def test_the_place_is_the_test_itself(tmp_path: Path) -> None:
    behind(tmp_path, "if server_args.enable_cache:\n    use(server_args.cache_ratio)")
    found = rows(Reader(tmp_path, release()))["cache_ratio"][0]
    line = (tmp_path / found.file).read_text(encoding="utf-8").splitlines()[found.line - 1]
    assert found.quote == "server_args.enable_cache"
    assert found.quote in line
    assert found.symbol == "Worker.__init__"


def test_texts_stand_once_in_the_table(tmp_path: Path) -> None:
    behind(tmp_path, "if server_args.enable_cache:\n    use(server_args.cache_ratio, server_args.trace_level)")
    reader = Reader(tmp_path, release())
    written = table({"1.2.3": (reader, rows(reader))})
    assert written["texts"] == CACHE
    assert written["names"] == ["cache_ratio", "trace_level"]
    assert written["releases"]["1.2.3"]["fields"] == [[0, 0], [1, 0]]
    assert len(written["releases"]["1.2.3"]["lists"]) == 1
    assert dump(written).endswith("}\n")


def test_conditions_are_simple_and_none_implies_another() -> None:
    assert plain("not (not ((args.a)))") == "args.a"
    assert plain("not ((args.a is None))") == "args.a is not None"

    def condition(text: str) -> Condition:
        return Condition(text, "f.py", "", 1, "")

    kept = needed([condition(text) for text in ("args.a and args.b", "args.a", "args.c or args.a", "args.d")])
    assert [one.text for one in kept] == ["args.c or args.a", "args.d"]
