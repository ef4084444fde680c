"""One launch command found somewhere, and how a list of words becomes one."""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

_MODULES = ("sglang.launch_server", "sglang.srt.entrypoints.http_server")
_IMAGE = re.compile(r"sglang[^\s:]*:v?(\d+\.\d+\.\d+(?:\.?(?:post|rc)\d+)?)")
_ASSIGN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")
_VARIABLE = re.compile(r"\$(?:\{(\w+)(?:(:?-)([^}]*))?\}|(\w+))")
_CONTAINERS = ("docker", "podman", "nerdctl")
IN_MANIFEST = re.compile(r"(?<!\$)\$\((\w+)\)")  # a variable in `command` and `args` of a pod
_DEVICE = re.compile(r"[0-9]+|(?:GPU|MIG)-[0-9A-Za-z/-]+")
_FLAG = re.compile(r"--?[a-zA-Z]")


@dataclass(frozen=True, slots=True)
class Launch:
    """An SGLang server somebody starts: its flags as typed, its environment, where it stands."""

    where: str  # "file:line"
    tokens: tuple[str, ...]  # after the launcher; a model given by position is already a --model-path
    env: dict[str, str] = field(default_factory=dict)
    form: str = "command"  # command | script | unit | compose | kubernetes | config
    sglang: str = ""  # release named by an image beside it
    gpus: int | None = None  # GPUs it asks for, where the file says
    notes: tuple[str, ...] = ()  # what could not be read
    devices: tuple[int, ...] = ()  # the GPUs by number, where the command says which
    config: tuple[str, ...] | None = None  # flags in the file that `--config` names; None: none is named, or not read


def from_words(words: Sequence[str], where: str, env: dict[str, str], form: str) -> Launch | None:
    """The launch command in a list of shell words, or None. Words before the launcher may set variables or run it in a
    container (`docker run -e A=1 lmsysorg/sglang:v0.5.9 …`)."""
    start = _launcher(words)
    if start is None:
        return None
    first, positional = start
    before = list(words[:first])
    env = {**env, **_assignments(before)}
    tokens = list(words[first:])
    if positional and tokens and not _FLAG.match(tokens[0]):
        tokens[:1] = ["--model-path", tokens[0]]
    known, notes = [], []
    for token in tokens:
        if "$(" not in token and (missing := sorted({a or b for a, _, _, b in _VARIABLE.findall(token)})):
            notes.append(f"{where}: the value of ${missing[0]} is not known here: {token}")
        elif "$(" in token:
            named = IN_MANIFEST.search(token) if form == "kubernetes" else None
            what = f"the value of {named[0]}" if named else "what a command prints"
            notes.append(f"{where}: {what} is not known here: {token}")
        known.append(token)
    gpus, devices = docker_gpus(before)
    return Launch(where, tuple(known), env, form, image_release(" ".join(before)), gpus, tuple(notes), devices)


def docker_gpus(words: Sequence[str]) -> tuple[int | None, tuple[int, ...]]:
    """(how many GPUs, which) a container is given: `--gpus 2`, `--gpus '"device=0,1"'`, `--device nvidia.com/gpu=1`.

    Unknown for `all`, and where a variable says it. The value is one line of comma-separated options, each quoted where
    it has commas itself (docker's `opts.GpuOpts`). `srun --gpus` counts the GPUs of all nodes, so it is not read.
    """
    if not any(word.rsplit("/", 1)[-1] in _CONTAINERS for word in words):
        return None, ()
    cdi: list[str] = []
    for i, word in enumerate(words):
        name, equals, value = word.partition("=")
        value = value if equals else (words[i + 1] if i + 1 < len(words) else "")
        if name == "--device" and value.startswith("nvidia.com/gpu="):
            cdi.append(value.partition("=")[2])
        if name != "--gpus":
            continue
        options = dict(option.partition("=")[::2] for option in next(csv.reader([value.strip("'")]), []))
        count = options.get("count") or next((key for key in options if key.isdigit()), "")
        if "device" in options:
            return (None, ()) if count else _listed(options["device"].split(","))  # docker takes only one of them
        return (int(count), ()) if count.isdigit() else (None, ())
    return _listed(cdi) if cdi and "all" not in cdi else (None, ())


def visible_gpus(env: Mapping[str, str]) -> int | None:
    """How many GPUs `CUDA_VISIBLE_DEVICES` leaves, by number or UUID. Unknown where it is not set, where a variable
    says it, and where CUDA itself would stop reading it (a negative number, one GPU twice)."""
    names = [name.strip() for name in env.get("CUDA_VISIBLE_DEVICES", "").split(",")]
    known = all(_DEVICE.fullmatch(name) for name in names) and len(set(names)) == len(names)
    return len(names) if known else None


def _listed(names: Sequence[str]) -> tuple[int | None, tuple[int, ...]]:
    names = [name.strip() for name in names if name.strip()]
    if any("$" in name or "{" in name for name in names) or not names:
        return None, ()
    return len(names), tuple(int(n) for n in names) if all(n.isascii() and n.isdigit() for n in names) else ()


def image_release(text: str) -> str:
    """SGLang release in an image's name, or ""."""
    found = _IMAGE.search(text)
    return re.sub(r"(?<=\d)(post|rc)", r".\1", found[1]).replace("..", ".") if found else ""


def expand(word: str, variables: dict[str, str]) -> str:
    """`$NAME`, `${NAME}` and `${NAME:-default}` filled in; what is not known stays as it is."""

    def value(match: re.Match[str]) -> str:
        name, default = match[1] or match[4], match[3] if match[2] else None
        return variables.get(name, match[0] if default is None else default)

    return _VARIABLE.sub(value, word)


def starts(words: Sequence[str]) -> bool:
    """Whether the words name a launcher; flags alone do not."""
    found = _launcher(words)
    return found is not None and found[0] > 0


def _launcher(words: Sequence[str]) -> tuple[int, bool] | None:
    """(index of the first word after the launcher, whether a model may stand there by position)."""
    for i, word in enumerate(words):
        name = word.rsplit("/", 1)[-1]
        if name == "sglang" and i + 1 < len(words) and words[i + 1] == "serve":
            return i + 2, True
        if word == "-m" and i + 1 < len(words) and words[i + 1] in _MODULES:
            return i + 2, False
        if word in _MODULES or name == "launch_server.py":
            return i + 1, False
    if words and _FLAG.match(words[0]):
        return 0, False
    return None


def _assignments(words: Sequence[str]) -> dict[str, str]:
    """`A=1 command`, `env A=1 command`, `docker run -e A=1 --env B=2`."""
    out = {}
    for i, word in enumerate(words):
        if word in ("-e", "--env") and i + 1 < len(words):
            word = words[i + 1]
        elif word.startswith(("--env=", "-e=")):
            word = word.partition("=")[2]
        if _ASSIGN.match(word):
            name, _, value = word.partition("=")
            out[name] = value
    return out
