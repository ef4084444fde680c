"""Images in fat binaries: ELF files made here byte by byte, as the driver's own tools lay them out."""

from __future__ import annotations

import io
import struct
import zipfile

import pytest

from sglfleet.extract.kernels import images, objects
from sglfleet.extract.tree import ExtractError


def image(number: int, flags: int = 0, kind: int = 2, payload: bytes = b"\x28\xb5\x2f\xfd" + b"x" * 12) -> bytes:
    header = struct.pack("<HHIQIIHHIIIQQQ", kind, 0x101, 64, len(payload), 0, 0, 8, 1, number, 0, 0, flags, 0, 0)
    return header + payload


def container(*entries: bytes) -> bytes:
    body = b"".join(entries)
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body


def elf(section: bytes, name: bytes = b".nv_fatbin") -> bytes:
    names = b"\0" + name + b"\0.shstrtab\0"
    start, table = 64, 64 + len(section) + len(names)
    header = (
        b"\x7fELF\x02\x01\x01" + bytes(9) + struct.pack("<HHIQQQIHHHHHH", 3, 62, 1, 0, 0, table, 0, 64, 0, 0, 64, 3, 2)
    )
    rows = [
        bytes(64),
        struct.pack("<IIQQQQIIQQ", 1, 1, 0, 0, start, len(section), 0, 0, 8, 0),
        struct.pack("<IIQQQQIIQQ", 2 + len(name), 3, 0, 0, start + len(section), len(names), 0, 0, 1, 0),
    ]
    return header + section + names + b"".join(rows)


def found(data: bytes) -> list[tuple[str, str, int]]:
    return [(r["arch"], r["kind"], r["count"]) for r in images(io.BytesIO(data), "x.so")]


def test_images_of_several_containers_with_padding_between():
    section = (
        container(image(90, 0x108011), image(80, 0x8011))
        + bytes(8)
        + container(image(90, 0x108011), image(100, 0x1208011))
    )
    assert found(elf(section)) == [("8.0", "elf", 1), ("9.0a", "elf", 2), ("10.0f", "elf", 1)]


def test_ptx_is_told_apart_from_machine_code():
    assert found(elf(container(image(120, 0x100011, kind=1)))) == [("12.0a", "ptx", 1)]


def test_relocatable_device_code_counts():
    assert found(elf(container(image(89)), b"__nv_relfatbin")) == [("8.9", "elf", 1)]


def test_an_object_without_device_code_has_no_images():
    assert found(elf(b"", b".text")) == []


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\x7fELF\x01\x01" + bytes(60), "not a 64-bit"),
        (elf(container(image(90)))[:-30], "cut off"),
        (elf(b"\x01\x02\x03\x04" + bytes(28)), "its format is new"),
        (elf(struct.pack("<IHHQ", 0xBA55ED50, 2, 16, 0)), "version 2"),
        (elf(container(image(90, kind=7))), "image of kind 7"),
    ],
)
def test_what_is_not_understood_is_refused(data, message):
    with pytest.raises(ExtractError, match=message):
        found(data)


def test_a_wheel_is_read_object_by_object(tmp_path):
    wheel = tmp_path / "k.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("k/b.so", elf(container(image(90))))
        archive.writestr("k/a.abi3.so", elf(container(image(100))))
        archive.writestr("k/note.txt", "no object")
    assert [(r["path"], [i["arch"] for i in r["images"]]) for r in objects(wheel)] == [
        ("k/a.abi3.so", ["10.0"]),
        ("k/b.so", ["9.0"]),
    ]
    wheel.write_bytes(wheel.read_bytes()[:-40])
    with pytest.raises(ExtractError, match="not a whole wheel"):
        objects(wheel)
