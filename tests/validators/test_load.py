# ruff: noqa: E501 - messages are compared whole
"""Service files: what is accepted and how it is read, and the exact words for what is not."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from validators.load import load, load_launch, merge
from validators.service import Service
from validators.verdict import Policy

GOOD = """\
service: qwen
engine:
  sglang: 0.5.23
model: /models/Qwen
gpus: [0, 1]
"""
TYPES = {
    "tp-size": "int",
    "tool-call-parser": "str",
    "enable-metrics": "bool",
    "served-model-name": "str",
    "stops": "str",
}


def types(release: str) -> dict[str, str] | None:
    return TYPES if release == "0.5.23" else None


def good(text: str) -> Service:
    loaded = load(GOOD + text, "s.yaml", types)
    assert loaded.problems == ()
    assert loaded.service is not None
    return loaded.service


def said(text: str, base: str = GOOD) -> list[str]:
    loaded = load(base + text, "s.yaml", types)
    assert loaded.service is None
    return [str(problem) for problem in loaded.problems]


def test_everything() -> None:
    found = good(
        """\
args: {tp-size: 2, port: 31000, host: 0.0.0.0, json-model-override-args: {a: [1, 2.5, "on"]}}
env: {NCCL_P2P_LEVEL: SYS, A: 010, B: on, C: 1.10, D: true, E: ""}
secrets: {api-key: {env: KEY}, HF_TOKEN: {file: token}}
on_unsupported: {default: refuse, flags: {enable-pdmux: warn}}
allow: [{flag: x, reason: because, until: 2027-01-31}]
rollout: {canary: [gpu-7], max_unavailable: 25%, soak: 1.5m, on_failure: halt, start_timeout: 600}
verify: {profile: false, benchmark: {concurrency: [1, 16], margin: 3%}}
nodes: {group: big_pair}
"""
    )
    assert found.args["json-model-override-args"] == '{"a": [1, 2.5, "on"]}'
    assert found.env == {"NCCL_P2P_LEVEL": "SYS", "A": "010", "B": "on", "C": "1.10", "D": "true", "E": ""}
    assert (found.port, found.bind, found.tp, found.unit) == (31000, "0.0.0.0", 2, "sglang-qwen.service")
    assert found.policy_for("enable-pdmux") is Policy.WARN
    assert found.policy_for("tp-size") is Policy.REFUSE
    assert (found.rollout.soak, found.rollout.start_timeout) == (90.0, 600.0)
    assert found.allow[0].until.isoformat() == "2027-01-31"


def test_defaults() -> None:
    found = good("")
    assert (found.port, found.bind, found.tp) == (30000, "127.0.0.1", 1)
    assert found.on_unsupported.default is Policy.AUTO
    assert found.engine.venv == "managed"
    assert found.verify.benchmark is None


@pytest.mark.parametrize(
    ("share", "total", "out"), [("25%", 3, 1), ("25%", 8, 2), ("100%", 5, 5), ("2", 1, 1), ("2", 9, 2)]
)
def test_nodes_out(share: str, total: int, out: int) -> None:
    assert good(f"rollout: {{max_unavailable: {share}}}").rollout.nodes_out(total) == out


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rolout: {}", "s.yaml:6:1: unknown key `rolout`: did you mean `rollout`?"),
        ("tp-size: 4", "s.yaml:6:1: unknown key `tp-size`: SGLang's own flags go into `args:`; keys here are service"),
        ("launch_override: {}", "s.yaml:6:1: unknown key `launch_override`: that is inventory data of lab hosts"),
        ("port: 1", "s.yaml:6:1: unknown key `port`: write it in `args:`"),
        ("rollout: {sok: 3}", "s.yaml:6:11: unknown key `rollout.sok`: did you mean `soak`?"),
        ("args:\n  --tp-size: 4", "s.yaml:7:3: `args.--tp-size`: `--tp-size` is no flag name"),
        ("args:\n  tp-size:", "s.yaml:7:3: `args.tp-size`: no value: write true for a switch, or remove the line"),
        ("args: {api-key: x}", "s.yaml:6:8: `args.api-key`: a secret in the open: write `secrets: {api-key: {env: NAME}}`"),
        ("args: {api_key: x}", "s.yaml:6:8: `args.api_key`: a secret in the open"),
        ("args: {config: x}", "s.yaml:6:8: `args.config`: `config` has no place in args: write its keys into `args:`"),
        ("args: {model-path: x}", "s.yaml:6:8: `args.model-path`: `model-path` has no place in args: give the model"),
        ("args: 5", "s.yaml:6:1: `args` is not a mapping: write `key: value` lines below it"),
        ("args: {a: .inf}", "s.yaml:6:8: `a`: unquoted `.inf` is not a finite number"),
        ('args: {a: "x\\0y"}', "s.yaml:6:8: `args.a`: character \\x00 cannot reach the server unchanged: remove it"),
        ('env: {A: "\\e[31m"}', "s.yaml:6:7: `env.A`: character \\x1b cannot reach the server unchanged: remove it"),
        ('env: {"A\\nB": x}', "s.yaml:6:7: `env.A\\nB`: control character \\n in a name or path: remove it"),
        ("env: {A B: 1}", "s.yaml:6:7: `env.A B`: `A B` is no environment variable: use letters, digits and _"),
        ("env: {A: }", 's.yaml:6:7: `env.A`: no value: write "" for an empty one'),
        ("env: {A: [1]}", "s.yaml:6:7: `env.A` is not text: write text"),
        ("secrets: {api-key: geheim}", "s.yaml:6:11: `secrets.api-key` is not a mapping"),
        ("secrets: {api-key: {}}", "s.yaml:6:11: `secrets.api-key`: a secret has exactly one source"),
        ("on_unsupported: downgrad", "s.yaml:6:1: `on_unsupported`: `downgrad` is not allowed: did you mean `downgrade`?"),
        ("allow: [{flag: x, reason: y, until: soon}]", "s.yaml:6:30: `allow.0.until`: `soon` is no date: write YYYY-MM-DD"),
        ("allow: [{flag: x, until: 2027-01-01}]", "s.yaml:6:9: `allow.0.reason` is missing: add `reason`"),
        ("rollout: {canary: 0}", "s.yaml:6:11: `rollout.canary`: neither a list of hosts nor a number of them: write [host] or 1"),
        ("rollout: {max_unavailable: 0}", "s.yaml:6:11: `rollout.max_unavailable`: `0` is neither a number of nodes nor"),
        ("rollout: {max_unavailable: 101%}", "s.yaml:6:11: `rollout.max_unavailable`: `101%` is neither"),
        ("rollout: {soak: 1:30}", "s.yaml:6:11: `rollout.soak`: unquoted `1:30` is a number to base 60 to YAML 1.1"),
        ("rollout: {on_failure: rolback}", "s.yaml:6:11: `rollout.on_failure`: `rolback` is not allowed: did you mean"),
        ("verify: {profile: yes}", "s.yaml:6:10: `verify.profile`: unquoted `yes` is true to YAML 1.1 and a word to YAML 1.2"),
        ("verify: {benchmark: {concurrency: []}}", "s.yaml:6:22: `verify.benchmark.concurrency` is empty: name at least one"),
        ("nodes: {group: a b}", "s.yaml:6:9: `nodes.group`: `a b` is no group name"),
        ("nodes: {group: g}\nargs: {nnodes: 2}", "s.yaml:7:8: `args.nnodes`: `nnodes` beside `nodes:`: remove it"),
        ("secrets: {A: {env: A}}\nenv: {A: x}", "s.yaml:6:11: `secrets.A`: `A` is given openly and as a secret: keep the secret"),
        ("user: ROOT", "s.yaml:6:1: `user`: `ROOT` is no user name"),
    ],
)  # fmt: skip
def test_wrong(text: str, message: str) -> None:
    found = said(text)
    assert found[0].startswith(message)
    assert len(found) == 1


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "0.5.23",
            "'>=0.5'",
            "s.yaml:3:3: `engine.sglang`: `>=0.5` is not one exact release: write for example 0.5.23",
        ),
        ("0.5.23", "latest", "s.yaml:3:3: `engine.sglang`: `latest` is not one exact release"),
        ("sglang:", "sglan:", "s.yaml:2:1: `engine.sglang` is missing: add `sglang: 0.5.23`"),
        ("qwen\n", "Qwen_1\n", "s.yaml:1:1: `service`: `Qwen_1` is no service name: use a-z, 0-9 and -"),
        ("/models/Qwen", "models/Qwen/Qwen3", "s.yaml:4:1: `model`: `models/Qwen/Qwen3` is not an absolute path"),
        ("/models/Qwen", "/models/../etc", "s.yaml:4:1: `model`: `/models/../etc` is not an absolute path"),
        ("[0, 1]", "[0, 0]", "s.yaml:5:1: `gpus`: a GPU is listed twice: list each index once"),
        ("[0, 1]", "[0, x]", "s.yaml:5:11: `gpus.1` is not a whole number"),
        ("[0, 1]", "[-1]", "s.yaml:5:8: `gpus.0`: -1 is too small: write at least 0"),
        ("[0, 1]", "[]", "s.yaml:5:1: `gpus` is empty: name at least one"),
        ("[0, 1]", "4", "s.yaml:5:1: `gpus` is not a list: write [one, two]"),
        ("gpus: [0, 1]\n", "", "s.yaml:1:1: `gpus` is missing: add `gpus: [0, 1, 2, 3]`"),
    ],
)
def test_wrong_base(old: str, new: str, message: str) -> None:
    found = said("", GOOD.replace(old, new))
    assert found[0].startswith(message)


def test_version_keeps_its_letters() -> None:
    loaded = load(GOOD.replace("0.5.23", "0.10"), "s.yaml")
    assert loaded.service is not None
    assert loaded.service.engine.sglang == "0.10"


def test_all_errors_sorted() -> None:
    loaded = load("service: X\nengine: {sglan: 1}\ngpus: [a]\nfoo: 1\n", "s.yaml")
    assert [str(p).split(": ")[0] for p in loaded.problems] == [
        "s.yaml:1:1",
        "s.yaml:1:1",
        "s.yaml:2:1",
        "s.yaml:2:10",
        "s.yaml:3:8",
        "s.yaml:4:1",
    ]


@pytest.mark.parametrize("text", ["- a", "5", "word"])
def test_no_mapping(text: str) -> None:
    assert "a service file is a mapping" in str(load(text, "s.yaml").problems[0])


# --- YAML 1.1 surprises, typed by the flag ----------------------------------------------------------------------------


def test_text_flag_takes_the_letters_with_a_hint() -> None:
    loaded = load(GOOD + "args: {tool-call-parser: on, served-model-name: 1.10}", "s.yaml", types)
    assert loaded.service is not None
    assert loaded.service.args == {"tool-call-parser": "on", "served-model-name": "1.10"}
    assert [str(note) for note in loaded.notes] == [
        's.yaml:6:8: `tool-call-parser: on` is taken as text: quote it: "on"'
    ]


@pytest.mark.parametrize(
    ("arg", "todo"),
    [("enable-metrics: on", "write true"), ("enable-metrics: off", "write false"), ("enable-metrics: 1:30", "write true or false"),
     ("tp-size: 010", "write the number plainly"), ("tp-size: 1_000", "write the number plainly"), ("unheard-of: on", 'quote it: "on"')],
)  # fmt: skip
def test_other_flags_refuse(arg: str, todo: str) -> None:
    assert said(f"args: {{{arg}}}")[0].endswith(todo)


def test_without_knowledge_nothing_is_guessed() -> None:
    loaded = load((GOOD + "args: {tool-call-parser: on}").replace("0.5.23", "9.9.9"), "s.yaml", types)
    assert loaded.service is None


# --- overrides --------------------------------------------------------------------------------------------------------


def test_overrides_key_by_key() -> None:
    base = load(GOOD + "args: {tp-size: 4, enable-metrics: true}\nenv: {A: x}", "s.yaml", types)
    merged = merge(
        base,
        [
            ("g.py", {"args": {"tp-size": 2, "enable-metrics": None}, "model": {"arch": "Foo"}}),
            ("h.py", {"args": {"tp-size": 1}, "gpus": [3], "env": {"B": "y"}}),
        ],
        types,
    )
    assert merged.service is not None
    assert merged.service.args == {"tp-size": 1}
    assert merged.service.gpus == (3,)
    assert merged.service.env == {"A": "x", "B": "y"}
    assert (merged.service.model.path, merged.service.model.arch) == ("/models/Qwen", "Foo")
    assert merged.origins["args.tp-size"] == "h.py"
    assert str(merged.where("args", "tp-size")) == "h.py"
    assert str(merged.where("engine", "sglang")) == "s.yaml:3:3"
    assert base.service is not None
    assert base.service.args == {"tp-size": 4, "enable-metrics": True}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"args": {"api-key": "x"}}, "g.py: `args.api-key`: a secret in the open"),
        ({"rollout": {"soak": "5x"}}, "g.py: `rollout.soak`: `5x` is no duration"),
        ("text", "g.py: an override is not a mapping"),
        ({"service": None}, "g.py: `service` is missing"),
        ({1: 2}, "g.py: unknown key `1`"),
        ({"args": {"x": object()}}, "g.py: `args.x`: a object is no value of a flag"),
    ],
)
def test_wrong_overrides(change: Any, message: str) -> None:
    found = merge(load(GOOD, "s.yaml"), [("g.py", change)])
    assert found.service is None
    assert str(found.problems[0]).startswith(message)


def test_launch_override() -> None:
    override, problems = load_launch({"args": {"device": "cpu"}, "env": {"A": "1"}}, "lab.py")
    assert problems == ()
    assert override is not None
    assert override.args == {"device": "cpu"}
    override, problems = load_launch({"argss": {}}, "lab.py")
    assert override is None
    assert str(problems[0]) == "lab.py: unknown key `argss`: did you mean `args`?"


NAMES = st.sampled_from(
    ["service", "engine", "model", "gpus", "args", "env", "secrets", "rollout", "verify", "nodes", "x"]
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(NAMES, VALUES, max_size=6))
def test_any_override_is_judged_not_crashed_on(change: dict[str, Any]) -> None:
    found = merge(load(GOOD, "s.yaml"), [("g.py", change)])
    assert (found.service is None) == bool(found.problems)


@given(st.text(max_size=60))
def test_any_text_reaches_the_server_unchanged_or_is_refused(text: str) -> None:
    found = merge(load(GOOD, "s.yaml"), [("g.py", {"args": {"x": text}, "env": {"X": text}})])
    if found.service:
        assert found.service.args["x"] == text == found.service.env["X"]
        assert "\0" not in text
    else:
        assert found.problems
