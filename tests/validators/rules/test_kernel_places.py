"""The table of kernel packages: what the rules may rest on in every release."""

from __future__ import annotations

import pytest

from validators.case import Case
from validators.knowledge import load_sglang, releases
from validators.rules import kernel_places
from validators.rules.context import Context


def context(release: str, **more: object) -> Context:
    case = Case.from_json({"id": "k", "sglang": release, "sm": "9.0", "args": {}, **more})
    return Context(case, load_sglang(release), {}, "9.0")


@pytest.mark.parametrize("release", releases("sglang"))
def test_every_release_has_its_own_kernels_in_the_table(release: str) -> None:
    c = context(release)
    row = kernel_places.of(c, kernel_places.kernels(c), "images.flash")
    assert row is not None
    assert row.majors == {8, 9}
    assert row.proof.artifact == "-".join(c.release.kernel or ())


def test_an_installed_version_counts_and_one_that_was_not_read_says_nothing() -> None:
    assert kernel_places.read(context("0.5.9"), "sgl-kernel") == ("0.3.21",)
    assert kernel_places.read(context("0.5.9", packages={"sgl-kernel": "0.3.20"}), "sgl-kernel") == ("0.3.20",)
    assert kernel_places.read(context("0.5.9", packages={"sgl-kernel": "0.9"}), "sgl-kernel") == ()


def test_an_open_pin_leaves_several_versions() -> None:
    assert len(kernel_places.read(context("0.5.12"), "flash-attn-4")) > 1
    assert kernel_places.of(context("0.5.12"), "flash-attn-4", "fa4.majors") is None
    assert kernel_places.read(context("0.5.14"), "flash-attn-4") == ("4.0.0b15",)
