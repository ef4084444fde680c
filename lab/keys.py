"""SSH keys of a lab: one for the client, one for each host, and a client configuration that trusts exactly those."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from lab.settings import Settings, number
from lab.shell import run

CONFIG = """\
# Use: ssh -F this-file h1. Hosts behind a jump host: ssh -F this-file h2-via-h1.
{entries}
Host *
  User root
  IdentityFile {state}/id
  IdentitiesOnly yes
  UserKnownHostsFile {state}/known_hosts
  GlobalKnownHostsFile /dev/null
  StrictHostKeyChecking yes
  ConnectTimeout 5
"""


def make(path: Path, comment: str) -> None:
    """Make a key pair, if it is not there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", str(path)])


def client_public(lab: Settings) -> str:
    """The client's public key, made when first asked for."""
    make(lab.state / "id", f"lab {lab.name}")
    return (lab.state / "id.pub").read_text()


def host_key(lab: Settings, host: str) -> tuple[str, str]:
    """A host's private and public key, made when first asked for."""
    path = lab.state / "hostkeys" / host
    make(path, host)
    return path.read_text(), path.with_suffix(".pub").read_text()


def write_client_files(lab: Settings, hosts: Iterable[str]) -> None:
    """Write `ssh_config` and `known_hosts` for these hosts."""
    names = sorted(hosts, key=number)
    known, entries = [], []
    for host in names:
        kind, key = host_key(lab, host)[1].split()[:2]
        address = lab.address(host)
        known.append(f"{host},{address} {kind} {key}")
        entries.append(f"Host {host} {address}\n  HostName {address}")
        if host != names[0]:
            entries.append(f"Host {host}-via-{names[0]}\n  HostName {address}\n  ProxyJump {names[0]}")
    (lab.state / "known_hosts").write_text("".join(f"{line}\n" for line in known))
    (lab.state / "ssh_config").write_text(CONFIG.format(entries="\n".join(entries), state=lab.state))
