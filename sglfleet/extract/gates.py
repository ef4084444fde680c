"""Everything about gates that one release's source says, as it is kept in its knowledge file."""

from __future__ import annotations

from typing import Any

from sglfleet.extract.automatic import tables
from sglfleet.extract.evaluate_modules import Modules
from sglfleet.extract.logs import logs
from sglfleet.extract.predicates import predicates
from sglfleet.extract.sites import Survey, plain
from sglfleet.extract.sites_capability import capabilities
from sglfleet.extract.tree import SourceTree


def gates(tree: SourceTree, release: str) -> dict[str, Any]:
    """Predicates, places that decide, what is picked by itself, and log texts of one release.

    Plain JSON types, in a fixed order: the same artifact always gives the same bytes. `release` is for messages.
    """
    survey = Survey(Modules(tree))
    return {
        "predicates": predicates(survey),
        "sites": {
            "raises": [plain(site) for site in survey.sites()],
            "capabilities": capabilities(survey),
        },
        "tables": tables(survey),
        "logs": logs(survey),
    }
