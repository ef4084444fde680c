"""Secrets: read on the controller, handed to the host over the connection's standard input, shown nowhere.

What a release does with a flag's secret is knowledge about that release: `KEPT` lists those where the way of
`onhost/launch.py` was run and seen to keep it out of argv, journal and /server_info.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping
from datetime import date
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from validators.service import Service

KEPT = {"0.5.23": frozenset({"api-key", "admin-api-key", "ssl-keyfile-password"})}

_SEEN: set[str] = set()  # values of this run, to be masked in whatever a host prints

_VARIABLE = re.compile(r"[A-Z_][A-Z0-9_]*")
_HEADER = re.compile(r"[!-~]([ -~]*[!-~])?")  # printable ASCII without outer spaces: what an HTTP header can carry


class Hidden(bytes):
    """A secret's value. Printing it, in whatever way, shows nothing."""

    def __repr__(self) -> str:
        return "<hidden>"

    __str__ = __repr__


def is_variable(name: str) -> bool:
    """An environment variable (HF_TOKEN) rather than a flag (api-key)."""
    return bool(_VARIABLE.fullmatch(name))


def resolve(
    service: Service, environ: Mapping[str, str] = os.environ, root: Path | None = None
) -> tuple[dict[str, Hidden], list[str]]:
    """Values of a service's secrets, and what is wrong with them. No message ever holds a value."""
    values: dict[str, Hidden] = {}
    problems = []
    for name, source in sorted(service.secrets.items()):
        where = f"{service.service}: secret {name}"
        if source.env is not None:
            text, missing = environ.get(source.env), f"the environment variable {source.env} is not set: export it"
        else:
            text, missing = _file((root or Path()) / str(source.file))
        if text is None:
            problems.append(f"{where}: {missing}")
        elif wrong := _wrong(name, text):
            problems.append(f"{where}: {wrong}")
        else:
            values[name] = Hidden(text.encode())
            _SEEN.update(line for line in (text, *text.splitlines()) if len(line) >= 4)
    return values, problems


def _file(path: Path) -> tuple[str | None, str]:
    """Text of a secret's file without its last newline, which editors add."""
    try:
        return path.read_text(encoding="utf-8").removesuffix("\n"), ""
    except UnicodeDecodeError:
        return None, f"{path} is not UTF-8: save it as UTF-8"
    except OSError as e:
        return None, f"{path}: {e.strerror}: put the secret there"


def _wrong(name: str, text: str) -> str:
    if not text:
        return "it is empty: give it a value"
    if "\0" in text or any("\ud800" <= c <= "\udfff" for c in text):
        return "it holds a character that cannot reach the server unchanged: use another value"
    if not is_variable(name) and "key" in name and not _HEADER.fullmatch(text):
        return "an HTTP header carries it, so it is printable ASCII without outer spaces: use another value"
    return ""


def mask(text: str) -> str:
    """A host's output without the values of secrets, should an engine ever print one."""
    for value in sorted(_SEEN, key=len, reverse=True):
        text = text.replace(value, "<hidden>")
    return text


def leaks(service: Service, today: date) -> list[str]:
    """Why this engine cannot keep the service's secrets, unless waived: refusals."""
    flags = {name for name in service.secrets if not is_variable(name)}
    loose = sorted(flags - KEPT.get(service.engine.sglang, frozenset()) - waived(service, today))
    found = [
        f"{service.service}: secret {name}: sglang {service.engine.sglang} is not known to keep it out of its log and"
        f" /server_info: use {' or '.join(KEPT)}, put a router that holds the key in front, or waive it with"
        f" `allow: [{{flag: {name}, reason: …, until: …}}]`"
        for name in loose
    ]
    if flags and service.args.get("tokenizer-worker-num", 1) != 1:
        found.append(
            f"{service.service}: tokenizer-worker-num: with several tokenizer workers SGLang does not ask for the key:"
            " use one"
        )
    return found


def waived(service: Service, today: date) -> set[str]:
    """Secret flags that may be printed by the engine, for a reason and until a date."""
    return {w.flag for w in service.allow if w.until >= today and w.flag in service.secrets}


@lru_cache(maxsize=256)
def _digest(service: str, text: str, key: str) -> str:
    salt = f"sglfleet/{service}/{key}".encode()
    return hashlib.scrypt(text.encode(), salt=salt, n=2**14, r=8, p=1, dklen=16).hex()


def digest(service: str, values: Mapping[str, Hidden], key: str | None = None) -> str:
    """What a release id may know of the secrets: enough to see a change, too dear to guess them from.

    scrypt, some 40 ms a guess; `SGLFLEET_DIGEST_KEY`, the same on every controller, makes guessing impossible.
    """
    if not values:
        return ""
    text = json.dumps({name: bytes(value).hex() for name, value in sorted(values.items())})
    return _digest(service, text, os.environ.get("SGLFLEET_DIGEST_KEY", "") if key is None else key)
