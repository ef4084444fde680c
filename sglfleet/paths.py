"""Where everything lives on a host. Names are fixed: people and scripts rely on them."""

from __future__ import annotations

ETC = "/etc/sglfleet"
STATE = "/var/lib/sglfleet"
CACHE = "/var/cache/sglfleet"
OPT = "/opt/sglfleet"
UNITS = "/etc/systemd/system"


def unit(service: str) -> str:
    """Name of a service's systemd unit."""
    return f"sglang-{service}.service"


def unit_file(service: str) -> str:
    return f"{UNITS}/{unit(service)}"


def secrets(service: str, release: str) -> str:
    """Root-only folder with the secrets of one release, one file each."""
    return f"{ETC}/{service}/{release}"


def state(service: str) -> str:
    return f"{STATE}/{service}"


def releases(service: str) -> str:
    return f"{state(service)}/releases"


def release(service: str, release: str) -> str:
    """Folder of one immutable release."""
    return f"{releases(service)}/{release}"


def current(service: str) -> str:
    """Symlink to the release that the unit in place belongs to."""
    return f"{state(service)}/current"


def history(service: str) -> str:
    return f"{state(service)}/history.jsonl"


def lock(service: str) -> str:
    return f"{state(service)}/lock"


def cache(service: str) -> str:
    """Compiled kernels, kept across releases; owned by the service user."""
    return f"{CACHE}/{service}"


def engine(sglang: str, digest: str) -> str:
    """Environment of one engine: one per set of pins, side by side."""
    return f"{OPT}/engines/{sglang}-{digest}"


def set_by_the_unit(service: str) -> dict[str, str]:
    """What the unit sets by itself and a service may change: kernel caches that outlive a release."""
    folder = cache(service)
    return {
        "PYTHONUNBUFFERED": "1",
        "HOME": folder,
        "XDG_CACHE_HOME": folder,
        "FLASHINFER_WORKSPACE_BASE": folder,
        "TRITON_CACHE_DIR": f"{folder}/triton",
        "TORCHINDUCTOR_CACHE_DIR": f"{folder}/inductor",
        "SGLANG_DG_CACHE_DIR": f"{folder}/deep_gemm",
        "CUDA_CACHE_PATH": f"{folder}/cuda",
    }
