"""Requirements for CPython 3.11 on Linux x86-64, and environment variables with where they are read."""

from __future__ import annotations

import pytest

from sglfleet.extract.env import variables
from sglfleet.extract.pins import pins
from sglfleet.extract.tree import ExtractError
from tests.sglfleet.extract.trees import interpreter, tree

META = "sglang-1.2.3.dist-info/METADATA"
HEAD = "Metadata-Version: 2.1\nName: sglang\nRequires-Python: >=3.10\n"


def test_plain_requirements_and_markers():
    lines = (
        "Requires-Dist: torch==2.9.1\nRequires-Dist: flashinfer_python[cu13]==0.6.3\n"
        'Requires-Dist: av; platform_machine == "aarch64"\nRequires-Dist: numpy<3,>=2; sys_platform == "linux"\n'
        'Requires-Dist: pytest; extra == "test"\n'
    )
    python, rows = pins(tree({META: HEAD + lines}))
    assert python == ">=3.10"
    assert [(r["name"], r["specifier"], r["extra"]) for r in rows] == [
        ("flashinfer-python", "==0.6.3", ""),
        ("numpy", "<3,>=2", ""),
        ("torch", "==2.9.1", ""),
    ]


def test_the_servers_own_extra_of_older_releases_and_what_it_takes():
    lines = (
        'Requires-Dist: requests\nRequires-Dist: sglang[runtime_common]; extra == "srt"\n'
        'Requires-Dist: torch==2.7.1; extra == "srt"\nRequires-Dist: xgrammar==0.1.21; extra == "runtime-common"\n'
        'Requires-Dist: torch; extra == "srt-hip"\n'
    )
    _, rows = pins(tree({META: HEAD + lines}))
    assert {r["name"]: (r["specifier"], r["extra"]) for r in rows} == {
        "requests": ("", ""),
        "torch": ("==2.7.1", "srt"),
        "xgrammar": ("==0.1.21", "runtime-common"),
    }


def test_a_checkout_says_its_pins_in_pyproject():
    text = '[project]\nrequires-python = ">=3.11"\ndependencies = ["torch==2.9.1"]\n'
    assert pins(tree({"pyproject.toml": text}))[1][0]["specifier"] == "==2.9.1"


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "no METADATA"),
        ({"pyproject.toml": "["}, "not TOML"),
        ({META: HEAD + "Requires-Dist: torch=!2\n"}, "cannot be read"),
    ],
)
def test_metadata_that_is_missing_or_broken(files, message):
    with pytest.raises(ExtractError, match=message):
        pins(tree(files))


ENVIRON = """
def lazy(): return machine()
class Envs:
    SGLANG_A = EnvBool(False)
    SGLANG_B = EnvInt(1 << 4)
    SGLANG_C = EnvStr(computed())
class EnvBool: pass
class EnvInt: pass
"""
READS = """
import os
if "D_FLAG" in os.environ: pass
class K:
    @skip(os.getenv("E_DECORATED", "9"))
    def run(self):
        a = get_bool_env_var("F_BOOL", "true")
        b = os.environ["G_ITEM"]
        os.environ["H_WRITTEN"] = "1"
        c = os.environ.get(name)
        d = os.getenv("SGLANG_A")
"""


def test_variables_declared_and_read_in_place():
    files = {"sglang/srt/environ.py": ENVIRON, "sglang/srt/x.py": READS, "sglang/test/t.py": 'os.getenv("Z")'}
    rows = {r["name"]: r for r in variables(interpreter(files))}
    assert list(rows) == ["D_FLAG", "E_DECORATED", "F_BOOL", "G_ITEM", "SGLANG_A", "SGLANG_B", "SGLANG_C"]
    assert (rows["SGLANG_A"]["type"], rows["SGLANG_A"]["default"]) == ("bool", False)
    assert rows["SGLANG_B"]["default"] == 16
    assert "default" not in rows["SGLANG_C"]
    assert (rows["F_BOOL"]["type"], rows["F_BOOL"]["default"]) == ("bool", "true")
    assert (rows["G_ITEM"]["symbol"], rows["G_ITEM"]["line"]) == ("K.run", 8)
