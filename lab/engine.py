"""The real SGLang server for lab hosts: built once on the machine, without a GPU, seen by all hosts.

`python -m lab.engine` builds what is missing and says first how much it downloads. It may be interrupted at any time:
packages that are there are not fetched again, and nothing counts as finished without its stamp, which is written after
the engine was tried out.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lab.settings import LabError, settings

SGLANG = "0.5.23"
HERE = Path(__file__).parent
PINS = HERE / f"engine-{SGLANG}.txt"
STAMP = ".sglfleet-lab-complete"
DOWNLOAD_GB = {"cpu": 0.7, "cuda": 3.0}  # sizes of the pinned wheels on PyPI, added up
DISK_GB = {"cpu": 3.5, "cuda": 9.0}  # while it is built, pip's cache included

# torchvision from PyPI is a CUDA build. Beside a CPU build of torch its operators cannot be loaded, and the import
# fails where it describes them. Declared without code, they are enough for an engine that shows no pictures.
DECLARE = """\
# Added by the lab: operators that this build cannot load beside a CPU build of torch, declared without code.
import torch as _torch

if not hasattr(_torch.ops.torchvision, "nms"):
    _declared = _torch.library.Library("torchvision", "FRAGMENT")
    for _name in ("nms", "qnms"):
        _declared.define(f"{_name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
# End of what the lab added.
"""
TRY = """\
import importlib.metadata as m, json
import torch, torchvision, transformers
from sglang.srt.server_args import ServerArgs
import sglang.launch_server
print(json.dumps({d.metadata["Name"].lower().replace("_", "-"): d.version for d in m.distributions()}))
"""


@dataclass(frozen=True)
class Engine:
    """A finished engine and a model it can serve. Paths hold on the machine and in lab hosts."""

    sglang: str
    venv: Path
    model: Path

    @property
    def python(self) -> Path:
        return self.venv / "bin" / "python"


def paths(cache: Path) -> Engine:
    """Where engine and model lie in a cache, built or not."""
    return Engine(SGLANG, cache / f"engine-{SGLANG}", cache / "tiny-gpt2")


def find(cache: Path) -> Engine:
    """The finished engine in a cache. Raises LabError where there is none."""
    engine = paths(cache)
    for part in (engine.venv, engine.model):
        if stamped(part) != fingerprint():
            raise LabError(f"{part}: not built, or of other versions: `make engine` builds it")
    return engine


def fingerprint() -> str:
    """What the engine is made from, as one number."""
    parts = [PINS.read_bytes(), (HERE / "tiny_model.py").read_bytes(), DECLARE.encode(), TRY.encode()]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()


def stamped(folder: Path) -> str:
    """The fingerprint a finished folder was made from; empty where it is not finished."""
    try:
        return (folder / STAMP).read_text().strip()
    except OSError:
        return ""


def pins() -> dict[str, str]:
    """Package -> version."""
    lines = [line.strip() for line in PINS.read_text().splitlines()]
    pairs = [line.split("==") for line in lines if line and not line.startswith("#")]
    return {name.lower().replace("_", "-"): version for name, version in pairs}


def ensure(cache: Path) -> Engine:
    """The engine and the model; builds what is missing or adopts what passes the same trial. Raises LabError."""
    engine = paths(cache)
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / ".lock").open("w") as lock:  # two runs at once would build into one folder
        fcntl.flock(lock, fcntl.LOCK_EX)
        return ensure_locked(engine, cache)


def ensure_locked(engine: Engine, cache: Path) -> Engine:
    """`ensure`, alone in the cache."""
    if stamped(engine.venv) != fingerprint():
        if not (engine.python.exists() and fits(engine)):
            build(engine)
        finish(engine.venv)
    if stamped(engine.model) != fingerprint():
        make_model(engine)
        finish(engine.model)
    return find(cache)


def finish(folder: Path) -> None:
    """Let every user of a host read it, then say that it is complete."""
    subprocess.run(["chmod", "-R", "a+rX", str(folder)], check=True)
    (folder / STAMP).write_text(fingerprint() + "\n")


def fits(engine: Engine) -> bool:
    """Whether an engine is there that has the pinned versions and can be imported; its interpreter is put right."""
    use_public_interpreter(engine.venv)
    try:
        trial(engine)
    except LabError as error:
        print(f"engine: what lies in {engine.venv} does not do: {error}", flush=True)
        return False
    return True


def trial(engine: Engine) -> None:
    """Import the server and compare all versions. Raises LabError with what is wrong."""
    env = {"PATH": os.environ.get("PATH", ""), "HOME": "/tmp", "HF_HUB_OFFLINE": "1"}  # noqa: S108
    done = subprocess.run([engine.python, "-c", TRY], capture_output=True, text=True, env=env, check=False, cwd="/")
    if done.returncode:
        raise LabError(f"{engine.venv}: cannot be imported: {(done.stderr.strip() or 'no message').splitlines()[-1]}")
    have: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    wrong = [
        f"{name} {have.get(name, 'missing')}, not {version}"
        for name, version in sorted(pins().items())
        if have.get(name, "").split("+")[0] != version and not (name == "triton" and name in have)
    ]
    if wrong:
        raise LabError(f"{engine.venv}: other versions: {'; '.join(wrong)}")


def public(path: Path) -> bool:
    """Whether every user can run a program: no folder above it is closed, and it lies in nobody's home."""
    real = path.resolve()
    closed = [folder for folder in real.parents if not folder.stat().st_mode & 0o001]
    return not closed and real.parts[1:2] not in (("home",), ("root",))


def public_interpreter(version: str = "") -> Path:
    """A Python that every user can run: not one in somebody's home. `version`: `3.11`, or any from 3.11 on."""
    names = [f"python{version}"] if version else ["python3", "python3.13", "python3.12", "python3.11"]
    folders = (Path("/usr/bin"), Path("/usr/local/bin"), Path("/opt/python/bin"))
    for candidate in [folder / name for name in names for folder in folders] + [Path(sys.executable)]:
        if candidate.exists() and public(candidate):
            ask = "import sys, venv, sysconfig; print('%d.%d' % sys.version_info[:2], sys.version_info >= (3, 11))"
            done = subprocess.run([candidate, "-c", ask], capture_output=True, text=True, check=False)
            have, _, new = done.stdout.strip().partition(" ")
            if new == "True" and version in ("", have):
                return candidate
    raise LabError(f"python{version}: none of 3.11 or newer that all users can run: apt-get install python3-venv")


def use_public_interpreter(venv: Path) -> None:
    """Let an environment rest on an interpreter that all users can run, of the same version."""
    python = venv / "bin" / "python3"
    if not python.exists() or public(python):
        return
    asked = subprocess.run(
        [python, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"], capture_output=True, text=True, check=False
    )
    try:
        other = public_interpreter(asked.stdout.strip())
    except LabError:
        return
    link = venv / "bin" / "python3.new"
    link.unlink(missing_ok=True)
    link.symlink_to(other)
    link.replace(python)
    config = venv / "pyvenv.cfg"
    lines = [f"home = {other.parent}" if line.startswith("home") else line for line in config.read_text().splitlines()]
    config.write_text("\n".join(lines) + "\n")


def pip(engine: Engine, *arguments: str | Path) -> None:
    """Run this project's pip on the engine's environment, its progress shown. Raises LabError when it fails."""
    argv = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(engine.python), "install"]
    quiet = [] if sys.stdout.isatty() else ["--progress-bar", "off"]
    if subprocess.run([*argv, *quiet, *map(str, arguments)], check=False).returncode:
        raise LabError("engine: packages could not be installed (see above): run it again, it goes on where it stopped")


def torch_kind(engine: Engine) -> str:
    """`cpu` where the machine's pip would install a CPU build of torch, else `cuda`."""
    wanted = f"torch=={pins()['torch']}"
    argv = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(engine.python), "install",
            "--dry-run", "--no-deps", "--ignore-installed", "--quiet", "--report", "-", wanted]  # fmt: skip
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode:
        said = (done.stderr.strip() or "no message").splitlines()[-1]
        raise LabError(f"engine: {wanted} cannot be had: {said}: is there a way to PyPI?")
    version: str = json.loads(done.stdout)["install"][0]["metadata"]["version"]
    return "cpu" if version.endswith("+cpu") else "cuda"


def build(engine: Engine) -> None:
    """Make the environment, or go on with one that was interrupted."""
    if not engine.python.exists():
        subprocess.run([public_interpreter(), "-m", "venv", "--without-pip", engine.venv], check=True)
    kind = torch_kind(engine)
    free = shutil.disk_usage(engine.venv).free / 1e9
    print(
        f"engine: SGLang {SGLANG} for the CPU into {engine.venv}: downloads up to {DOWNLOAD_GB[kind]:g} GB "
        f"({'a CPU' if kind == 'cpu' else 'the CUDA'} build of torch), needs {DISK_GB[kind]:g} GB of disk; once",
        flush=True,
    )
    if free < DISK_GB[kind]:
        raise LabError(f"{engine.venv}: {free:.1f} GB free, {DISK_GB[kind]:g} needed: set SGLFLEET_LAB_CACHE elsewhere")
    wanted = pins()
    torch = wanted.pop("torch")
    if kind == "cuda":  # it has a triton of its own
        wanted.pop("triton", None)
        pip(engine, f"torch=={torch}")
    else:
        pip(engine, "--no-deps", f"torch=={torch}")
    pip(engine, "--no-deps", *(f"{name}=={version}" for name, version in wanted.items()))
    declare_operators(engine)
    trial(engine)


def declare_operators(engine: Engine) -> None:
    """Put the declaration into torchvision, once."""
    for file in engine.venv.glob("lib/python3*/site-packages/torchvision/_meta_registrations.py"):
        text = file.read_text()
        if not text.startswith(DECLARE):
            file.write_text(DECLARE + text)


def make_model(engine: Engine) -> None:
    """Make the model beside, then put it in place."""
    new = engine.model.with_name(engine.model.name + ".new")
    shutil.rmtree(new, ignore_errors=True)
    done = subprocess.run(
        [engine.python, HERE / "tiny_model.py", new], capture_output=True, text=True, check=False, cwd="/"
    )
    if done.returncode:
        raise LabError(f"{engine.model}: could not be made: {(done.stderr.strip() or 'no message').splitlines()[-1]}")
    shutil.rmtree(engine.model, ignore_errors=True)
    new.rename(engine.model)


def main(arguments: Sequence[str]) -> int:
    """Build, or with --if-possible only where a lab can use it."""
    from lab import machine

    if "--if-possible" in arguments and (why := machine.cannot_hold_a_lab()):
        print("engine: not built, because this machine cannot hold a lab: " + "; ".join(why))
        return 0
    try:
        engine = ensure(settings().cache)
    except LabError as error:
        print(error, file=sys.stderr)
        return 2
    print(f"engine: {engine.venv}, model: {engine.model}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
