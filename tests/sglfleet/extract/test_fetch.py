"""Fetching with the real pip from a local folder of files, and what it says when that goes wrong."""

from __future__ import annotations

import tarfile
import zipfile
from pathlib import Path

import pytest

from sglfleet.extract.fetch import cached, fetch
from sglfleet.extract.tree import ExtractError, open_tree

META = "Metadata-Version: 2.1\nName: sglang\nVersion: 1.0\n"


@pytest.fixture
def index(tmp_path, monkeypatch) -> Path:
    """A folder that pip takes for its only index."""
    folder = tmp_path / "index"
    folder.mkdir()
    for name in ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_CONSTRAINT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


def wheel(folder: Path, version: str = "1.0", tags: str = "py3-none-any") -> Path:
    path = folder / f"sglang-{version}-{tags}.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("sglang/__init__.py", "")
        archive.writestr(f"sglang-{version}.dist-info/METADATA", META.replace("1.0", version))
        archive.writestr(f"sglang-{version}.dist-info/WHEEL", f"Wheel-Version: 1.0\nTag: {tags}\n")
    return path


def test_a_wheel_goes_into_the_cache_and_comes_from_it(index, tmp_path):
    wheel(index)
    cache = tmp_path / "cache"
    found = fetch("sglang", "1.0", cache)
    assert found == cache / "sglang-1.0-py3-none-any.whl"
    (index / found.name).unlink()
    assert fetch("sglang", "1.0", cache) == found


def test_of_platform_wheels_the_one_for_python_311_on_linux_is_read(index, tmp_path):
    for tags in (
        "cp310-cp310-manylinux_2_34_x86_64",
        "cp311-cp311-manylinux_2_34_x86_64",
        "cp311-cp311-macosx_11_0_arm64",
    ):
        wheel(index, tags=tags)
    assert "cp311-cp311-manylinux" in fetch("sglang", "1.0", tmp_path / "cache").name


def test_a_release_that_does_not_exist(index, tmp_path):
    wheel(index)
    with pytest.raises(ExtractError, match=r"sglang 9\.9: no such release .* newest on the index is 1\.0"):
        fetch("sglang", "9.9", tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []


def test_an_sdist_is_fetched_and_never_built(index, tmp_path):
    source = tmp_path / "sglang-1.0"
    (source / "sglang").mkdir(parents=True)
    (source / "sglang" / "__init__.py").write_text("")
    (source / "PKG-INFO").write_text(META)
    marker = tmp_path / "executed"
    (source / "setup.py").write_text(f"open({str(marker)!r}, 'w').write('yes')\n")
    with tarfile.open(index / "sglang-1.0.tar.gz", "w:gz") as archive:
        archive.add(source, "sglang-1.0")
    found = fetch("sglang", "1.0", tmp_path / "cache")
    assert open_tree(found, "sglang", "1.0").has("sglang/__init__.py")
    assert not marker.exists()


def test_no_network_is_one_clear_line(tmp_path, monkeypatch):
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    with pytest.raises(ExtractError, match="the package index cannot be reached") as caught:
        fetch("sglang", "1.0", tmp_path / "cache")
    assert "\n" not in str(caught.value)


def test_another_version_in_the_cache_is_not_taken(tmp_path):
    wheel(tmp_path, "1.0.post1")
    assert cached("sglang", "1.0", tmp_path) is None
    assert cached("sglang", "1.0.post1", tmp_path) is not None


def test_the_same_tree_as_wheel_sdist_and_folder(tmp_path):
    folder = tmp_path / "checkout" / "python" / "sglang"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("x = 1\n")
    read = open_tree(tmp_path / "checkout", "sglang", "fork")
    assert (read.name, read.list("sglang/"), read.read("sglang/__init__.py")) == (
        "sglang-fork",
        ("sglang/__init__.py",),
        "x = 1\n",
    )
    before = read.sha256
    (folder / "__init__.py").write_text("x = 2\n")
    assert open_tree(tmp_path / "checkout", "sglang", "fork").sha256 != before
    assert open_tree(wheel(tmp_path), "sglang", "1.0").list("sglang/") == ("sglang/__init__.py",)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.whl", b"PK\x03\x04 cut off", "not a whole wheel"),
        ("a.tar.gz", b"\x1f\x8b\x08 cut off", "not a whole sdist"),
        ("a.exe", b"", "neither a wheel"),
        ("missing.whl", None, "no such file"),
    ],
)
def test_files_that_are_no_release(tmp_path, name, content, message):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(ExtractError, match=message):
        open_tree(tmp_path / name, "sglang", "1.0")


def test_syntax_newer_than_this_python_is_named_with_its_line(tmp_path):
    (tmp_path / "sglang").mkdir()
    (tmp_path / "sglang" / "__init__.py").write_text("x = 1\ntype X[T] = list[T] ?\n")
    with pytest.raises(ExtractError, match=r"sglang/__init__\.py:2: Python .* cannot parse it"):
        open_tree(tmp_path, "sglang", "1.0").ast("sglang/__init__.py")
