"""The pinned engine of a service: what it consists of, where it lives on a host, whether what is there is it. Pure."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sglfleet import paths

if TYPE_CHECKING:
    from validators.knowledge.model import Sglang
    from validators.service import EngineSpec

SHORT = {"flashinfer": "flashinfer-python"}  # short names in `pins:`; `kernel` depends on the release
CORE = ("sglang", "torch", "flashinfer-python", "sglang-kernel", "sgl-kernel")  # what verdicts depend on


@dataclass(frozen=True)
class Engine:
    """One set of pins. `packages` are the exact versions that must be found, as far as they are known."""

    sglang: str
    venv: str
    managed: bool
    requirements: tuple[str, ...]
    overrides: tuple[str, ...] = ()  # pins that differ from the release's own
    packages: Mapping[str, str] = field(default_factory=dict)
    python: str = ""
    index_url: str = ""
    wheelhouse: str = ""

    def package(self, name: str) -> str:
        """The distribution that a name in `pins:` means: `kernel` changed its name between releases."""
        kernel = next((p for p in ("sglang-kernel", "sgl-kernel") if p in self.packages), "sgl-kernel")
        return normal({**SHORT, "kernel": kernel}.get(name, name))

    @property
    def interpreter(self) -> str:
        return f"{self.venv}/bin/python"


def normal(name: str) -> str:
    """A distribution's canonical name."""
    return re.sub(r"[-_.]+", "-", name).lower()


def plan(spec: EngineSpec, release: Sglang | None) -> Engine:
    """The engine that a service file asks for; `release` is what is known of it, or None."""
    kernel = (release.kernel or ("sgl-kernel", ""))[0] if release else "sgl-kernel"
    named = {normal({**SHORT, "kernel": kernel}.get(name, name)): version for name, version in spec.pins.items()}
    own = {name: version for name in CORE if release and (version := release.pin(name))}
    packages = {**own, **named, "sglang": spec.sglang}
    extra = "[srt]" if release and any(pin.extra == "srt" for pin in release.pins.values()) else ""
    requirements = (f"sglang{extra}=={spec.sglang}",)
    overrides = tuple(sorted(f"{name}=={version}" for name, version in named.items()))
    python = spec.python or ""
    digest = hashlib.sha256("\n".join((*requirements, *overrides, python)).encode()).hexdigest()[:8]
    managed = spec.venv == "managed"
    return Engine(
        sglang=spec.sglang,
        venv=paths.engine(spec.sglang, digest) if managed else spec.venv.rstrip("/"),
        managed=managed,
        requirements=requirements,
        overrides=overrides,
        packages=packages,
        python=python,
        index_url=spec.index_url or "",
        wheelhouse=spec.wheelhouse or "",
    )
