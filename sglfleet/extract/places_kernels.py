"""Kernel packages that a release installs besides FlashInfer: images of their shared objects, tests in their Python.

    python -m sglfleet.extract.places_kernels WHEEL... > validators/rules/kernel_places.json

The table stands beside the rules. Per package and version, by name: [file, line, symbol, quote, value]. Of a shared
object the value is its architectures (`9.0a 10.0a`), and the quote a text in it that a refusal of the GPU raises.
"""

from __future__ import annotations

import ast
import json
import re
import sys
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from packaging.version import Version

from sglfleet.extract import places_attention
from sglfleet.extract.kernels import objects
from sglfleet.extract.places import symbol_of

Row = list[str | int]
_OBJECTS = {
    "flashmla": re.compile(r"sgl_kernel/flashmla_ops\.|flash_mla/.*\.so$"),
    "flash": re.compile(r"sgl_kernel/flash_ops\."),
    "common": re.compile(r"sgl_kernel/(sm90/)?common_ops\."),
}
_REFUSED = {
    "cutlass_mla": ("common", b"cutlass_mla_decode is only supported on compute capability 10.0", "10.0"),
    "flashmla.dense": ("flashmla", b"Dense decode MLA is only supported on SM90a architecture", "9.0"),
}
_PYTHON = re.compile(r"(flash_attn/cute/interface|sgl_kernel/_fa4_interface|flashinfer/mla(/_core)?)\.py$")


def rows(archive: zipfile.ZipFile, images: Iterable[tuple[str, list[str]]]) -> dict[str, Row]:
    """What one wheel has: shared objects with their images, and what its Python says of FlashAttention 4."""
    found: dict[str, Row] = {}
    for path, archs in images:
        for name, pattern in _OBJECTS.items():
            if archs and pattern.search(path):
                found.setdefault(f"images.{name}", [path, 0, "", "", " ".join(archs)])
    for path in sorted(archive.namelist()):
        if _PYTHON.search(path):
            found |= dict(_python(path, archive.read(path).decode()))
        for name, (kind, text, sms) in _REFUSED.items():
            if _OBJECTS[kind].search(path) and text in archive.read(path):
                found.setdefault(name, [path, 0, "", text.decode(), sms])
    return found


def _python(path: str, source: str) -> Iterator[tuple[str, Row]]:
    tree = ast.parse(source)
    lines = source.splitlines()
    seen = set()
    for name, node, more in (*places_attention.fa4(tree), *places_attention.xqa(tree)):
        if name not in seen:
            seen.add(name)
            line: int = node.lineno  # type: ignore[attr-defined]
            yield name, [path, line, symbol_of(tree, line), lines[line - 1].strip(), *more]


def read(wheel: Path) -> tuple[str, dict[str, Row]]:
    """`package-version` and the rows of one wheel."""
    package, version = wheel.name.split("-")[:2]
    archs = []
    for row in objects(wheel):
        archs.append((str(row["path"]), [str(image["arch"]) for image in row["images"] if image["kind"] == "elf"]))
    with zipfile.ZipFile(wheel) as archive:
        return f"{package.replace('_', '-')}-{version}", rows(archive, archs)


def text(table: dict[str, dict[str, Row]]) -> str:
    """One package version a line."""
    names = sorted(table, key=lambda name: (name.rpartition("-")[0], Version(name.rpartition("-")[2])))
    return "{\n" + ",\n".join(f"  {json.dumps(name)}: {json.dumps(table[name])}" for name in names) + "\n}\n"


def main(wheels: list[Path]) -> None:
    sys.stdout.write(text(dict(read(wheel) for wheel in wheels)))


if __name__ == "__main__":
    main([Path(name) for name in sys.argv[1:]])
