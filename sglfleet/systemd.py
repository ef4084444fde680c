"""systemd's quoting: what is written here is what the process gets, byte for byte, or it is refused.

Source: systemd.service(5) "COMMAND LINES", systemd.syntax(7) "QUOTING", systemd.unit(5) "SPECIFIERS"; tried on
systemd 252.
"""

from __future__ import annotations

import re

_BARE = re.compile(r"[A-Za-z0-9_./:,=+@-]+")
_NAMED = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\\": "\\\\", '"': '\\"', "%": "%%"}


def _escape(text: str, special: dict[str, str]) -> str:
    if "\0" in text:
        raise ValueError("a NUL character cannot be passed to a process: remove it")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("half a surrogate pair is no text: use the whole character") from None
    return "".join(special.get(c) or (f"\\x{ord(c):02x}" if ord(c) < 32 or ord(c) == 127 else c) for c in text)


def argument(text: str) -> str:
    """One argument of an Exec line. `$` is doubled: systemd replaces variables there, quoted or not."""
    if _BARE.fullmatch(text):
        return text
    return f'"{_escape(text, {**_NAMED, "$": "$$"})}"'


def assignment(name: str, value: str) -> str:
    """One assignment of `Environment=`, where `$` means nothing but control characters other than tab and newline are
    dropped by systemd with a warning: refused here."""
    if any((ord(c) < 32 and c not in "\t\n") or ord(c) == 127 for c in value):
        raise ValueError(f"environment variable {name}: control characters do not reach a process: remove them")
    return f'"{_escape(f"{name}={value}", _NAMED)}"'


def path(text: str) -> str:
    """A path in a setting that takes one (or several) of them."""
    return argument(text).replace("$$", "$")


def comment(text: str) -> str:
    """A text of any origin as one comment line, which no newline can leave and no backslash can continue."""
    return "# " + " ".join(re.sub(r"[\x00-\x1f\x7f\u2028\u2029\x85]", " ", text).split()).rstrip("\\ ")


def commandline(words: tuple[str, ...]) -> str:
    """The words of an Exec line: a flag and its values on a line of their own."""
    lines: list[list[str]] = [[]]
    for word in words:
        if word.startswith("--") and lines[-1]:
            lines.append([])
        lines[-1].append(argument(word))
    return " \\\n    ".join(" ".join(line) for line in lines)
