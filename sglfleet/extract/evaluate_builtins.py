"""What the engine's source asks of the machine and of Python itself, answered without running anything.

The host is an NVIDIA GPU on Linux: other accelerators are not there. Everything that is not listed is not known.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from sglfleet.extract.evaluate_values import FALSE, TOP, TRUE, Module, Value, const, join, lift

if TYPE_CHECKING:
    from sglfleet.extract.evaluate import Machine

# Platform questions with one answer on an NVIDIA host, whatever their body looks like in a release.
PLATFORM = {
    "is_cuda": True, "is_cuda_alike": True, "is_hip": False, "is_npu": False, "is_xpu": False, "is_hpu": False,
    "is_cpu": False, "is_musa": False, "is_mps": False, "is_sail": False, "is_rocm": False, "is_out_of_tree": False,
    "is_gfx95_supported": False, "is_gfx94_supported": False, "is_gfx1250_supported": False, "is_tpu": False,
    "cpu_has_amx_support": False, "has_amx": False, "use_intel_amx_backend": False,
    "is_flashinfer_available": True, "has_flashinfer": True,  # the release pins it
}  # fmt: skip


class _Answer:
    """A callable that always says the same."""

    def __init__(self, value: bool) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Answer) and other.value == self.value

    def __hash__(self) -> int:
        return hash(self.value)

    def __repr__(self) -> str:
        return f"_Answer({self.value})"


def override(name: str) -> Value | None:
    """A function that is answered by its name."""
    answer = PLATFORM.get(name)
    return None if answer is None else const(_Answer(answer))


def capability(machine: Machine) -> Value:
    return Value(None, True) if machine.capability is None else const(machine.capability, True)


def device_sm(machine: Machine) -> Value:
    return lift(lambda c: c[0] * 10 + c[1], capability(machine))


def parameter(machine: Machine, name: str) -> Value:
    """A parameter of a function under study: what its name says is the SM, in the form that releases hand it over."""
    if name in ("compute_capability", "device_capability", "cuda_capability"):
        return capability(machine)
    if name in ("device_sm_major", "sm_major"):
        return lift(lambda c: c[0], capability(machine))
    return device_sm(machine) if name in ("device_sm", "sm_version") else TOP


def library_attribute(machine: Machine, module: str, name: str) -> Value:
    """`torch.version.cuda` and the like; other names of libraries stay names, to be called or not."""
    full = f"{module}.{name}"
    if full == "torch.version.cuda":
        return const(machine.cuda)
    if full in ("torch.version.hip", "torch.version.musa", "torch.version.xpu"):
        return const(None)
    if module.split(".")[0] in ("torch", "functools", "pynvml", "math", "builtins", "dataclasses"):
        return const(Module(full))
    return TOP


class _Properties:
    """`torch.cuda.get_device_properties(…)`: only the capability is known."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Properties)

    def __hash__(self) -> int:
        return 1


def attribute(machine: Machine, x: Any, name: str, taint: bool) -> Value | None:
    """Fields of plain data."""
    if isinstance(x, _Properties):
        if name in ("major", "minor"):
            return lift(lambda c: c[0 if name == "major" else 1], capability(machine))
        return TOP
    if isinstance(x, tuple) and len(x) == 2 and name in ("major", "minor"):
        return const(x[0 if name == "major" else 1], taint)
    return None


def call_library(machine: Machine, x: Any, args: Sequence[Value], kwargs: dict[str, Value], taint: bool) -> Value:
    """A call of something that is not a function of the engine."""
    if isinstance(x, _Answer):
        return const(x.value)
    name = x.name if isinstance(x, Module) else ""
    if name.endswith("cuda.get_device_capability"):
        return capability(machine)
    if name.endswith("cuda.get_device_properties"):
        return const(_Properties(), True)
    if name == "torch.cuda.is_available" or name == "torch.cuda.is_initialized":
        return TRUE
    if name.startswith("torch.") and name.endswith(("xpu.is_available", "hpu.is_available", "npu.is_available")):
        return FALSE
    if name.startswith("builtins."):
        return _python(machine, name.removeprefix("builtins."), args, taint)
    return Value(None, taint)


PURE: dict[str, Callable[..., Any]] = {
    "bool": bool,
    "int": int,
    "str": str,
    "len": len,
    "min": min,
    "max": max,
    "abs": abs,
    "float": float,
}
ANY_ALL: dict[str, Callable[..., Any]] = {"any": any, "all": all}


def _python(machine: Machine, name: str, args: Sequence[Value], taint: bool) -> Value:
    if name in PURE and args:
        data = (str, int, float, bool, tuple, type(None))
        if not all(isinstance(x, data) for v in args for x in v.options or ()):
            return Value(None, taint)
        return lift(PURE[name], *args)
    if name in ANY_ALL and len(args) == 1:
        return lift(ANY_ALL[name], args[0])
    if name in ("tuple", "list", "set", "frozenset", "sorted"):
        return lift(lambda x: tuple(sorted(x)) if name == "sorted" else tuple(x), *args) if args else const(())
    if name == "range":
        return lift(lambda *a: tuple(range(*a)) if len(range(*a)) < 64 else 1 / 0, *args)
    if name == "map" and len(args) == 2 and args[1].known and isinstance(args[1].one, tuple):
        items = [machine.call(args[0], [const(x, args[1].taint)], {}) for x in args[1].one]
        return lift(lambda *parts: tuple(parts), *items) if items else const(())
    if name == "hasattr" and len(args) == 2 and args[0].known and isinstance(args[0].one, Module) and args[1].known:
        owner, attr = args[0].one.name, args[1].one
        if owner == "torch":
            return const(attr in ("cuda", "version", "ops", "xpu")) if attr in (
                "cuda", "version", "ops", "xpu", "hpu", "npu", "musa", "mps"
            ) else TOP  # fmt: skip
        if owner == "torch.version":
            return const(attr in ("cuda", "hip"))
    if name == "getattr" and len(args) >= 2 and args[0].known and args[1].known and isinstance(args[1].one, str):
        found = machine.attribute(args[0], args[1].one)
        return found if len(args) == 2 or found.options is not None else join([found, args[2]])
    return Value(None, taint)
