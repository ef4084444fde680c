"""A release small enough to read: every way in which the engine asks for the SM, and what passes, said by hand."""

from __future__ import annotations

from pathlib import Path

COMMON = """
from functools import lru_cache, partial
import torch

def is_cuda():
    return torch.cuda.is_available() and torch.version.cuda is not None

def is_hip():
    return torch.version.hip is not None

def _check(device_capability_majors, cuda_version):
    if not is_cuda():
        return False
    return (
        torch.cuda.get_device_capability()[0] in device_capability_majors
        and tuple(map(int, torch.version.cuda.split(".")[:2])) >= cuda_version
    )

is_blackwell_supported = is_blackwell = lru_cache(maxsize=1)(
    partial(_check, device_capability_majors=[10, 11, 12], cuda_version=(12, 8))
)
is_sm100_supported = lru_cache(maxsize=1)(partial(_check, device_capability_majors=[10], cuda_version=(12, 8)))
is_sm90_supported = lru_cache(maxsize=1)(partial(_check, device_capability_majors=[9], cuda_version=(12, 3)))

@lru_cache(maxsize=1)
def is_sm120():
    return is_cuda() and torch.cuda.get_device_capability() == (12, 0)

def get_device_sm():
    if torch.cuda.is_available():
        major, minor = torch.cuda.get_device_capability()
        return major * 10 + minor
    return 0
"""

PLATFORM = """
_PLATFORM_PROBES = {"is_sm120": "is_blackwell", "is_sm90": "is_sm90_supported"}

class PlatformContext:
    def __getattr__(self, name):
        from sglang.srt.utils import common
        return getattr(common, _PLATFORM_PROBES[name])()

_PLATFORM = PlatformContext()

def get_platform():
    return _PLATFORM
"""

GATES = """
import torch
from sglang.srt.utils.common import get_device_sm, is_sm90_supported, is_sm100_supported, is_blackwell
from sglang.srt.runtime_context import get_platform
from sglang.unknown_library import fast_path

_is_sm90 = is_sm90_supported()

def helper_wraps():
    return is_sm90_supported() or is_blackwell()

def plain(x):
    if not is_sm100_supported():
        raise ValueError("needs SM100")

def wrapped(x):
    if not helper_wraps():
        raise ValueError("needs SM90 or newer")

def local_import(x):
    from sglang.srt.utils import common
    if not common.is_sm120():
        raise ValueError("needs exactly 12.0")

def composed(backend):
    if backend == "fast":
        if is_blackwell():
            if get_device_sm() >= 110:
                raise ValueError("fast is not for SM110 and newer")

def early_return(x):
    if torch.cuda.get_device_capability() >= (9, 0):
        return 1
    raise ValueError("needs SM90 or newer")

def decided_by_something_else(shared):
    reason = None
    if get_device_sm() < 80:
        reason = "too old"
    if reason is not None:
        return
    assert shared == 1, "only one"

def chain(x):
    if _is_sm90:
        y = 1
    elif is_sm100_supported():
        y = 2
    else:
        raise NotImplementedError("SM90 or SM100")

def flag_and_sm(backend):
    if backend == "fa3" and is_blackwell():
        raise ValueError("fa3 is not for Blackwell")

def asserted(use_mla):
    major = torch.cuda.get_device_capability()[0]
    assert (major == 8 and not use_mla) or major == 9, "no"

def by_alias(x):
    major, minor = torch.cuda.get_device_capability()
    if major != 12:
        raise ValueError("12 only")

def by_platform(x):
    if get_platform().is_sm120:
        raise ValueError("platform")

def pair(config):
    return config.first, config.second

def unpacked(config):
    first, second = pair(config)
    if "fast" in (first, second):
        if first == "fast" and not is_sm90_supported():
            raise ValueError("fast needs SM90")

def not_readable(x):
    if not fast_path(get_device_sm()):
        raise ValueError("nobody can tell")

def has_nothing_to_do_with_it(x):
    if x > 3:
        raise ValueError("too large")

class Layer:
    def __init__(self):
        self.sm = get_device_sm()

    def check(self):
        if self.sm < 90:
            raise ValueError("field")

    def set_twice(self):
        self.mode = "a"

    def also(self):
        self.mode = "b"

    def reads_mode(self):
        if self.mode == "a" and not is_sm90_supported():
            raise ValueError("mode")
"""

QUANTIZATION = """
from sglang.srt.layers.quantization.methods import Fixed, Conditional, Elsewhere
from sglang.srt.utils.common import is_cuda, is_hip

BASE_QUANTIZATION_METHODS = {"fixed": Fixed, "mxfp8": Conditional, "fp8": Conditional, "odd": Elsewhere}

if is_cuda():
    BASE_QUANTIZATION_METHODS.update({"late": Fixed})
if is_hip():
    BASE_QUANTIZATION_METHODS.update({"amd": Fixed})
"""

METHODS = """
from sglang.unknown_library import least

class Fixed:
    @classmethod
    def get_min_capability(cls):
        return 89  # what the kernel needs

class Conditional:
    def get_min_capability(self):
        return 100 if self.use_mxfp8 else 80

class Elsewhere:
    @classmethod
    def get_min_capability(cls):
        return least()
"""

ALL = {"7.5", "8.0", "8.6", "8.7", "8.9", "9.0", "10.0", "10.3", "11.0", "12.0", "12.1"}
OLD = {"7.5", "8.0", "8.6", "8.7", "8.9"}
# function -> SMs that pass; None: cannot be said
PASSING: dict[str, set[str] | None] = {
    "plain": {"10.0", "10.3"},
    "wrapped": ALL - OLD,
    "local_import": {"12.0"},
    "composed": ALL - {"11.0", "12.0", "12.1"},
    "early_return": ALL - OLD,
    "chain": {"9.0", "10.0", "10.3"},
    "flag_and_sm": OLD | {"9.0"},
    "asserted": {"8.0", "8.6", "8.7", "8.9", "9.0"},
    "by_alias": {"12.0", "12.1"},
    "by_platform": OLD | {"9.0"},
    "unpacked": {"9.0"},
    "not_readable": None,
    "Layer.check": ALL - OLD,
    "Layer.reads_mode": {"9.0"},
}


def write(root: Path) -> Path:
    """The release as a tree below `root`."""
    files = {
        "__init__.py": "",
        "srt/__init__.py": "",
        "srt/utils/__init__.py": "from sglang.srt.utils.common import *\n",
        "srt/utils/common.py": COMMON,
        "srt/runtime_context.py": PLATFORM,
        "srt/gates.py": GATES,
        "srt/layers/__init__.py": "",
        "srt/layers/quantization/__init__.py": QUANTIZATION,
        "srt/layers/quantization/methods.py": METHODS,
        "srt/too_new.py": "def f(:\n",
    }
    for name, text in files.items():
        path = root / "sglang" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root
