"""Rolls that render nothing: back to a kept release, or on to the one that a stopped roll was about."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from sglfleet.roll.plan import Policy
from sglfleet.roll.remote import LostError, Probe, RefusedError, Remote
from sglfleet.roll.report import Report
from sglfleet.roll.target import Target

if TYPE_CHECKING:
    from sglfleet.fleet import Fleet
    from sglfleet.inventory import Inventory

Say = Callable[[str], None]
Choose = Callable[[Probe, Mapping[str, Target]], Target]


@dataclass
class View:
    """A service's hosts as they are now."""

    service: str
    order: tuple[str, ...]
    remotes: dict[str, Remote] = field(default_factory=dict)
    states: dict[str, Probe] = field(default_factory=dict)
    known: dict[str, dict[str, Target]] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)


class NotPossibleError(ValueError):
    """Nothing is begun: one line a host."""


def hosts_of(inventory: Inventory, service: str) -> tuple[str, ...]:
    """Hosts whose data names the service, in the order of the inventory."""
    return tuple(name for name, host in inventory.hosts.items() if service in _services(host.get("services")))


def services_of(inventory: Inventory) -> tuple[str, ...]:
    """Every service that a host of the inventory has, in the order in which they turn up."""
    found = (service for host in inventory.hosts.values() for service in _services(host.get("services")))
    return tuple(dict.fromkeys(found))


def _services(value: object) -> list[str]:
    return [str(item) for item in value] if isinstance(value, list | tuple) else []


def policy_for(inventory: Inventory, root: Path, service: str, order: tuple[str, ...], *, routed: bool) -> Policy:
    """The policy of the service file; the defaults where that cannot be read: a way back must not depend on it."""
    from sglfleet.intent import intents
    from sglfleet.rollout import policy_of

    for placement in intents(inventory, root).placements:
        if placement.service.service == service:
            return policy_of(placement.service.rollout, order, routed=routed)
    return Policy()


def look(fleet: Fleet, service: str, order: tuple[str, ...]) -> View:
    """Ask every host for its state and the releases it remembers."""
    view = View(service, order, failed={name: fleet.failed[name] for name in order if name in fleet.failed})
    view.remotes = {name: Remote(fleet.hosts[name], service) for name in order if name in fleet.hosts}

    def one(name: str) -> tuple[Probe, dict[str, Target]]:
        return view.remotes[name].probe(), view.remotes[name].targets()

    for name, answer in fleet.each(lambda host: one(str(host.name)), view.remotes).items():
        if isinstance(answer, tuple):
            view.states[name], view.known[name] = answer
        else:
            view.failed[name] = answer.reason
    return view


def previous(state: Probe, known: Mapping[str, Target]) -> Target:
    """The release before the running one: what the last turn came from, else the newest other one that is kept."""
    running = state.release or state.current
    candidates = [state.turn.get("old", ""), str(state.history.get("previous") or ""), *state.releases]
    for release in candidates:
        if release and release != running and release in state.releases:
            return _target(release, running, known)
    raise NotPossibleError("no other release is kept there")


def named(release: str) -> Choose:
    """The release of that id, or the only one that begins so."""

    def choose(state: Probe, known: Mapping[str, Target]) -> Target:
        fits = [item for item in state.releases if item == release] or [
            item for item in state.releases if item.startswith(release)
        ]
        if len(fits) != 1:
            kept = ", ".join(state.releases) or "none"
            raise NotPossibleError(
                f"release {release}: {'not kept' if not fits else 'ambiguous'} there: kept are {kept}"
            )
        return _target(fits[0], state.release or state.current, known)

    return choose


def intended(state: Probe, known: Mapping[str, Target]) -> Target:
    """What the last roll was about, whether it got to this host or not."""
    for release, target in reversed(list(known.items())):
        if release in state.releases:
            return target
    raise NotPossibleError("no roll was ever begun there: deploy instead")


def _target(release: str, running: str, known: Mapping[str, Target]) -> Target:
    target = known.get(release)
    if target is None and running in known:  # staged, never rolled to: it answers where the running one does
        target = replace(known[running], release=release)
    if target is None:
        raise NotPossibleError(f"nothing is known of release {release} there: deploy instead")
    return target


def chosen(view: View, choose: Choose) -> dict[str, Target]:
    """Every reachable host's target. Raises NotPossibleError naming all hosts where it cannot be told."""
    targets: dict[str, Target] = {}
    wrong: list[str] = []
    for name in view.order:
        if name not in view.states:
            targets[name] = Target(name, view.service, "", 0)
            continue
        try:
            targets[name] = choose(view.states[name], view.known[name])
        except NotPossibleError as error:
            wrong.append(f"{name}: {error}")
    if wrong:
        raise NotPossibleError("\n".join(wrong))
    return targets


def run(view: View, targets: Mapping[str, Target], policy: Policy, fleet: Fleet, say: Say) -> Report:
    """Roll to the targets, with the same care as a deploy."""
    from sglfleet.roll.service import roll_service
    from sglfleet.roll.state import RouterError
    from sglfleet.rollout import router_of

    try:
        router = router_of(fleet.state.inventory, view.service, say, targets)
    except (RouterError, ValueError, RefusedError, LostError) as error:
        return Report(view.service, refused=tuple(str(error).splitlines()))
    remotes = {name: remote for name, remote in view.remotes.items() if name in view.states}
    return roll_service(view.service, targets, remotes, policy, out=view.failed, router=router, say=say)
