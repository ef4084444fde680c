"""For which SMs a kernel package carries machine code: read from the fat binaries in its shared objects.

A `.nv_fatbin` section is a row of containers (magic 0xBA55ED50, header 16 bytes: version u16, header size u16, size
u64), each a row of images with a header of their own: kind u16 (1 PTX, 2 ELF), u16, header size u32, payload size u64,
…, architecture u32 at byte 28, flags u64 at byte 40. Payloads may be compressed (LZ4, zstd); the headers never are, so
nothing is unpacked. Checked against the e_flags of unpacked images of sglang-kernel 0.4.10.
"""

from __future__ import annotations

import struct
import zipfile
import zlib
from collections import Counter
from pathlib import Path
from typing import IO, Any

from sglfleet.extract.tree import ExtractError, file_sha256

MAGIC = 0xBA55ED50
SECTIONS = (".nv_fatbin", "__nv_relfatbin")
KINDS = {1: "ptx", 2: "elf"}
ACCELERATED, FAMILY = 0x100000, 0x200000  # of the flags: `sm_90a` runs on 9.0 only, `sm_100f` on its family
IMAGE = struct.Struct("<HHIQ12xI8xQ")  # kind, version, header size, payload size, …, architecture, …, flags
Row = dict[str, Any]


def objects(path: Path) -> list[Row]:
    """Per shared object of a wheel: its images by architecture. Streams; keeps a few kilobytes. Raises ExtractError."""
    try:
        with zipfile.ZipFile(path) as archive:
            rows = []
            for name in sorted(n for n in archive.namelist() if n.endswith(".so") or ".so." in n):
                with archive.open(name) as stream:
                    rows.append({"path": name, "images": images(stream, f"{path.name}: {name}")})
            return rows
    except (zipfile.BadZipFile, zlib.error, EOFError, struct.error) as error:
        raise ExtractError(f"{path.name}: not a whole wheel ({error}): fetch it again") from None


def images(stream: IO[bytes], where: str) -> list[Row]:
    """Images of one seekable ELF file, by kind and architecture. Raises ExtractError."""
    found: Counter[tuple[str, str]] = Counter()
    for offset, size in _sections(stream, where):
        found.update(_containers(stream, offset, size, where))
    rows = [{"arch": arch, "kind": kind, "count": count} for (kind, arch), count in found.items()]
    return sorted(rows, key=lambda r: (r["kind"], float(r["arch"].rstrip("af")), r["arch"]))


def _sections(stream: IO[bytes], where: str) -> list[tuple[int, int]]:
    """Offset and size of the sections that hold fat binaries, in file order."""
    header = stream.read(64)
    if header[:6] != b"\x7fELF\x02\x01":
        raise ExtractError(f"{where}: not a 64-bit little-endian ELF file: report this wheel")
    (table,) = struct.unpack_from("<Q", header, 0x28)
    entry, count, names_index = struct.unpack_from("<HHH", header, 0x3A)
    stream.seek(table)
    raw = stream.read(entry * count)
    if len(raw) != entry * count or names_index >= count:
        raise ExtractError(f"{where}: its section table is cut off: fetch the wheel again")
    sections = [struct.unpack_from("<IIQQQQIIQQ", raw, number * entry) for number in range(count)]
    stream.seek(sections[names_index][4])
    names = stream.read(sections[names_index][5])
    wanted = {name.encode() for name in SECTIONS}
    return sorted((s[4], s[5]) for s in sections if names[s[0] : names.find(b"\0", s[0])] in wanted)


def _containers(stream: IO[bytes], offset: int, size: int, where: str) -> Counter[tuple[str, str]]:
    found: Counter[tuple[str, str]] = Counter()
    position, end = offset, offset + size
    while position + 16 <= end:
        stream.seek(position)
        magic, version, header, length = struct.unpack("<IHHQ", stream.read(16))
        if magic != MAGIC:
            if magic:
                raise ExtractError(f"{where}: no fat binary at byte {position}: its format is new, report this wheel")
            position += 8  # padding between containers
            continue
        if version != 1 or position + header + length > end:
            raise ExtractError(
                f"{where}: fat binary version {version} at byte {position} is not known: report this wheel"
            )
        _entries(stream, position + header, position + header + length, found, where)
        position += header + length
    return found


def _entries(stream: IO[bytes], position: int, end: int, found: Counter[tuple[str, str]], where: str) -> None:
    while position + 48 <= end:
        stream.seek(position)
        kind, _, header, payload, number, flags = IMAGE.unpack(stream.read(48))
        if kind not in KINDS or header < 48 or not 50 <= number < 1000:
            raise ExtractError(f"{where}: image of kind {kind} at byte {position} is not known: report this wheel")
        found[KINDS[kind], arch(number, flags)] += 1
        position += header + payload


def arch(number: int, flags: int) -> str:
    """90 with the accelerated bit is "9.0a"."""
    suffix = "f" if flags & FAMILY else "a" if flags & ACCELERATED else ""
    return f"{number // 10}.{number % 10}{suffix}"


def document(path: Path, package: str, version: str, head: Row) -> Row:
    """The knowledge file of one kernel wheel."""
    artifact = {"name": f"{package}-{version}", "file": path.name, "sha256": file_sha256(path)}
    return {**head, "package": package, "release": version, "artifact": artifact, "objects": objects(path)}
