"""The facts of one release, as the gate reads them. Every row says where it was read: file, symbol, line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from validators.verdict import Evidence

Json = Any  # what json.loads returns


@dataclass(frozen=True, slots=True)
class Artifact:
    """The file everything in one knowledge file was read from."""

    name: str  # "sglang-0.5.9"
    file: str  # "sglang-0.5.9-py3-none-any.whl"; the folder's name for an unpacked tree
    sha256: str  # of that file; of all read files' names and contents for an unpacked tree


@dataclass(frozen=True, slots=True)
class Place:
    """Where a row was read."""

    file: str  # path inside the artifact
    symbol: str  # function or class, dotted; "" at module level
    line: int  # 1-based


@dataclass(frozen=True, slots=True)
class Flag:
    """One option of the engine's parser."""

    name: str  # canonical, without dashes: "tp-size"
    spellings: tuple[str, ...]  # all, with dashes, in the parser's order; the `--no-…` forms of a tri-state included
    dest: str  # argparse dest; also the key in the engine's own YAML file, with dashes
    field: str  # attribute of ServerArgs it ends in; "" where there is none
    kind: Literal["switch", "tristate", "value"]  # no value · `--x` / `--no-x` · takes a value
    type: Literal["bool", "int", "float", "str", "json", "unknown"]  # of one value, after the engine's conversion
    converter: str  # the engine's own callable: "int", "json.loads", "human_readable_int", …; "" for a switch
    nargs: str | int | None  # argparse's: None (exactly one), "?", "*", "+", or a number
    choices: tuple[Any, ...] | None  # None: any value
    default: Any  # None also where it is not known: see `default_source`
    const: Any  # stored by a switch, or by `nargs="?"` without a value
    required: bool
    action: str  # "store", "store_true", "BooleanOptionalAction", or the engine's own class
    deprecated: str  # text; "" where it is not deprecated
    replacement: str  # what the engine says to use instead, as it writes it without the leading dashes; "" if none
    refused: str  # error text of a flag that is still listed but stops the launch; "" otherwise
    hidden: bool  # not in --help
    help: str  # first sentence
    place: Place
    default_source: str = ""  # source text of a default that cannot be known without running the engine
    choices_source: str = ""  # the same for choices; `choices` is then None and nothing is known about them
    notes: tuple[str, ...] = ()  # what else depends on the machine: "more choices if …"

    @property
    def takes_value(self) -> bool:
        return self.kind == "value" and self.nargs != 0

    @property
    def many(self) -> bool:
        """More than one value may follow."""
        return self.nargs in ("*", "+") or (isinstance(self.nargs, int) and self.nargs > 1)

    def off(self) -> str | None:
        """The spelling that says no, for a tri-state flag."""
        return next((s for s in self.spellings if s.startswith("--no-")), None) if self.kind == "tristate" else None


@dataclass(frozen=True, slots=True)
class EnvVar:
    """An environment variable that the release reads."""

    name: str
    type: str  # "bool", "int", "float", "str", "tuple", or "" where the read does not say
    default: Any  # None also where it is not known
    place: Place  # the declaration, or the first read


@dataclass(frozen=True, slots=True)
class Pin:
    """One requirement that holds for CPython 3.11 on Linux x86-64."""

    name: str  # normalized: "flashinfer-python"
    specifier: str  # "==0.6.3", ">=2.7"; "" for any
    extra: str  # "" or the extra that asks for it ("srt" in releases up to 0.5.2)

    @property
    def exact(self) -> str | None:
        """The one version, or None."""
        first = self.specifier.removeprefix("==")
        return first if self.specifier.startswith("==") and "," not in first and "*" not in first else None


@dataclass(frozen=True, slots=True)
class Resolved:
    """What the engine's parser makes of one spelling."""

    flag: Flag | None  # None: refused
    spelling: str  # the full spelling it stands for (`--help` has no flag), or "" when refused
    candidates: tuple[str, ...] = ()  # of an ambiguous abbreviation, in the parser's order
    near: tuple[str, ...] = ()  # close spellings of an unknown one

    @property
    def ambiguous(self) -> bool:
        return bool(self.candidates)


@dataclass(frozen=True)
class Sglang:
    """One SGLang release. `gates` is plain JSON as the gate extractor writes it; the properties name its parts."""

    version: str
    artifact: Artifact
    extractor: str  # version of the extractor that wrote the file
    python: str  # Requires-Python
    flags: Mapping[str, Flag]  # canonical name -> flag, in the parser's order
    pins: Mapping[str, Pin]  # normalized name -> requirement
    env: Mapping[str, EnvVar]
    gates: Mapping[str, Json]  # predicates, sites, named, tables, min_capability, automatic, logs
    fields: Mapping[str, Any] = field(default_factory=dict)  # ServerArgs fields with no flag -> default
    extras: frozenset[str] = frozenset()  # packages that only an extra of it brings
    doubts: tuple[str, ...] = ()  # what the extractor could only read by the rules of other releases

    @cached_property
    def key(self) -> str:
        """Tells what is known of one release from what is known of any other, for tables that are made once."""
        return f"{self.version} {self.extractor} {self.artifact.sha256} {len(self.gates)}"

    @property
    def predicates(self) -> Json:
        return self.gates.get("predicates", [])

    @property
    def sites(self) -> Json:
        return self.gates.get("sites", [])

    @property
    def named(self) -> Json:
        return self.gates.get("named", [])

    @property
    def automatic(self) -> Json:
        return self.gates.get("automatic", [])

    @property
    def logs(self) -> Json:
        return self.gates.get("logs", [])

    @cached_property
    def _by_spelling(self) -> dict[str, Flag]:
        return {spelling: flag for flag in self.flags.values() for spelling in flag.spellings}

    def flag(self, name: str) -> Flag | None:
        """The flag of an exact spelling: `tp-size`, `--tp-size`, `tp_size`, `tensor-parallel-size`, `-tp`."""
        if name in self.flags:
            return self.flags[name]
        bare = name.lstrip("-").replace("_", "-")
        dashed = "--" + bare
        return self._by_spelling.get(name) or self._by_spelling.get(dashed) or self._by_spelling.get("-" + bare)

    def resolve_spelling(self, spelling: str) -> Resolved:
        """What `spelling` (with dashes, without `=value`) means to the engine's parser.

        argparse's order: an exact option string first; else every option string that starts with it; more than one
        is an error even where all of them belong to one flag. Source: CPython 3.11, `argparse._parse_optional`.
        """
        exact = self._by_spelling.get(spelling)
        if exact:
            return Resolved(exact, spelling)
        hits = self._abbreviated(spelling)
        if len(hits) == 1:
            return Resolved(self._by_spelling.get(hits[0]), hits[0])
        if hits:
            return Resolved(None, "", candidates=hits)
        from difflib import get_close_matches

        near = get_close_matches(spelling, self._by_spelling, n=3, cutoff=0.75)
        return Resolved(None, "", near=tuple(one for one in near if _alike(spelling, one)))

    def _abbreviated(self, spelling: str) -> tuple[str, ...]:
        """Option strings that `spelling` can stand for. `-h` and `--help` are there in every parser."""
        options = ("-h", "--help", *self._by_spelling)
        if spelling.startswith("--"):
            return tuple(o for o in options if o.startswith(spelling)) if len(spelling) > 2 else ()
        if spelling.startswith("-") and len(spelling) > 1:  # `-x5` may be `-x 5`
            return tuple(o for o in options if o == spelling[:2] or o.startswith(spelling))
        return ()

    def pin(self, package: str) -> str | None:
        """The exact version this release pins, or None. Names are normalized: `flashinfer_python` is fine."""
        found = self.pins.get(package.replace("_", "-").replace(".", "-").lower())
        return found.exact if found else None

    @property
    def flashinfer(self) -> str | None:
        return self.pin("flashinfer-python")

    @property
    def kernel(self) -> tuple[str, str] | None:
        """Package and version of the kernel wheel: it changed its name from `sgl-kernel` to `sglang-kernel`."""
        for package in ("sglang-kernel", "sgl-kernel"):
            version = self.pin(package)
            if version:
                return package, version
        return None

    def evidence(self, place: Place, condition: str = "") -> Evidence:
        return Evidence(self.artifact.name, place.file, place.symbol, place.line, condition)


@dataclass(frozen=True, slots=True)
class Generator:
    """One `gen_*` function of FlashInfer: it decides for which GPUs a kernel module is built."""

    name: str
    majors: tuple[int, ...] | None  # SM majors it builds for, over all its paths; None: it names none
    archs: tuple[str, ...]  # exact architectures that it names ("9.0a", "10.3a"); () where none are
    always: bool  # False: some path, by its arguments or the machine, builds for any GPU
    cuda_min: Mapping[str, str]  # SM ("12.0", or "" for all) -> lowest CUDA; only what the function itself tests
    source: str  # source text that says so; "" where nothing restricts
    place: Place
    certain: bool = True  # False: a list in it could not be read; `majors` is then None and nothing is known

    def builds_for(self, major: int) -> bool | None:
        """Whether it builds anything for GPUs of an SM major; None where its arguments decide, or nobody knows."""
        if not self.certain:
            return None
        if self.majors is None or major in self.majors:
            return True
        return False if self.always else None


@dataclass(frozen=True, slots=True)
class Flashinfer:
    """One FlashInfer release."""

    version: str
    artifact: Artifact
    extractor: str
    python: str  # Requires-Python
    pins: Mapping[str, Pin]
    generators: Mapping[str, Generator]  # by name; "module.name" where two modules have one of that name
    cuda_min: Mapping[str, str]  # SM ("12.1") -> lowest CUDA; below it every build for that SM raises
    aot_cuda_min: Mapping[str, str]  # SM -> lowest CUDA with which the precompiled cache holds kernels for it

    def generator(self, name: str) -> Generator | None:
        """By name, with or without its module; None where there is none, or where two of that name differ."""
        if name in self.generators:
            return self.generators[name]
        same = [g for key, g in self.generators.items() if key.endswith(f".{name}")]
        alike = {(g.majors, g.archs, g.always, g.certain) for g in same}
        return same[0] if len(alike) == 1 else None

    def evidence(self, place: Place, condition: str = "") -> Evidence:
        return Evidence(self.artifact.name, place.file, place.symbol, place.line, condition)


@dataclass(frozen=True, slots=True)
class Image:
    """Device code of one architecture in one shared object."""

    arch: str  # "9.0a", "10.0", "12.0f"
    kind: Literal["elf", "ptx"]  # machine code for exactly that SM · text that a newer driver can compile
    count: int  # how many of them


@dataclass(frozen=True, slots=True)
class SharedObject:
    """One `.so` of a kernel package."""

    path: str
    images: tuple[Image, ...]


@dataclass(frozen=True, slots=True)
class Kernels:
    """One sgl-kernel / sglang-kernel release."""

    package: str
    version: str
    artifact: Artifact
    extractor: str
    objects: tuple[SharedObject, ...]

    def archs(self, kind: Literal["elf", "ptx"] = "elf") -> tuple[str, ...]:
        """All architectures with images in any object, sorted by SM."""
        found = {image.arch for so in self.objects for image in so.images if image.kind == kind}
        return tuple(sorted(found, key=lambda a: (float(a.rstrip("af")), a)))


def _alike(written: str, known: str) -> bool:
    """Whether two close spellings are close besides the word that half of all flags begin with."""
    from difflib import SequenceMatcher

    for word in ("--enable-", "--disable-"):
        if written.startswith(word) and known.startswith(word):
            return SequenceMatcher(None, written.removeprefix(word), known.removeprefix(word)).ratio() >= 0.6
    return True
