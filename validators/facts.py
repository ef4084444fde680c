"""What a host is: GPUs, driver, interconnect, engines found. Measured on the host or recorded in `facts/`.

Nothing here changes by itself; what does (processes, units, free space) is `validators.state`.
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class Fact(BaseModel):
    """Base of everything that is told by a host: nothing unknown is taken, nothing changes afterwards."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Gpu(Fact):
    """One GPU as `nvidia-smi` tells it."""

    index: int
    uuid: str = ""
    name: str
    sm: str = Field(pattern=r"^\d+\.\d+$")  # compute capability, "12.0"
    memory_mib: int | None = None
    mig: bool = False
    pci_bus_id: str = ""


class Engine(Fact):
    """A Python environment on the host with an engine in it."""

    venv: str
    packages: dict[str, str]  # canonical distribution name -> version
    python: str = ""  # real path of its interpreter, which may lie outside the venv


class HostFacts(Fact):
    """Everything the judge may know of a host. `gpus is None` means nobody could tell, and why is in `gpu_error`."""

    host: str = ""
    gpus: tuple[Gpu, ...] | None = None
    gpu_error: str = ""  # what nvidia-smi said, or "nvidia-smi not found"
    driver: str | None = None
    cuda: str | None = None  # newest CUDA the driver runs, "13.0"
    nvcc: str | None = None  # CUDA toolkit on the host, None where there is none
    interconnect: str | None = None  # nvswitch | nvlink | pcie; None where nobody could tell
    p2p: bool | None = None
    rdma_nics: int | None = None  # InfiniBand or RoCE devices
    nvswitch: bool | None = None
    machine: str = ""  # "x86_64", "aarch64"
    memory_mib: int | None = None  # main memory
    engines: tuple[Engine, ...] = ()
    declared: bool = False  # told by a profile in the inventory, not by a host


def span(numbers: list[int]) -> str:
    """`3`, `0 to 7`, `0, 2, 5`."""
    if len(numbers) > 1 and numbers == list(range(numbers[0], numbers[-1] + 1)):
        return f"{numbers[0]} to {numbers[-1]}"
    return ", ".join(map(str, numbers))
