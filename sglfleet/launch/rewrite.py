"""A service file with a new engine and renamed flags, everything else, comments included, as it was. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping

import yaml

from validators.load import Loaded
from validators.verdict import Value


def upgraded(text: str, loaded: Loaded, to: str, renames: Mapping[str, tuple[str, Value]]) -> str:
    """`text` with `engine.sglang` set to `to` and keys of `args` renamed (and given their new value).

    `loaded` is the same text, read. Edits go from the end, so that earlier places stay where they are.
    """
    edits: list[tuple[int, int, str]] = []
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    for path, key, value in _scalars(root, ()) if root else ():
        if path == ("engine", "sglang"):
            edits.append((value.start_mark.index, value.end_mark.index, _quoted_as(value, to)))
        if len(path) == 2 and path[0] == "args" and path[1] in renames:
            name, new = renames[path[1]]
            edits.append((key.start_mark.index, key.end_mark.index, _quoted_as(key, name)))
            if isinstance(value, yaml.ScalarNode) and new != loaded.data["args"][path[1]]:
                edits.append((value.start_mark.index, value.end_mark.index, json.dumps(new, ensure_ascii=False)))
    for start, end, new_text in sorted(edits, reverse=True):
        text = text[:start] + new_text + text[end:]
    return text


def _scalars(node: yaml.Node, path: tuple[str, ...]) -> list[tuple[tuple[str, ...], yaml.Node, yaml.Node]]:
    """(path, key node, value node) of every entry of a mapping, nested ones too."""
    out: list[tuple[tuple[str, ...], yaml.Node, yaml.Node]] = []
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            here = (*path, str(key.value))
            out.append((here, key, value))
            out += _scalars(value, here)
    return out


def _quoted_as(node: yaml.Node, text: str) -> str:
    """In the style the file uses for this scalar."""
    style = getattr(node, "style", None)
    return f"{style}{text}{style}" if style in ("'", '"') else text
