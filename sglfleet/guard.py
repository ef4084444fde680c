"""Refuses to run with another package `validators`: PyPI has one, and pyinfra puts the working directory last."""

from __future__ import annotations

import sys
from importlib.machinery import PathFinder
from pathlib import Path


def check_validators() -> None:
    """Make sure that the gate loaded is ours.

    Raises:
        RuntimeError: another package answers to `import validators`; says which and what to do.
    """
    home = Path(__file__).resolve().parent.parent
    loaded = sys.modules.get("validators")
    if loaded is not None:
        found = getattr(loaded, "__file__", None)
        if getattr(loaded, "SGLFLEET", False):
            return
    else:
        spec = PathFinder.find_spec("validators")
        found = spec.origin if spec else None
        if spec and spec.origin and "SGLFLEET = True" in Path(spec.origin).read_text(encoding="utf-8"):
            return
    if found is None and (home / "validators" / "__init__.py").is_file():
        sys.path.insert(0, str(home))
        return
    raise RuntimeError(
        f"{found or 'validators'}: a package `validators` that is not sglfleet's gate is found first: "
        "uninstall it (`pip uninstall validators`) or install sglfleet into an environment of its own"
    )
