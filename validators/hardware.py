"""GPUs by name: hardware that an inventory declares before a host exists, and GPU names on the command line.

Compute capability: NVIDIA's table "CUDA GPU compute capability". Memory as nvidia-smi prints it where that is known.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from typing import Any

from validators.facts import Gpu, HostFacts


@dataclass(frozen=True, slots=True)
class Model:
    """One GPU model, and how several of them in a host are usually joined."""

    name: str  # as nvidia-smi prints it
    sm: str
    memory_mib: int | None = None
    link: str = "pcie"  # of a full host: nvswitch | nvlink | pcie


MODELS = {
    "v100": Model("Tesla V100-SXM2-32GB", "7.0", 32768, "nvlink"),
    "t4": Model("Tesla T4", "7.5", 15360),
    "a100": Model("NVIDIA A100-SXM4-80GB", "8.0", 81920, "nvswitch"),
    "a100-40gb": Model("NVIDIA A100-SXM4-40GB", "8.0", 40960, "nvswitch"),
    "a100-pcie": Model("NVIDIA A100 80GB PCIe", "8.0", 81920),
    "a30": Model("NVIDIA A30", "8.0", 24576),
    "a10": Model("NVIDIA A10", "8.6", 23028),
    "a10g": Model("NVIDIA A10G", "8.6", 23028),
    "a40": Model("NVIDIA A40", "8.6", 46068),
    "rtx-a6000": Model("NVIDIA RTX A6000", "8.6", 49140),
    "rtx-3090": Model("NVIDIA GeForce RTX 3090", "8.6", 24576),
    "l4": Model("NVIDIA L4", "8.9", 23034),
    "l40": Model("NVIDIA L40", "8.9", 46068),
    "l40s": Model("NVIDIA L40S", "8.9", 46068),
    "rtx-4090": Model("NVIDIA GeForce RTX 4090", "8.9", 24564),
    "rtx-6000-ada": Model("NVIDIA RTX 6000 Ada Generation", "8.9", 49140),
    "h20": Model("NVIDIA H20", "9.0", 97871, "nvswitch"),
    "h100": Model("NVIDIA H100 80GB HBM3", "9.0", 81559, "nvswitch"),
    "h100-pcie": Model("NVIDIA H100 PCIe", "9.0", 81559),
    "h100-nvl": Model("NVIDIA H100 NVL", "9.0", 95830, "nvlink"),
    "h200": Model("NVIDIA H200", "9.0", 143771, "nvswitch"),
    "gh200": Model("NVIDIA GH200 480GB", "9.0", 97871),
    "b200": Model("NVIDIA B200", "10.0", 183359, "nvswitch"),
    "gb200": Model("NVIDIA GB200", "10.0", None, "nvswitch"),
    "b300": Model("NVIDIA B300 SXM6 AC", "10.3", None, "nvswitch"),
    "gb300": Model("NVIDIA GB300", "10.3", None, "nvswitch"),
    "thor": Model("NVIDIA Thor", "11.0"),
    "rtx-5090": Model("NVIDIA GeForce RTX 5090", "12.0", 32607),
    "rtx-pro-6000": Model("NVIDIA RTX PRO 6000 Blackwell Server Edition", "12.0", 97887),
    "gb10": Model("NVIDIA GB10", "12.1"),
}
_ALIASES = {"dgx-spark": "gb10", "a100-80gb": "a100", "h100-sxm": "h100", "rtx-pro-6000-blackwell": "rtx-pro-6000"}


class HardwareError(ValueError):
    """A declaration that cannot be read: what is wrong, and what to do."""

    def __init__(self, what: str, todo: str) -> None:
        super().__init__(f"{what}: {todo}")
        self.what, self.todo = what, todo


def find(name: str) -> Model | None:
    """A GPU model by any usual way of writing its name: `H100`, `RTX PRO 6000`, `NVIDIA H200`."""
    key = re.sub(r"[\s_]+", "-", name.strip().lower()).removeprefix("nvidia-").removeprefix("geforce-")
    key = _ALIASES.get(key, key)
    exact = {model.name.lower(): model for model in MODELS.values()}
    return MODELS.get(key) or exact.get(name.strip().lower())


def parse(text: str) -> tuple[Model, int]:
    """`rtx-pro-6000 x4` as a model and a count.

    Raises:
        HardwareError: no such model, or no count.
    """
    hit = re.fullmatch(r"\s*(?:(\d+)\s*[x×]\s*)?(.+?)(?:\s*[x×]\s*(\d+))?\s*", text)
    if not hit or (hit[1] and hit[3]) or not 1 <= int(hit[1] or hit[3] or 1) <= 64:
        raise HardwareError(f"`{text}` is no GPU profile", "write for example `h100 x8`")
    model = find(hit[2])
    if model is None:
        close = difflib.get_close_matches(hit[2].lower().replace(" ", "-"), MODELS, 1)
        raise HardwareError(
            f"no GPU model `{hit[2]}`", f"did you mean `{close[0]}`?" if close else f"known are {', '.join(MODELS)}"
        )
    return model, int(hit[1] or hit[3] or 1)


_KEYS = {"profile", "driver", "cuda", "nvcc", "interconnect", "p2p", "rdma_nics"}


def declared(host: str, value: Any) -> HostFacts:
    """Facts of a host that exists only as a declaration: `gpu = "h100 x8"`, or a mapping with `profile` and more.

    Raises:
        HardwareError: the declaration cannot be read.
    """
    more = dict(value) if isinstance(value, dict) else {"profile": value}
    if unknown := more.keys() - _KEYS:
        raise HardwareError(
            f"unknown key {', '.join(sorted(map(str, unknown)))}", f"known are {', '.join(sorted(_KEYS))}"
        )
    if not isinstance(more.get("profile"), str):
        raise HardwareError("`gpu` is no profile", 'write gpu = "h100 x8"')
    model, count = parse(more.pop("profile"))
    link = more.pop("interconnect", model.link if count > 1 else None)
    gpus = tuple(Gpu(index=i, name=model.name, sm=model.sm, memory_mib=model.memory_mib) for i in range(count))
    try:
        return HostFacts(host=host, gpus=gpus, interconnect=link, declared=True, **more)
    except ValueError as error:
        raise HardwareError("a declared value has the wrong type", str(error).splitlines()[-2].strip()) from None
