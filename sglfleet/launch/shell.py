"""Launch commands in pasted text, shell scripts, Dockerfiles and terminal sessions. Read, never run."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import replace

from sglfleet.launch.command import Launch, expand, from_words, image_release, starts

_ARRAY = re.compile(r"^(?:local\s+|declare\s+-a\s+|readonly\s+)?(\w+)(\+?)=\(\s*(.*?)\s*\)$", re.DOTALL)
_SET = re.compile(r"^(?:export\s+|local\s+|readonly\s+|declare\s+(?:-\w+\s+)?)?(\w+)(\+?)=(.*)$", re.DOTALL)
_SPREAD = re.compile(r"^\$\{?(\w+)(?:\[[@*]\])?\}?$")
_CUT = re.compile(r"^(?:[|&;]+|[(){}]|then|do|done|fi|exec)$")
_REDIRECTION = re.compile(r"^(?:\d*|&)(?:>>?|<)(?:&\d|.*)$")
_SUBSTITUTION = re.compile(r"\$\([^()]*\)|`[^`]*`")  # what a command would print is not known here
_BLANKS_OUTSIDE = re.compile(r"(?:\$\([^()]*\)|\S)+")  # the words of a text, those of a command in it aside
_VISIBLE = "CUDA_VISIBLE_DEVICES"
_TESTS = ("[", "[[", "test", "if", "case")
_HELD = ("\ue000", "\ue001")  # of the private use area: no command has them
_HOLDS = re.compile(f"{_HELD[0]}([0-9]+){_HELD[1]}")
_PROMPT = re.compile(r"^\s*(?:[\w.@:~/-]*[$#>]\s+)(?=\S)")
_RUNNERS = ("ssh", "pdsh", "tmux", "screen", "su")  # they take a whole command as one word
_STARTS = re.compile(r"sglang(?:\.launch_server| serve) ")
_MORE = re.compile(r"^\s*>\s?")  # the prompt of a continued line
_OPENS, _CLOSES = re.compile(r"^\s*(?:if|case)\b"), re.compile(r"(?:^|;)\s*(?:fi|esac)\b")
_NAME = re.compile(r"\$\{?(\w+)")
_MODEL = re.compile(r"--(?:model|model-path|config)(?:=|$)")
_LEFT_OUT = "#{{"  # a line of a template that only steers (launch/template.py)
_FROM = re.compile(r"^FROM\s+(?:--\S+\s+)*(\S+)(?:\s+AS\s+(\S+))?\s*$", re.IGNORECASE)
_DOCKERFILE = re.compile(r"^(?:CMD|ENTRYPOINT)\s*(\[.*\])\s*$", re.DOTALL)


def find(text: str, file: str, form: str = "script", env: Mapping[str, str] | None = None) -> list[Launch]:
    """Every launch command in the text, with the variables that were set before it. `env`: those it is started with."""
    strings: dict[str, str] = dict(env or {})
    exported: dict[str, str] = {}
    arrays: dict[str, list[str]] = {}
    out = []
    depth, branched = 0, set[str]()
    image, stages = "", dict[str, str]()  # of a Dockerfile: the release of the image it builds on
    for line, logical, ends in _logical_lines(text):
        base = _FROM.match(logical)
        if base:
            name = expand(base[1], strings)
            image = stages.get(name.lower(), image_release(name))
            if base[2]:
                stages[base[2].lower()] = image
            continue
        depth += len(_OPENS.findall(logical)) - len(_CLOSES.findall(logical))
        array = _ARRAY.match(logical)
        if array:
            words = _words(array[3])
            branched |= {array[1]} if depth > 0 else set()
            arrays[array[1]] = (arrays.get(array[1], []) if array[2] else []) + [expand(w, strings) for w in words]
            continue
        commands = _commands(logical)
        tested = depth > 0 or any(command[0] in _TESTS for command in commands)
        for command in commands:
            assigned = _assignment(command, strings)
            if assigned:
                name, value, is_exported = assigned
                strings[name] = value
                branched |= {name} if depth > 0 or (tested and name == _VISIBLE) else set()
                if is_exported or name in exported:
                    exported[name] = value
                continue
            # a count of GPUs that only one branch sets would refuse what the other starts
            around = {name: value for name, value in exported.items() if name != _VISIBLE or name not in branched}
            launch = from_words(_spread(command, strings, arrays), f"{file}:{line}", around, form)
            if launch and _is_part(command, launch, file, text):
                continue
            if launch:
                notes = [f"{file}:{at}: {what}" for at, what in ends]
                if _VISIBLE in exported and _VISIBLE not in launch.env:
                    notes.append(
                        f"{file}:{line}: {_VISIBLE} is set under a condition: which GPUs are visible is not known"
                    )
                for name in sorted(branched & set(_NAME.findall(" ".join(command)))):
                    what = f"${name} is set in an `if` or `case`: judged as if every branch ran, one after the other"
                    notes.append(f"{file}:{line}: {what}")
                out.append(replace(launch, sglang=launch.sglang or image, notes=(*launch.notes, *notes)))
    return out


def _is_part(command: list[str], launch: Launch, file: str, text: str) -> bool:
    """A line of flags alone that is part of something else: a file's, with no model named, or one line of several."""
    if not command[0].startswith("-") or any(_MODEL.match(token) for token in launch.tokens):
        return False
    return file != "command" or len(_logical_lines(text)) > 1


def _logical_lines(text: str) -> list[tuple[int, str, list[tuple[int, str]]]]:
    """Lines with continuations, open quotes and open arrays joined: number of the first, text, and (line, why) where a
    shell would end the command although it goes on for the reader."""
    out: list[tuple[int, str, list[tuple[int, str]]]] = []
    held, start, prompted = "", 0, False
    ends: list[tuple[int, str]] = []
    for number, raw in enumerate(text.splitlines(), 1):
        if not held and raw.lstrip().startswith("#"):  # a comment, though `# ` is a prompt of root's as well
            continue
        line = _PROMPT.sub("", raw) if not held else (_MORE.sub("", raw) if prompted else raw)
        if line.lstrip().startswith(_LEFT_OUT):
            continue
        if not held:
            start, prompted, ends = number, line != raw, []
            if line.lstrip().startswith("#"):
                continue
        if held and line.lstrip().startswith("#"):
            if held.endswith(" ") and not _open(held):  # as people leave them, and wonder
                ends.append(
                    (number, "a shell ends the command at this comment: move it, or what follows is not passed")
                )
            continue
        if line.rstrip("\r") != line.rstrip() and line.rstrip().endswith("\\"):
            ends.append((number, "a shell ends the command here: remove the blanks after the backslash"))
        joined = held + line.strip() if held else line.strip()
        if joined.endswith("\\") or (held and raw.rstrip().endswith("^")):
            held = joined[:-1].rstrip() + " "
            continue
        if _open(joined):
            held = joined + "\n"
            continue
        held = ""
        if joined:
            out.append((start, joined, ends))
    if held.strip():
        out.append((start, held.strip(), ends))
    return out


def _open(text: str) -> bool:
    """An array or a quote that is not closed yet."""
    if re.match(r"^(?:local\s+|declare\s+-a\s+|readonly\s+)?\w+\+?=\((?!\()", text) and ")" not in text:
        return True
    try:
        shlex.split(text, comments=True)
    except ValueError:
        return True
    return False


def _commands(logical: str) -> list[list[str]]:
    """Words of each command of a line, cut at pipes, `&&`, `;`, redirections."""
    exec_form = _DOCKERFILE.match(logical)
    if exec_form:
        import json

        try:
            return [[str(word) for word in json.loads(exec_form[1])]]
        except json.JSONDecodeError:
            return []
    commands: list[list[str]] = [[]]
    try:
        printed: list[str] = []
        words = shlex.split(_SUBSTITUTION.sub(lambda found: _held(found[0], printed), logical), comments=True)
    except ValueError:
        return []
    skip = False
    for held in words:
        word = _HOLDS.sub(lambda found: printed[int(found[1])] if int(found[1]) < len(printed) else found[0], held)
        if skip:
            skip = False
        elif _CUT.match(word):
            commands.append([])
        elif _REDIRECTION.match(word):
            skip = word.endswith((">", "<"))
        elif word.endswith(";") and len(word) > 1:
            commands[-1].append(word[:-1])
            commands.append([])
        else:
            commands[-1].append(word)
    out = []
    for command in commands:
        at = next((i for i, _ in enumerate(command) if i and command[i - 1] in ("-c", "-lc", "-ec")), len(command))
        nested, before = next(iter(command[at:]), None), command[:at]
        if nested is None and command and command[0].rsplit("/", 1)[-1] in _RUNNERS:
            nested, before = next((w for w in command if _STARTS.search(w)), None), []
        if nested and "sglang" in nested:
            for inner in _commands(" ".join(line for _, line, _ in _logical_lines(nested))):
                # what runs the shell says the image, the GPUs and variables of what the shell runs
                out.append([*before, *inner] if starts(inner) else inner)
        elif command:
            out.append(command)
    return out


def _held(substitution: str, printed: list[str]) -> str:
    """A word without blanks and quotes that stands for `$(…)` while the line is split."""
    printed.append(f"$({substitution[1:-1]})" if substitution[0] == "`" else substitution)
    return f"{_HELD[0]}{len(printed) - 1}{_HELD[1]}"


def _assignment(command: list[str], strings: dict[str, str]) -> tuple[str, str, bool] | None:
    """`NAME=value` alone, `export NAME=value`: (name, value, exported)."""
    exported = command[0] == "export"
    rest = command[1:] if command[0] in ("export", "local", "readonly", "declare", "ENV", "ARG") else command
    if len(rest) != 1:
        return None
    found = _SET.match(rest[0])
    if not found:
        return None
    value = expand(found[3], strings)
    return found[1], (strings.get(found[1], "") + value if found[2] else value), exported or command[0] == "ENV"


def _spread(command: list[str], strings: dict[str, str], arrays: dict[str, list[str]]) -> list[str]:
    """Variables filled in: an array gives its words, a variable that stands alone is split as the shell does."""
    out: list[str] = []
    for word in command:
        alone = _SPREAD.match(word)
        if alone and alone[1] in arrays:
            out += arrays[alone[1]]
        elif alone and alone[1] in strings:
            out += _BLANKS_OUTSIDE.findall(strings[alone[1]])
        else:
            out.append(expand(word, strings))
    return out


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text, comments=True)
    except ValueError:
        return text.split()
