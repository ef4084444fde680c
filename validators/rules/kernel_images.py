"""Device code in sglang-kernel / sgl-kernel for the host's SM, where a kernel package is named or was looked into."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from validators.knowledge.loader import UnknownReleaseError, load_kernels
from validators.rules.context import Context, Sm
from validators.rules.interface import Evidence, Gate, Outcome, Part, Step

SUBJECT = "Device code in the kernel package for this SM"
FLAGS: tuple[str, ...] = ()
SITES: tuple[str, ...] = ()
ALWAYS = True
_ARCH = re.compile(r"(?:sm_?|compute_)?(\d+)\.?(\d)([af]?)$")


def judge(c: Context) -> Iterator[Part]:
    packages = {name.lower().replace("_", "-"): version for name, version in c.case.packages.items()}
    package = next((name for name in ("sglang-kernel", "sgl-kernel") if name in packages), "")
    if c.case.kernel_images is not None:
        package = package or (c.release.kernel or ("sglang-kernel", ""))[0]
        yield from _verdict(c, package, packages.get(package, ""), c.case.kernel_images, (), None)
    elif package:
        version = packages[package].split("+")[0]
        try:
            known = load_kernels(package, version)
        except UnknownReleaseError:
            return  # what is in it is not known; the host's own facts say it when they were collected
        if "+" in packages[package]:
            return  # another index carries other images under the same number
        proof = Evidence(known.artifact.name, known.objects[0].path if known.objects else "")
        yield from _verdict(c, package, version, known.archs("elf"), known.archs("ptx"), proof)


def _verdict(
    c: Context, package: str, version: str, machine: Iterable[str], text: Iterable[str], proof: Evidence | None
) -> Iterator[Part]:
    images = list(machine)
    if runs(c.sm, images, text):
        return
    shown = ", ".join(images) or "none"
    reason = f"{package} {version} has no device code for SM {c.sm_text}; it has {shown}.".replace("  ", " ")
    step = Step(Gate.LIBRARY, False, reason, proof)
    todo = f"Install a build of {package} with code for SM {c.sm_text}, for instance the +cu130 one."
    evidence = (proof,) if proof else ()
    yield Part(package, Outcome.FAILS, reason, evidence, (step,), todo=todo, final=True, value=version or None)


def runs(sm: Sm, machine: Iterable[str], text: Iterable[str] = ()) -> bool:
    """Can a GPU of this SM run one of the images.

    Machine code runs on its own major from its minor on; with suffix `a` on exactly its SM, with `f` on its family:
    its major from its minor on. PTX is compiled by the driver for any newer SM, with `a` for exactly its own.
    """
    for image in machine:
        major, minor, suffix = _split(image)
        if sm == (major, minor) or (suffix != "a" and sm[0] == major and sm[1] >= minor):
            return True
    for image in text:
        major, minor, suffix = _split(image)
        if sm == (major, minor) or (not suffix and sm >= (major, minor)):
            return True
    return False


def _split(image: str) -> tuple[int, int, str]:
    match = _ARCH.match(image)
    return (int(match[1]), int(match[2]), match[3]) if match else (0, 0, "a")
