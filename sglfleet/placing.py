"""Which services of an inventory stand on which hosts, for commands that go to them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sglfleet.intent import Placement
    from sglfleet.inventory import Inventory


def placed(inventory: str, service: str | None, limit: Sequence[str]) -> tuple[Path, Inventory, list[Placement]]:
    """(project, inventory, placements) of a service (None: all) on the hosts in `limit` (empty: all).

    Raises InputError for what cannot be read, and where nothing is left.
    """
    from sglfleet.intent import intents
    from sglfleet.inventory import project_root, read_inventory
    from validators.flagtypes import flag_types
    from validators.source import InputError, Mark, Problem

    root = project_root(inventory)
    known = read_inventory(inventory, root)
    intended = intents(known, root, flag_types)
    if intended.problems:
        raise InputError(intended.problems)
    found = [p for p in intended.placements if service in (None, p.service.service)]
    found = [p for p in found if not limit or p.host.name in limit]
    if not found:
        what = f"no host runs {service or 'a service'}" + (f" within --limit {' '.join(limit)}" if limit else "")
        raise InputError([Problem(Mark(inventory, 0, 0), what, "give one that `services` names")])
    return root, known, found
