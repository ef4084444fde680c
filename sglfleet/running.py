"""What a host runs right now, read from the running process and the manifest of its release. One command."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sglfleet import operations, paths

if TYPE_CHECKING:
    from pyinfra.api.host import Host

_SCRIPT = """\
pid=$(systemctl show -p MainPID --value {unit})
[ "${{pid:-0}}" -gt 0 ] || {{ echo "{unit} is not running: deploy it, or read its journal" >&2; exit 1; }}
release=$(tr '\\0' '\\n' < "/proc/$pid/environ" | sed -n 's/^SGLFLEET_RELEASE=//p')
[ -n "$release" ] || {{ echo "{unit} was not started by a release of ours: adopt it first" >&2; exit 1; }}
systemctl show -p InvocationID --value {unit}
[ -e "{etc}/$release/api-key" ] && echo "{etc}/$release/api-key" || echo
command -v nvidia-smi || echo
cat "{releases}/$release/release.json"
"""


@dataclass(frozen=True, slots=True)
class Running:
    """A service's running process on one host."""

    service: str
    host: str
    release: str
    invocation: str  # systemd's id of this start
    key_file: str  # root-only file on the host with the API key; "" for none
    has_smi: bool
    manifest: dict[str, Any]  # release.json of the release the process was started from

    @property
    def url(self) -> str:
        """As seen from the host itself."""
        return str(self.manifest["url"])

    @property
    def python(self) -> str:
        """Interpreter of its engine."""
        return f"{self.manifest['venv']}/bin/python"


def running(host: Host, service: str) -> Running:
    """Ask a connected host. Raises operations.HostFailed where nothing of ours runs or nothing can be read."""
    script = _SCRIPT.format(unit=paths.unit(service), etc=f"{paths.ETC}/{service}", releases=paths.releases(service))
    lines = operations.run(host, script).out.split("\n", 3)
    try:
        manifest = json.loads(lines[3])
        return Running(service, host.name, manifest["release"], lines[0], lines[1], bool(lines[2]), manifest)
    except (IndexError, KeyError, json.JSONDecodeError) as error:
        raise operations.HostFailed(
            host.name, f"release.json of {service} cannot be read: {error}: deploy it again"
        ) from None
