"""Profiles: which GPUs a lab host plays. Each is a data file in `profiles/`; its form is in docs/lab.md."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lab.settings import LabError

if TYPE_CHECKING:
    from lab.disk import Layer
    from lab.host import Host

HERE = Path(__file__).parent
FOLDER = HERE / "profiles"
DATA = "etc/sglfleet-lab/gpus.json"
SMI = "usr/local/bin/nvidia-smi"
NVCC = "usr/local/bin/nvcc"


def names() -> list[str]:
    """All profiles."""
    return sorted(path.stem for path in FOLDER.glob("*.json"))


def load(name: str) -> dict[str, Any]:
    """A profile's data. Raises LabError with the names there are."""
    path = FOLDER / f"{name}.json"
    if name not in names():
        raise LabError(f"--profile: there is no {name!r}: choose one of {', '.join(names())}")
    return dict(json.loads(path.read_text()))


def files(profile: dict[str, Any]) -> dict[str, str]:
    """Path -> text of the programs and data a host needs to play a profile; what is not listed must not be there."""
    wanted = {}
    if profile["smi"] != "absent":
        wanted[SMI] = (HERE / "nvidia_smi.py").read_text()
        wanted[DATA] = json.dumps(profile, indent=1)
    if profile.get("nvcc"):
        wanted[NVCC] = (HERE / "nvcc.sh").read_text().replace("@VERSION@", profile["nvcc"])
    return wanted


def install(layer: Layer, name: str) -> None:
    """Write a profile's files onto a host's disk before it boots."""
    for path, text in files(load(name)).items():
        layer.file(path, text, 0o644 if path == DATA else 0o755)
    for tool in ("nvidia-smi", "nvcc"):  # the machine's own, if it has a GPU
        if (Path("/usr/bin") / tool).exists():
            layer.hide(f"usr/bin/{tool}")


def change(host: Host, name: str) -> None:
    """Let a running host play another profile from now on, as if cards had been changed."""
    wanted = files(load(name))
    for path in (DATA, SMI, NVCC):
        if path in wanted:
            mode = "644" if path == DATA else "755"
            script = 'mkdir -p "${0%/*}" && cat > "$0.new" && chmod "$1" "$0.new" && mv "$0.new" "$0"'
            done = host.exec("sh", "-c", script, f"/{path}", mode, stdin=wanted[path])
        else:
            done = host.exec("rm", "-f", f"/{path}")
        if done.returncode:
            raise LabError(f"{host.name}: cannot write /{path}: {done.stderr.strip()}")
