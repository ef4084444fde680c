"""Knowledge files (JSON) to the dataclasses of `model`. What a row leaves out has the value given here."""

from __future__ import annotations

from typing import Any

from validators.knowledge.model import (
    Artifact,
    EnvVar,
    Flag,
    Flashinfer,
    Generator,
    Image,
    Kernels,
    Pin,
    Place,
    Sglang,
    SharedObject,
)

Row = dict[str, Any]
OWN = frozenset(
    (
        "format",
        "subject",
        "release",
        "extractor",
        "artifact",
        "doubts",
        "python",
        "pins",
        "extras",
        "flags",
        "fields",
        "env",
        "places",
    )
)  # keys of a SGLang file that are not the gate extractor's


def sglang(raw: Row) -> Sglang:
    places: list[list[str]] = raw["places"]
    for rows in (raw.get("sites") or {}).values():
        for row in rows:
            row["file"], row["symbol"] = places[row.pop("in")]
    return Sglang(
        version=raw["release"],
        artifact=Artifact(**raw["artifact"]),
        extractor=raw["extractor"],
        python=raw["python"],
        flags={row["name"]: _flag(row, places) for row in raw["flags"]},
        pins=_pins(raw),
        env={row[0]: _env(row, places) for row in raw["env"]},
        fields=raw["fields"],
        extras=frozenset(raw.get("extras", ())),
        doubts=tuple(raw.get("doubts", ())),
        gates={key: value for key, value in raw.items() if key not in OWN} | {"places": places},
    )


def flashinfer(raw: Row) -> Flashinfer:
    places: list[list[str]] = raw["places"]
    return Flashinfer(
        version=raw["release"],
        artifact=Artifact(**raw["artifact"]),
        extractor=raw["extractor"],
        generators={row["key"]: _generator(row, places) for row in raw["generators"]},
        python=raw["python"],
        pins=_pins(raw),
        cuda_min=raw["cuda_min"],
        aot_cuda_min=raw["aot_cuda_min"],
    )


def kernels(raw: Row) -> Kernels:
    return Kernels(
        package=raw["package"],
        version=raw["release"],
        artifact=Artifact(**raw["artifact"]),
        extractor=raw["extractor"],
        objects=tuple(
            SharedObject(row["path"], tuple(Image(i["arch"], i["kind"], i["count"]) for i in row["images"]))
            for row in raw["objects"]
        ),
    )


def _place(row: Row, places: list[list[str]]) -> Place:
    """A row's `at` is [number of the place, line]: files and symbols repeat, so they are listed once."""
    number, line = row["at"]
    file, symbol = places[number]
    return Place(file, symbol, line)


def _pins(raw: Row) -> dict[str, Pin]:
    return {row["name"]: Pin(row["name"], row.get("specifier", ""), row.get("extra", "")) for row in raw["pins"]}


def _flag(row: Row, places: list[list[str]]) -> Flag:
    choices = row.get("choices")
    kind = row.get("kind", "value")
    action = row.get("action", "store" if kind == "value" else "store_true")
    switch = action == "store_true"
    dest = row.get("dest", row["name"].replace("-", "_"))
    return Flag(
        name=row["name"],
        spellings=tuple(row.get("spellings", ("--" + row["name"],))),
        dest=dest,
        field=row.get("field", dest),
        kind=kind,
        type=row.get("type", "str" if kind == "value" else "bool"),
        converter=row.get("converter", "str" if kind == "value" else ""),
        nargs=row.get("nargs", None if kind == "value" else 0),
        choices=None if choices is None else tuple(choices),
        default=row.get("default", False if switch else None),
        const=row.get("const", True if switch else None),
        required=row.get("required", False),
        action=action,
        deprecated=row.get("deprecated", ""),
        replacement=row.get("replacement", ""),
        refused=row.get("refused", ""),
        hidden=row.get("hidden", False),
        help=row.get("help", ""),
        place=_place(row, places),
        default_source=row.get("default_source", ""),
        choices_source=row.get("choices_source", ""),
        notes=tuple(row.get("notes", ())),
    )


def _env(row: list[Any], places: list[list[str]]) -> EnvVar:
    """[name, at, type, default]; the last two may be missing."""
    kind = row[2] if len(row) > 2 else ""
    return EnvVar(row[0], kind, row[3] if len(row) > 3 else None, _place({"at": row[1]}, places))


def _generator(row: Row, places: list[list[str]]) -> Generator:
    majors = row.get("majors")
    return Generator(
        name=row["key"].rpartition(".")[2],
        majors=None if majors is None else tuple(majors),
        archs=tuple(row.get("archs", ())),
        always=row.get("always", True),
        cuda_min=row.get("cuda_min", {}),
        source=row.get("source", ""),
        place=_place(row, places),
        certain=row.get("certain", True),
    )
