"""Hardware that an inventory declares before a host exists: `gpu = "rtx-pro-6000 x4"` as host facts."""

from __future__ import annotations

import difflib
from typing import Any

from pydantic import ValidationError

from validators import gpus
from validators.facts import Gpu, HostFacts

# How several of them in one host are joined, by NVIDIA's data sheets: HGX boards of 8 have switches, GB-racks too.
_SWITCHED = {"a100", "a800", "h100", "h800", "h20", "h200", "b200", "b300", "gb200", "gb300"}
_KEYS = ("profile", "driver", "cuda", "nvcc", "interconnect", "p2p", "rdma_nics")
_LINKS = ("nvswitch", "nvlink", "pcie")


class HardwareError(ValueError):
    """A declaration that cannot be read: what is wrong, and what to do."""

    def __init__(self, what: str, todo: str) -> None:
        super().__init__(f"{what}: {todo}")
        self.what, self.todo = what, todo


def parse(text: str) -> gpus.Declared:
    """`rtx-pro-6000 x4` as a model and a count.

    Raises:
        HardwareError: no such model, or no count that makes sense.
    """
    found = gpus.declared(text)
    if found is None:
        name = text.lower().split(" x")[0].replace("-", " ").strip()
        close = difflib.get_close_matches(name, gpus.NAMES, 1)
        raise HardwareError(
            f"`{text}` names no GPU that is known",
            f"did you mean `{close[0].replace(' ', '-')}`?" if close else "write for example `h100 x8`",
        )
    if not 1 <= found.count <= 64:
        raise HardwareError(f"`{text}`: {found.count} GPUs in a host", "write a count from 1 to 64")
    return found


def declared(host: str, value: Any) -> HostFacts:
    """Facts of a host that exists only as a declaration: `gpu = "h100 x8"`, or a mapping with `profile` and more.

    Raises:
        HardwareError: the declaration cannot be read.
    """
    more = dict(value) if isinstance(value, dict) else {"profile": value}
    if unknown := sorted(str(key) for key in more.keys() - set(_KEYS)):
        raise HardwareError(f"unknown key {', '.join(unknown)}", f"known are {', '.join(_KEYS)}")
    profile = more.pop("profile", None)
    if not isinstance(profile, str):
        raise HardwareError("`gpu` is no profile", 'write gpu = "h100 x8"')
    found = parse(profile)
    link = more.pop("interconnect", _link(profile, found))
    if link not in (*_LINKS, None):
        raise HardwareError(f"`{link}` is no interconnect", f"write one of {', '.join(_LINKS)}")
    cards = tuple(Gpu(index=i, name=found.name.upper(), sm=found.sm) for i in range(found.count))
    try:
        return HostFacts(host=host, gpus=cards, interconnect=link, declared=True, **more)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"]))
        raise HardwareError(f"`{key}` has the wrong type", first["msg"].lower()) from None


def _link(profile: str, found: gpus.Declared) -> str | None:
    """The usual interconnect of a host like this; None where there is no usual one."""
    if found.count == 1:
        return None
    pcie_card = "pcie" in profile.lower() or "nvl" in profile.lower()
    if found.name not in _SWITCHED:
        return "pcie"
    if pcie_card:
        return None  # with or without bridges, nobody said
    return "nvswitch" if found.count >= 8 or found.name.startswith("gb") else "nvlink"
