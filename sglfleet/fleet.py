"""Reaching the hosts of an inventory from a `sglfleet` command: connections by pyinfra, one place for all commands.

    with connect(inventory, names) as fleet:
        answers = fleet.each(lambda host: operations.run(host, "uname -r").out)

Hosts that cannot be reached are in `fleet.failed` with the reason; they never end the command.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from pyinfra.api.host import Host
    from pyinfra.api.state import State

    from sglfleet.inventory import Inventory

T = TypeVar("T")

CONNECT_TIMEOUT = 10  # s
CHANNEL_TIMEOUT = 15  # s; without it a host that is lost between two commands hangs a run for an hour
KEEPALIVE = 15  # s; an idle connection must outlive the loading of a model on another host


@dataclass(frozen=True, slots=True)
class HostError:
    """What went wrong on one host. Stands where its result would."""

    host: str
    reason: str

    def __str__(self) -> str:
        return f"{self.host}: {self.reason}"


@dataclass
class Fleet:
    """Connected hosts in the order of the inventory, and those that could not be connected."""

    state: State
    hosts: dict[str, Host]
    failed: dict[str, str] = field(default_factory=dict)  # name -> reason

    def each(
        self, function: Callable[[Host], T], names: Iterable[str] | None = None, progress: str = ""
    ) -> dict[str, T | HostError]:
        """Call `function` for every connected host at the same time; in the order of the inventory.

        An exception becomes a HostError. `progress` is the title of a progress bar on a terminal's stderr.
        """
        from gevent.pool import Pool

        chosen = list(self.hosts) if names is None else [name for name in names if name in self.hosts]

        def guarded(name: str) -> tuple[str, T | HostError]:
            try:
                return name, function(self.hosts[name])
            except Exception as error:
                return name, HostError(name, str(getattr(error, "reason", "") or error) or type(error).__name__)

        results: dict[str, T | HostError] = {}
        with bar(progress, len(chosen)) as step:
            for name, result in Pool(max(1, min(64, len(chosen)))).imap_unordered(guarded, chosen):
                results[name] = result
                step()
        return {name: results[name] for name in chosen}


def patch() -> None:
    """Make the standard library cooperative, as pyinfra needs it. To be called before paramiko is imported."""
    from gevent import monkey

    if not monkey.is_module_patched("socket"):
        monkey.patch_all()


def keep_alive(host: Host) -> None:
    """Send keepalives on this host's connection; harmless for connectors that have none."""
    client = getattr(getattr(host, "connector", None), "client", None)
    transport = client.get_transport() if client is not None and hasattr(client, "get_transport") else None
    if transport is not None:
        transport.set_keepalive(KEEPALIVE)


@contextmanager
def connect(inventory: Inventory, names: Iterable[str] | None = None) -> Iterator[Fleet]:
    """Connect to the named hosts of an inventory (all of them by default) and disconnect at the end."""
    patch()
    import gevent
    from pyinfra.api.config import Config
    from pyinfra.api.exceptions import ConnectError
    from pyinfra.api.inventory import Inventory as PyinfraInventory
    from pyinfra.api.state import State

    wanted = set(inventory.hosts) if names is None else set(names)
    rows: list[tuple[str, dict[str, Any]]] = []
    for name, known in inventory.hosts.items():
        if name in wanted:
            data = dict(known.data)
            data["ssh_paramiko_connect_kwargs"] = {
                "channel_timeout": CHANNEL_TIMEOUT,
                **(data.get("ssh_paramiko_connect_kwargs") or {}),
            }
            rows.append((name, data))
    state = State(
        PyinfraInventory((rows, {})),  # type: ignore[no-untyped-call]
        Config(CONNECT_TIMEOUT=CONNECT_TIMEOUT),  # type: ignore[no-untyped-call]
    )
    fleet = Fleet(state, {}, {})

    def join(host: Host) -> None:
        try:
            host.connect(show_errors=False, raise_exceptions=True)
            keep_alive(host)
        except ConnectError as error:
            fleet.failed[host.name] = str(error)
        except Exception as error:  # a connector may raise anything, and one host must not end the command
            fleet.failed[host.name] = f"{type(error).__name__}: {error}"

    try:
        gevent.joinall([gevent.spawn(join, host) for host in state.inventory])
        for host in state.inventory:
            if host.connected:
                state.activate_host(host)
                fleet.hosts[host.name] = host
        yield fleet
    finally:
        for host in fleet.hosts.values():
            client = getattr(host.connector, "client", None)
            if client is not None and hasattr(client, "close"):
                client.close()
            host.connected = False


@contextmanager
def bar(title: str, total: int) -> Iterator[Callable[[], None]]:
    """A progress bar on a terminal, nothing elsewhere."""
    import sys

    if not title or not total or not sys.stderr.isatty():
        yield lambda: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=total)
        yield lambda: bar.advance(task)
