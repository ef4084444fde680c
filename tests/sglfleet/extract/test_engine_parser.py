"""The extracted flags against the parser of the real engine, imported: nothing may be missing, added or different."""

from __future__ import annotations

import json
import subprocess

import pytest

from lab.engine import Engine
from validators.knowledge import load_sglang
from validators.knowledge.model import Flag

DUMP = r"""
import argparse, enum, json, sys
from sglang.srt.server_args import ServerArgs

def plain(value):
    if isinstance(value, enum.Enum):
        return plain(value.value)
    if value is None or isinstance(value, (str, int, float, bool)):
        return value
    return [plain(v) for v in (sorted(value) if isinstance(value, (set, frozenset)) else value)]

parser = argparse.ArgumentParser(add_help=False)
ServerArgs.add_cli_args(parser)
rows = []
for a in parser._actions:
    rows.append({"spellings": a.option_strings, "dest": a.dest, "choices": a.choices and plain(list(a.choices)),
                 "default": plain(a.default), "nargs": a.nargs, "required": a.required,
                 "hidden": a.help == argparse.SUPPRESS})
json.dump(rows, sys.stdout)
"""


def extracted(flag: Flag) -> dict[str, object]:
    return {
        "spellings": list(flag.spellings),
        "dest": flag.dest,
        "choices": None if flag.choices is None else sorted(map(str, flag.choices)),
        "default": flag.default,
        "nargs": flag.nargs,
        "required": flag.required,
        "hidden": flag.hidden,
    }


@pytest.mark.engine
def test_flags_equal_the_engines_own_parser(engine: Engine):
    done = subprocess.run([engine.python, "-c", DUMP], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    real = json.loads(done.stdout.splitlines()[-1])
    for row in real:
        row["choices"] = row["choices"] and sorted(map(str, row["choices"]))
    known = load_sglang(engine.sglang)
    assert [row["spellings"] for row in real] == [list(f.spellings) for f in known.flags.values()]
    assert real == [extracted(f) for f in known.flags.values()]
