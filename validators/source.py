"""YAML with the line and column of every node, and errors that say where, what, and what to do.

Scalars are read as YAML 1.2 core does. What a YAML 1.1 reader would take for something else (`on`, `010`, `1:30`) is
kept as it was written, with its trap named, and the model decides: text takes the letters, anything else refuses.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import yaml

Path = tuple[str | int, ...]

MAX_BYTES = 65_536
MAX_NODES = 10_000  # after aliases are expanded: a service file has some fifty
MAX_DEPTH = 30
MAX_BRACKETS = 100  # open at once; PyYAML's scanner takes a time that grows with their square

_NULL = {"", "~", "null", "Null", "NULL"}
_BOOL = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_INT = re.compile(r"[-+]?(0|[1-9][0-9]{0,18})")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_TRAPS = (  # what YAML 1.1 makes of it (yaml.org/type), though the letters look like something else
    (re.compile(r"(y|Y|yes|Yes|YES|on|On|ON)"), "true to YAML 1.1 and a word to YAML 1.2"),
    (re.compile(r"(n|N|no|No|NO|off|Off|OFF)"), "false to YAML 1.1 and a word to YAML 1.2"),
    (re.compile(r"[-+]?0o?[0-9_]+"), "an octal number to one YAML reader and a decimal one to the next"),
    (re.compile(r"[-+]?0x[0-9a-fA-F_]+"), "a hexadecimal number to YAML 1.1"),
    (re.compile(r"[-+]?0b[01_]+"), "a binary number to YAML 1.1"),
    (re.compile(r"[-+]?[0-9][0-9,]*(_[0-9]+)+(\.[0-9_]*)?"), "a number with separators to YAML 1.1 and a word to 1.2"),
    (re.compile(r"[-+]?[0-9]+(:[0-5]?[0-9])+(\.[0-9]*)?"), "a number to base 60 to YAML 1.1"),
    (re.compile(r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}([Tt ].*)?"), "a date to YAML 1.1"),
    (re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"), "not a finite number"),
    (re.compile(r"[-+]?[0-9]{20,}"), "a number with more digits than 64 bits hold"),
)
_STR, _MAP, _SEQ = (f"tag:yaml.org,2002:{kind}" for kind in ("str", "map", "seq"))
_RESOLVER = yaml.SafeLoader.yaml_implicit_resolvers


@dataclass(frozen=True, slots=True, order=True)
class Mark:
    """A place in a file, both numbers 1-based. Line 0 is an origin without a line."""

    file: str
    line: int = 0
    col: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.col}" if self.line else self.file


@dataclass(frozen=True, slots=True, order=True)
class Problem:
    """One thing that is wrong: where, what, and what to do."""

    mark: Mark
    what: str
    todo: str = ""

    def __str__(self) -> str:
        return ": ".join(printable(part) for part in (str(self.mark), self.what, self.todo) if part)


class InputError(Exception):
    """Everything that is wrong with the input, sorted. Commands print it and exit with 2."""

    def __init__(self, problems: list[Problem] | tuple[Problem, ...]) -> None:
        self.problems = tuple(sorted(set(problems)))
        super().__init__("\n".join(map(str, self.problems)))


@dataclass(frozen=True, slots=True)
class Plain:
    """An unquoted scalar that is not a word: the letters, what YAML 1.2 makes of them, and the trap if it is one."""

    text: str
    value: bool | int | float | None
    trap: str = ""


@dataclass(frozen=True, slots=True)
class Document:
    """Plain dicts and lists, with `Plain` where a scalar was unquoted and not a word, and the place of every node."""

    data: Any
    marks: dict[Path, Mark] = field(default_factory=dict)


def printable(text: str) -> str:
    """Text for a terminal or a log: control characters and lone surrogates as escapes, so that nothing is forged."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def read(raw: bytes | str, file: str) -> Document:
    """A YAML file's one document.

    Raises:
        InputError: not UTF-8, not YAML, empty, more than one document, duplicate keys, tags, bombs.
    """
    node = _compose(_decode(raw, file), file)
    walk = _Walk(file)
    data = walk.visit(node, (), 0)
    if walk.problems:
        raise InputError(walk.problems)
    return Document(data, walk.marks)


def _decode(raw: bytes | str, file: str) -> str:
    start = Mark(file, 1, 1)
    if len(raw) > MAX_BYTES:
        what = f"{len(raw)} bytes, more than the {MAX_BYTES} a service file may have"
        raise InputError([Problem(start, what, "is this the right file?")])
    if isinstance(raw, bytes):
        if raw[:2] in (b"\xff\xfe", b"\xfe\xff"):
            raise InputError([Problem(start, "the file is UTF-16", "save it as UTF-8")])
        try:
            return raw.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            before = raw[: error.start].decode("utf-8")
            what = f"byte 0x{raw[error.start]:02x} is not UTF-8"
            raise InputError([Problem(_place(before, file), what, "save the file as UTF-8")]) from None
    return raw.removeprefix("\ufeff")


def _place(before: str, file: str) -> Mark:
    lines = before.split("\n")
    return Mark(file, len(lines), len(lines[-1]) + 1)


def _brackets(text: str) -> int:
    """Most brackets open at once, quoted ones counted too; dashes in a row nest just as well."""
    deepest = depth = 0
    for hit in re.finditer(r"[\[{\]}]|(?:- ){40,}", text):
        depth += 1 if hit[0] in "[{" else -1 if hit[0] in "]}" else MAX_BRACKETS + 1
        depth = max(depth, 0)
        deepest = max(deepest, depth)
    return deepest


def _compose(text: str, file: str) -> yaml.Node:
    if _brackets(text) > MAX_BRACKETS:
        raise InputError([Problem(Mark(file, 1, 1), "nested too deeply", "a service file has four levels")])
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.reader.ReaderError as error:
        what = f"character U+{error.character:04X} is not allowed in YAML"
        raise InputError([Problem(_place(text[: error.position], file), what, "remove or escape it")]) from None
    except yaml.MarkedYAMLError as error:
        raise InputError([_yaml_problem(error, file)]) from None
    except RecursionError:
        raise InputError([Problem(Mark(file, 1, 1), "nested too deeply", "a service file has four levels")]) from None
    if node is None:
        todo = "start with `service: NAME`, `sglfleet init` makes an example"
        raise InputError([Problem(Mark(file, 1, 1), "the file is empty", todo)])
    return node


def _yaml_problem(error: yaml.MarkedYAMLError, file: str) -> Problem:
    mark = error.problem_mark or error.context_mark
    what = ", ".join(part for part in (error.context, error.problem) if part) or "not YAML"
    todo = "check indentation and quotes here"
    if "'\\t'" in what:
        what, todo = "a tab", "indent with spaces: YAML allows no tabs there"
    elif "single document" in what:
        what, todo = "a second document (`---`)", "one service a file"
    elif "undefined alias" in what:
        todo = "define the anchor with `&name` before it is used"
    elif "mapping values are not allowed" in what:
        todo = "quote the text that holds `: `, or start a new line"
    elif "could not find expected ':'" in what:
        todo = "write `key: value`"
    return Problem(Mark(file, mark.line + 1, mark.column + 1) if mark else Mark(file, 1, 1), what, todo)


class _Walk:
    """Nodes to data, with marks, duplicates, merge keys and limits."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.marks: dict[Path, Mark] = {}
        self.problems: list[Problem] = []
        self.count = 0

    def mark(self, node: yaml.Node) -> Mark:
        return Mark(self.file, node.start_mark.line + 1, node.start_mark.column + 1)

    def wrong(self, node: yaml.Node, what: str, todo: str) -> None:
        self.problems.append(Problem(self.mark(node), what, todo))

    def visit(self, node: yaml.Node, path: Path, depth: int) -> Any:
        self.count += 1
        if self.count > MAX_NODES or depth > MAX_DEPTH:
            what = "nested too deeply" if depth > MAX_DEPTH else f"more than {MAX_NODES} values, aliases followed"
            self.wrong(node, what, "write it out without aliases (`*name`)")
            raise InputError(self.problems)
        self.marks.setdefault(path, self.mark(node))
        if isinstance(node, yaml.MappingNode):
            return self.mapping(node, path, depth)
        if isinstance(node, yaml.SequenceNode):
            if node.tag != _SEQ:
                self.wrong(node, f"tag {node.tag}", "remove the tag")
            return [self.visit(item, (*path, i), depth + 1) for i, item in enumerate(node.value)]
        return self.scalar(node) if isinstance(node, yaml.ScalarNode) else None

    def mapping(self, node: yaml.MappingNode, path: Path, depth: int) -> dict[str, Any]:
        if node.tag != _MAP:
            self.wrong(node, f"tag {node.tag}", "remove the tag")
        found: dict[str, Any] = {}
        first: dict[str, Mark] = {}
        merged: list[yaml.Node] = []
        for key, value in node.value:
            if key.tag == "tag:yaml.org,2002:merge":
                merged.append(value)
            elif not isinstance(key, yaml.ScalarNode):
                self.wrong(key, "a list or mapping as a key", "keys are words")
            elif key.value in first:
                self.wrong(key, f"`{key.value}` is given twice, first in line {first[key.value].line}", "remove one")
            else:
                first[key.value] = self.mark(key)
                self.marks.setdefault((*path, key.value), self.mark(key))
                found[key.value] = self.visit(value, (*path, key.value), depth + 1)
        for source in merged:
            for name, value in self.merge_key(source, path, depth):
                found.setdefault(name, value)
        return found

    def merge_key(self, source: yaml.Node, path: Path, depth: int) -> Iterator[tuple[str, Any]]:
        for node in source.value if isinstance(source, yaml.SequenceNode) else [source]:
            if isinstance(node, yaml.MappingNode):
                yield from self.visit(node, path, depth + 1).items()
            else:
                self.wrong(node, "`<<` takes a mapping", "point it at an anchored mapping")

    def scalar(self, node: yaml.ScalarNode) -> str | Plain:
        text: str = node.value
        if node.style is not None or node.tag == _STR:
            # quoted, block, an explicit !!str, or a word by YAML 1.1 (where 1.2 may still see a number, as in 1e5)
            if node.tag != _STR:
                self.wrong(node, f"tag {node.tag}", "remove the tag")
            implicit = node.style is None and not _explicit(node)
            return (plain(text) or text) if implicit else text
        if _explicit(node):
            self.wrong(node, f"tag {node.tag}", "remove the tag")
            return text
        return plain(text) or text


def _explicit(node: yaml.ScalarNode) -> bool:
    """Whether the tag was written rather than resolved from the letters."""
    rules = _RESOLVER.get(node.value[:1], []) + _RESOLVER.get(None, [])
    resolved = next((tag for tag, rx in rules if rx.match(node.value)), _STR)
    return bool(node.tag != resolved)


def plain(text: str) -> Plain | None:
    """What an unquoted scalar is; None for a word."""
    if text in _NULL:
        return Plain(text, None)
    if text in _BOOL:
        return Plain(text, _BOOL[text])
    if _INT.fullmatch(text):
        return Plain(text, int(text))
    for rx, trap in _TRAPS:
        if rx.fullmatch(text):
            return Plain(text, None, trap)
    if _FLOAT.fullmatch(text):
        value = float(text)
        return Plain(text, value) if abs(value) != float("inf") else Plain(text, None, "not a finite number")
    return None
