"""Variables that have no place in `env`: secrets in the open, and what the unit sets from other keys. Pure.

Certain ones are bad input, as a secret in `args` is; what only looks like one is a warning: it may be something else.
No message holds a value.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

# tokens that their makers gave a form of their own: Hugging Face, OpenAI, GitHub, GitLab, NVIDIA, Slack, AWS
_FORM = re.compile(
    r"(?:hf_|sk-|gh[opsu]_|github_pat_|glpat-|nvapi-|xox[abp]-|AKIA|ASIA)[A-Za-z0-9_-]{12,}"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----.*",
    re.DOTALL,
)
_START = re.compile(r"hf_|sk-|gh[opsu]_|github_pat_|glpat-|nvapi-")
_KNOWN = re.compile(r"HF_TOKEN|HUGGING_?FACE_HUB_TOKEN|(?:\w+_)?API_KEY|(?:\w+_)?SECRET_ACCESS_KEY")
_NAMES = re.compile(r"(?:\w+_)?(?:TOKEN|KEY|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS?)", re.IGNORECASE)
_IN_URL = re.compile(r"\w+://[^/@\s:]*:[^/@\s]+@")  # a password before the host
_NONE = re.compile(r"-?\d{0,10}|true|false|yes|no|on|off|none|null|empty|dummy|unused", re.IGNORECASE)
_PATH = re.compile(r"(?:~|\.{1,2})?/[\w./~-]*|file://\S*")

OURS = re.compile(r"SGLFLEET_\w+|CREDENTIALS_DIRECTORY")


def is_secret(name: str, value: str) -> bool:
    """Certainly a secret: a token's own form, or a name that means nothing else."""
    if _plainly_none(value):
        return False
    named = bool(_NAMES.fullmatch(name))
    return bool(_FORM.fullmatch(value.strip()) or (named and _START.match(value)) or _KNOWN.fullmatch(name))


def looks_secret(name: str, value: str) -> bool:
    """Perhaps a secret: named like one, or a password in an address. SGLang's own names are settings."""
    if _IN_URL.match(value):
        return True
    named = _NAMES.fullmatch(name) and not name.startswith(("SGLANG_", "SGL_"))
    return bool(named) and not _plainly_none(value)


def _plainly_none(value: str) -> bool:
    return bool(_NONE.fullmatch(value.strip()) or _PATH.fullmatch(value.strip()))


def wrong(env: Mapping[str, str], gpus: Sequence[int] | None) -> Iterator[tuple[str, str, str]]:
    """(name, what is wrong, what to do) of every variable that cannot stand. `gpus`: None where they are wrong too."""
    for name, value in env.items():
        if is_secret(name, value):
            todo = f"write `secrets: {{{name}: {{env: {name}}}}}` instead, and change the secret if others saw it"
            yield name, "a secret in the open", todo
        elif OURS.fullmatch(name):
            yield name, f"`{name}` is set by the unit", "remove it: what runs is told by it"
        elif name == "CUDA_DEVICE_ORDER" and value != "PCI_BUS_ID":
            what = f"`{name}: {value}` beside `gpus`, whose numbers are those of nvidia-smi (PCI_BUS_ID)"
            yield name, what, "remove it, and name the GPUs in `gpus` as nvidia-smi numbers them"
        elif name == "CUDA_VISIBLE_DEVICES" and gpus is not None and _indices(value) != list(gpus):
            shown = ", ".join(map(str, gpus))
            listed = _indices(value)
            instead = f", or write `gpus: [{', '.join(map(str, listed))}]`" if listed else ""
            yield name, f"`{name}: {value}` contradicts `gpus: [{shown}]`", f"remove it: `gpus` sets it{instead}"


def _indices(value: str) -> list[int] | None:
    parts = [part.strip() for part in value.split(",")]
    return [int(part) for part in parts] if all(part.isascii() and part.isdigit() for part in parts) else None
