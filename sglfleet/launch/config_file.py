"""`--config FILE` in a command line: the engine's own YAML file, opened where it lies here."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from sglfleet.launch.command import Launch
from sglfleet.launch.manifest import ManifestError, flags

_INSIDE = ("compose", "kubernetes")  # a path there is one of the container's


def opened(launch: Launch) -> Launch:
    """The launch with the flags of its file, or with a note that says why it was not read.

    The engine looks for `--config` as a word of its own (server_args_config_parser.py); a relative path is one of the
    working directory, and here of the folder of the script as well.
    """
    at = [i for i, word in enumerate(launch.tokens) if word == "--config"]
    if len(at) != 1 or at[0] + 1 >= len(launch.tokens):
        return launch
    named = launch.tokens[at[0] + 1]
    file, _, _ = launch.where.rpartition(":")
    places = [] if launch.form in _INSIDE else [Path(named), Path(file).parent / named]
    where = f"{launch.where}: --config {named}"
    try:
        found = next((path for path in places if path.is_file()), None)
        if found is None:
            why = "a file of the container" if launch.form in _INSIDE else "no such file here"
            return _noted(launch, f"{where}: {why}: lint the file itself as well")
        if found.suffix.lower() not in (".yaml", ".yml"):
            raise ManifestError(f"{found}: the engine takes .yaml and .yml only: rename it")
        config = flags(found.read_text(encoding="utf-8"), str(found))
    except UnicodeDecodeError:
        return _noted(launch, f"{where}: not a text file (UTF-8): correct it")
    except OSError as error:
        return _noted(
            launch, f"{where}: cannot be read: {(error.strerror or str(error)).lower()}: check path and permissions"
        )
    except ManifestError as error:
        return _noted(launch, f"{where}: {error}")
    return replace(launch, config=config)


def _noted(launch: Launch, note: str) -> Launch:
    return replace(launch, notes=(*launch.notes, note))
