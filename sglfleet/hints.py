"""What in a service file does not do what it seems to: warnings with their place, said once for all hosts. Pure.

Beside the verdicts, which are about flags on hosts, these are about the file: nothing is refused for them.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from datetime import date, timedelta
from functools import cache
from typing import TYPE_CHECKING

from sglfleet import paths
from sglfleet.report.model import Cause
from validators import environment

if TYPE_CHECKING:
    from sglfleet.checking import Group
    from sglfleet.intent import Placement
    from validators.source import Path

RULE = "service-file"
LONGEST = timedelta(days=366)  # a waiver that outlives it is looked at by nobody any more


def causes(groups: Iterable[Group], today: date) -> Iterator[tuple[Cause, list[str]]]:
    """(cause, hosts) of everything there is to say about the service files behind these groups."""
    by_service: dict[str, list[Group]] = {}
    for group in groups:
        by_service.setdefault(group.placements[0].service.service, []).append(group)
    for mine in by_service.values():
        names = _Names(mine)
        for group in mine:
            first = group.placements[0]
            hosts = [placement.host.name for placement in group.placements]
            for path, what, reason, todo, level in (
                *_environment(first),
                *_long(first, today),
                *_aimless(first, names),
            ):
                mark = first.loaded.where(*path)
                yield Cause(level, RULE, first.service.service, what, reason, todo, mark, (), "", "warn"), hosts


Said = tuple["Path", str, str, str, str]  # path, what, reason, todo, level


def _environment(first: Placement) -> Iterator[Said]:
    service = first.service
    cache = paths.cache(service.service)
    ours = paths.set_by_the_unit(service.service)
    for name, value in sorted(service.env.items()):
        path = ("env", name)
        if environment.looks_secret(name, value):
            reason = (
                f"{name} looks like a secret, and `env` is written into the unit, which everybody on the host may read."
            )
            todo = f"Write `secrets: {{{name}: {{env: {name}}}}}` instead, if it is one."
            yield path, f"env.{name}", reason, todo, "warning"
        elif name == "PYTHONUNBUFFERED" and not value:
            reason = "The unit sets it to 1: without it, log lines that a deploy waits for come late."
            yield path, f"env.{name}", reason, f"Remove {name}.", "warning"
        elif name in ours and name != "PYTHONUNBUFFERED" and not f"{value}/".startswith(f"{cache}/"):
            reason = (
                f"The unit sets {name} to {ours[name]}. Besides that folder and a /tmp of its own, which is lost with"
                " every stop, the server can write nowhere."
            )
            yield path, f"env.{name}: {value}", reason, f"Remove {name}, or name a folder in {cache}.", "warning"


def _long(first: Placement, today: date) -> Iterator[Said]:
    for number, waiver in enumerate(first.service.allow):
        if waiver.until - today > LONGEST:
            reason = (
                f"The waiver for {waiver.flag} holds for {(waiver.until - today).days} days; releases come monthly."
            )
            what = f"until: {waiver.until.isoformat()}"
            yield ("allow", number, "until"), what, reason, "Name a day within a year, and look again then.", "warning"


class _Names:
    """What policies and waivers of a service can speak of, over all its hosts: an override may give a flag to some."""

    def __init__(self, groups: list[Group]) -> None:
        self.given: set[str] = set()
        for group in groups:
            service = group.placements[0].service
            names = {*service.args, *service.env, *service.secrets, *(v.flag for v in group.judgement.verdicts)}
            self.given |= names | {_own_name(service.engine.sglang, name) or name for name in names}

    def near(self, name: str, own: str) -> str:
        return own if own in self.given else next(iter(difflib.get_close_matches(name, sorted(self.given), 1, 0.7)), "")


@cache
def _own_name(release: str, name: str) -> str:
    """The name of the flag that is written so, by another of its spellings or abbreviated; "" where there is none."""
    from validators.knowledge import BrokenKnowledgeError, UnknownReleaseError, load_sglang

    try:
        flag = load_sglang(release).resolve_spelling("--" + name).flag
    except (UnknownReleaseError, BrokenKnowledgeError):
        return ""
    return flag.name if flag else ""


def _aimless(first: Placement, names: _Names) -> Iterator[Said]:
    """Policies and waivers of what the service does not give: a slip, or left over."""
    service = first.service
    places: list[tuple[Path, str, str]] = [
        (("on_unsupported", "flags", flag), flag, "policy") for flag in service.on_unsupported.flags
    ]
    places += [(("allow", number, "flag"), waiver.flag, "waiver") for number, waiver in enumerate(service.allow)]
    for path, flag, kind in places:
        if flag in names.given:
            continue
        own = _own_name(service.engine.sglang, flag)
        near = names.near(flag, own)
        level = "note" if own == flag else "warning"  # the release has it: perhaps meant for later
        reason = f"The {kind} speaks of {flag}, which this service gives on none of the hosts judged: it does nothing."
        todo = f"Did you mean {near}?" if near and level == "warning" else f"Remove it, or add {flag} to `args`."
        what = f"on_unsupported.flags.{flag}" if kind == "policy" else f"allow: {flag}"
        yield path, what, reason, todo, level
