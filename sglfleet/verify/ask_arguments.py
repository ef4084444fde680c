"""SGLang's own parser and argument resolution, asked in the release's own Python: what a command line becomes.

Runs on hosts beside `ask_engine`. Standard library only, besides the engine.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import logging
import sys
import warnings
from typing import Any


def resolve(argv: list[str]) -> dict[str, Any]:
    """What the engine makes of flags: `resolved` arguments, what it `said`, what it `raised` and where.

    `sets`: flag -> the fields that its parser alone puts there. A deprecated flag often sets the field of another, so
    names are no help to see whether what was asked for survived the resolution.
    """
    said = _Said()
    logging.getLogger().addHandler(said)
    logging.getLogger().setLevel(logging.INFO)
    answer: dict[str, Any] = {"argv": argv, "raised": "", "resolved": {}, "sets": {}}
    text = io.StringIO()
    with contextlib.redirect_stderr(text), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            from sglang.srt import server_args

            with contextlib.suppress(Exception):  # a help; without it fields are found by the flag's name
                answer["sets"] = sets(server_args.ServerArgs, argv)
            asked = server_args.prepare_server_args(argv)
            if said not in logging.getLogger().handlers:  # the engine sets logging up anew
                logging.getLogger().addHandler(said)
            for step in ("resolve_once", "check_server_args"):
                if hasattr(asked, step):
                    getattr(asked, step)()
            resolved = asked.resolved_dict() if hasattr(asked, "resolved_dict") else vars(asked)
            answer["resolved"] = {str(key): plain(value) for key, value in resolved.items() if not key.startswith("_")}
        except SystemExit as error:
            lines = [line for line in text.getvalue().splitlines() if "error:" in line]
            answer["raised"] = (lines[-1] if lines else text.getvalue()[-300:]).strip() or f"exit {error.code}"
            answer["rejected"] = error.code == 2
        except Exception as error:
            answer["raised"] = f"{type(error).__name__}: {str(error)[:500]}"
            answer["at"] = place(error)
    answer["said"] = said.lines + [str(w.message)[:300] for w in caught if "sglang" in str(w.filename)]
    return answer


def sets(kind: Any, argv: list[str]) -> dict[str, dict[str, Any]]:
    """Each flag of a command line by itself through the engine's parser: the fields that it changes."""
    out: dict[str, dict[str, Any]] = {}
    always = ["--model-path", "x"]
    parser = argparse.ArgumentParser(add_help=False)
    kind.add_cli_args(parser)
    bare = vars(_parsed(parser, always) or argparse.Namespace())
    for tokens in by_flag(argv):
        name = tokens[0].partition("=")[0].lstrip("-")
        found = _parsed(parser, [*always, *tokens])
        if found is None or name in ("model-path", "model"):
            continue
        changed = {k: plain(v) for k, v in vars(found).items() if k not in bare or bare[k] != v}
        # a flag that repeats the default changes nothing; its own field is still what it sets
        own = _field(parser, tokens[0].partition("=")[0])
        out[name] = changed or ({own: plain(vars(found)[own])} if own in vars(found) else {})
    return out


def by_flag(argv: list[str]) -> list[list[str]]:
    """Tokens of a command line, a list for each flag."""
    out: list[list[str]] = []
    for token in argv:
        if token.startswith("--") or not out:
            out.append([token])
        else:
            out[-1].append(token)
    return out


def _parsed(parser: argparse.ArgumentParser, tokens: list[str]) -> argparse.Namespace | None:
    try:
        return parser.parse_known_args(tokens)[0]
    except (SystemExit, Exception):
        return None


def _field(parser: argparse.ArgumentParser, option: str) -> str:
    action = parser._option_string_actions.get(option)
    return action.dest if action else ""


class _Said(logging.Handler):
    """Keeps what the engine logs while it resolves."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.name.startswith(("sglang", "root", "__main__")):
            self.lines.append(f"{record.levelname}: {record.getMessage()[:300]}")


def place(error: BaseException) -> str:
    """File, function and line below site-packages where the engine raised."""
    import traceback

    frames = traceback.extract_tb(error.__traceback__)
    mine = [f for f in frames if "/sglang/" in f.filename and __file__ not in f.filename]
    last = (mine or list(frames))[-1]
    return f"{last.filename.rpartition('site-packages/')[2]}:{last.lineno} in {last.name}"


def plain(value: Any) -> Any:
    """What JSON can carry, all else as text."""
    if isinstance(value, str | int | float | bool) or value is None:
        return value
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    return str(value)[:200]


def main() -> None:
    """One command line, as JSON on standard input; the answer as JSON."""
    import json

    printed = sys.stdout
    with contextlib.redirect_stdout(sys.stderr):
        answer = resolve([str(token) for token in json.load(sys.stdin)])
    print(json.dumps(answer), file=printed)
