"""One host as a roll sees it: commands with a deadline, and a new connection where the old one was lost."""

from __future__ import annotations

import base64
import json
import shlex
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from sglfleet import operations, switch

if TYPE_CHECKING:
    from pyinfra.api.host import Host

    from sglfleet.roll.target import Target

GRACE = 5.0  # s that a command may take beyond its own time-out until the connection counts as lost
RECONNECT = 10.0  # s for one attempt


class LostError(Exception):
    """The host did not answer."""


class RefusedError(Exception):
    """The host answered and refused; the reason is the message."""


@dataclass(frozen=True)
class Probe:
    """State of one service on one host, as `node.sh probe` tells it. `values` has all of it."""

    values: dict[str, str]
    lock: dict[str, str] = field(default_factory=dict)
    turn: dict[str, str] = field(default_factory=dict)

    @property
    def active(self) -> bool:
        return self.values.get("unit_ActiveState") == "active"

    @property
    def release(self) -> str:
        """The release of the running process, not of any file."""
        return self.values.get("release", "") if self.active else ""

    @property
    def current(self) -> str:
        return self.values.get("current", "")

    @property
    def identity(self) -> tuple[str, str, str]:
        """Changes with every start, however it came about."""
        return (
            self.values.get("unit_InvocationID", ""),
            self.values.get("unit_MainPID", "0"),
            self.values.get("unit_NRestarts", "0"),
        )

    @property
    def boot(self) -> str:
        return self.values.get("boot", "")

    @property
    def phase(self) -> str:
        return self.turn.get("phase", "")

    @property
    def settled(self) -> bool:
        """No turn is open: none was begun, or it was accepted or undone."""
        return self.phase in ("", "accepted", "reverted", "stopped")

    @property
    def busy(self) -> bool:
        return self.values.get("busy") == "yes"

    @property
    def releases(self) -> tuple[str, ...]:
        """Kept on the host, newest first."""
        return tuple(self.values.get("releases", "").split())

    @property
    def history(self) -> dict[str, Any]:
        """The last line of the history, empty where there is none."""
        try:
            row = json.loads(self.values.get("history") or "{}")
        except ValueError:
            return {}
        return row if isinstance(row, dict) else {}

    @property
    def good(self) -> str:
        """The release to go back to: the one before an open turn, else the running one, else the current one."""
        if not self.settled:
            return self.turn.get("old", "")
        return self.release or self.current


def parse(answer: str) -> Probe:
    """key=value lines to a Probe."""
    values: dict[str, str] = {}
    lock: dict[str, str] = {}
    turn: dict[str, str] = {}
    for line in answer.splitlines():
        key, found, value = line.partition("=")
        if not found:
            continue
        if key.startswith("lock_"):
            lock[key.removeprefix("lock_")] = value
        elif key.startswith("turn_"):
            turn[key.removeprefix("turn_")] = value
        else:
            values[key] = value
    return Probe(values, lock, turn)


@cache
def text(name: str) -> str:
    """A script that lies beside this module."""
    return files("sglfleet.roll").joinpath(name).read_text(encoding="utf-8")


def _b64(content: str) -> str:
    return base64.b64encode(content.encode()).decode()


@dataclass
class Remote:
    """One service on one host. Commands raise LostError when nothing is heard, RefusedError when the host says no."""

    host: Host
    service: str
    lost: bool = False
    _connection: int = 0  # counts connections: a command that began on an older one says nothing about this one
    _turnstile: Any = field(default=None, repr=False)

    @property
    def name(self) -> str:
        return str(self.host.name)

    def sh(self, script: str, *, stdin: str = "", timeout: float = 20.0) -> operations.Output:
        """One script as root. After a loss the next call connects anew first."""
        import gevent

        if self.lost:
            self._reconnect()
        begun_on = self._connection
        try:
            with gevent.Timeout(timeout + GRACE, operations.HostFailed(self.name, f"no answer in {timeout:.0f} s")):
                return operations.run(self.host, script, stdin=stdin, timeout=timeout, check=False)
        except operations.HostFailed as error:
            self.lost = self.lost or begun_on == self._connection
            raise LostError(error.reason) from None
        except (AttributeError, AssertionError) as error:  # what paramiko and pyinfra do on a client that is closed
            self.lost = self.lost or begun_on == self._connection
            raise LostError(f"the connection was closed ({type(error).__name__})") from None

    def node(self, verb: str, *words: str, timeout: float = 20.0) -> operations.Output:
        """A verb of the node's script, which `prepare` put on the host."""
        line = " ".join(shlex.quote(word) for word in (verb, self.service, *words))
        return self.sh(f"sh /var/lib/sglfleet/{shlex.quote(self.service)}/.roll/node.sh {line}", timeout=timeout)

    def must(self, verb: str, *words: str, timeout: float = 20.0) -> operations.Output:
        """The same, and RefusedError with what the host said where it fails."""
        output = self.node(verb, *words, timeout=timeout)
        if not output.ok:
            said = parse(output.out).values.get("error") or output.err.strip() or output.out.strip()
            raise RefusedError(said.splitlines()[-1] if said else f"{verb} failed with code {output.code}")
        return output

    def probe(self, timeout: float = 20.0) -> Probe:
        """What is there now. Needs nothing on the host."""
        words = f"probe {shlex.quote(self.service)}"
        output = self.sh(f"sh -c {shlex.quote(text('node.sh'))} node.sh {words}", timeout=timeout)
        if not output.ok and not output.out:
            raise RefusedError(output.err.strip() or "the probe failed")
        return parse(output.out)

    def prepare(self, lock_words: Sequence[str], targets: Sequence[Target]) -> tuple[bool, Probe]:
        """Put the node's script there, remember the targets, take the lock, and probe: one command.

        (True, state) with the lock taken, (False, holder) where somebody else has it.
        """
        put = ["set -eu; umask 077; d=/var/lib/sglfleet/" + shlex.quote(self.service) + '/.roll; mkdir -p "$d/targets"']
        room = 'free=$(df -Pk "$d" | awk \'NR == 2 {print $4}\'); [ "$free" -ge 256 ] || '
        put.append(room + '{ echo "no space left: $free KiB free in $d: make room" >&2; exit 1; }')
        put.append('put() { printf %s "$2" | base64 -d > "$1.new"; mv -T "$1.new" "$1"; }')
        for name, content in (("node.sh", text("node.sh")), ("switch.sh", switch.TEXT)):
            put.append(f'put "$d/{name}" {_b64(content)}')
        put += [f'put "$d/targets/{target.release}" {_b64(target.dump() + chr(10))}' for target in targets]
        words = " ".join(shlex.quote(word) for word in (self.service, *lock_words))
        put.append(f'sh "$d/node.sh" lock {words}')
        put.append(f'exec sh "$d/node.sh" probe {shlex.quote(self.service)}')
        output = self.sh("\n".join(put), timeout=30.0)
        found = parse(output.out)
        if found.values.get("lock") == "taken":
            return True, found
        if found.lock:
            return False, found
        said = found.values.get("error") or output.err.strip() or "the lock could not be taken"
        raise RefusedError(said.splitlines()[-1])

    def targets(self) -> dict[str, Target]:
        """release -> target, of the releases this host remembers, the one last rolled to at the end."""
        from sglfleet.roll.target import Target

        output = self.sh(
            f"cd /var/lib/sglfleet/{shlex.quote(self.service)}/.roll/targets 2>/dev/null && cat $(ls -1tr) </dev/null"
        )
        known: dict[str, Target] = {}
        for line in output.out.splitlines():
            try:
                target = Target.load(line)
            except ValueError:
                continue
            known[target.release] = target
        return known

    def ask(self, job: dict[str, Any], timeout: float) -> dict[str, Any]:
        """Run `gate.py` on the host with whatever Python is there; the first JSON object it prints."""
        python = "p=$(command -v python3 || ls /opt/sglfleet/engines/*/bin/python 2>/dev/null | head -n1)"
        script = f'{python}; [ -n "$p" ] || {{ echo "no python3 on this host" >&2; exit 69; }}; exec "$p" - '
        output = self.sh(script + shlex.quote(json.dumps(job)), stdin=text("gate.py"), timeout=timeout)
        for line in output.out.splitlines():
            if line.startswith("{"):
                return dict(json.loads(line))
        return {"error": f"the gate could not ask: {(output.err or output.out).strip()[-300:]}"}

    def _reconnect(self) -> None:
        """A new connection, once: the lock's keeper and a turn may both find the old one lost."""
        from gevent.lock import BoundedSemaphore

        if self._turnstile is None:
            self._turnstile = BoundedSemaphore(1)
        with self._turnstile:
            if self.lost:
                self._connect()
                self.lost = False
                self._connection += 1

    def _connect(self) -> None:
        """Close what is left of the old connection and make a new one."""
        import gevent
        from pyinfra.api.exceptions import ConnectError

        from sglfleet.fleet import keep_alive

        client = getattr(self.host.connector, "client", None)
        if client is not None:
            with suppress(TimeoutError, OSError, EOFError), gevent.Timeout(2.0, TimeoutError()):
                client.close()  # a dead connection need not be closed in order
        self.host.connected = False
        try:
            with gevent.Timeout(RECONNECT, TimeoutError()):
                self.host.connect(show_errors=False, raise_exceptions=True)
                keep_alive(self.host)
        except (TimeoutError, ConnectError, OSError, EOFError) as error:
            raise LostError(str(error) or "cannot connect") from None
