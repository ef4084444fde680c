"""One artifact to one knowledge file."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sglfleet.extract import annotated, cuda, env, flags, pins
from sglfleet.extract import flashinfer as generators
from sglfleet.extract.checks import checks
from sglfleet.extract.document import Places, Texts, check_row, env_row, flag_row, generator_row, sited
from sglfleet.extract.interpret import Interpreter
from sglfleet.extract.named import automatic, named
from sglfleet.extract.native import runners
from sglfleet.extract.scope import Scopes
from sglfleet.extract.sites_resolution import resolution
from sglfleet.extract.tree import SourceTree
from validators.knowledge.loader import FORMAT

# raised whenever the same artifact gives other rows
EXTRACTOR = {"sglang": "3", "flashinfer": "2", "kernels": "1"}
Document = dict[str, Any]
Gates = Callable[[SourceTree, str], Document]


def sglang(tree: SourceTree, gates: Gates) -> Document:
    """Everything that is known of one SGLang release; `gates` adds its own keys. Raises ExtractError."""
    interpreter = Interpreter(Scopes(tree))
    options, fields = flags.flags(interpreter)
    places = Places()
    python, requirements = pins.pins(tree)
    doubts = annotated.doubts(interpreter)
    rows = [flag_row(row, places) for row in options]
    variables = [env_row(row, places) for row in env.variables(interpreter)]
    defaults = fields | {row["field"]: row["default"] for row in options if row["field"]}
    texts = Texts()
    resolved = resolution(tree, defaults, places, texts)
    stops = [check_row(row, places, texts) for row in checks(tree)]
    more = gates(tree, tree.version)
    more["sites"] = {name: [sited(row, places) for row in rows] for name, rows in more["sites"].items()}
    return {
        **head("sglang", tree),
        **({"doubts": doubts} if doubts else {}),
        "python": python,
        "pins": [{k: v for k, v in row.items() if v} for row in requirements],
        "extras": pins.extras(tree, requirements),
        "flags": rows,
        "fields": fields,
        "env": variables,
        "places": places.rows(),
        "conditions": texts.rows(),
        "checks": stops,
        "tests": named(tree),
        "switches": automatic(tree),
        **resolved,
        **more,
    }


def head(subject: str, tree: SourceTree) -> Document:
    return {
        "format": FORMAT,
        "subject": subject,
        "release": tree.version,
        "extractor": EXTRACTOR[subject],
        "artifact": {"name": tree.name, "file": tree.file, "sha256": tree.sha256},
    }


def flashinfer(tree: SourceTree) -> Document:
    """Everything that is known of one FlashInfer release. Raises ExtractError."""
    interpreter = Interpreter(Scopes(tree))
    places = Places()
    python, requirements = pins.pins(tree)
    return {
        **head("flashinfer", tree),
        "python": python,
        "pins": [{k: v for k, v in row.items() if v} for row in requirements],
        "cuda_min": cuda.minimums(interpreter),
        "aot_cuda_min": cuda.aot_minimums(interpreter),
        "generators": [generator_row(row, places) for row in (*generators.generators(interpreter), *runners(tree))],
        "places": places.rows(),
    }
