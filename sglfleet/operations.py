"""Effects on one host: each is one sh script in one command, as root. Nothing here decides anything.

Works for root and for a user with `sudo -n`. What a script reads from standard input (secrets) is never printed.
"""

from __future__ import annotations

import base64
import io
import shlex
import tarfile
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sglfleet import paths, secrets, switch

if TYPE_CHECKING:
    from pyinfra.api.host import Host

    from sglfleet.render import Release

LOST = 45  # seconds that a command may take longer than what it waits for, before the host counts as lost
STAGE_FREE_MIB = 64  # below that nothing is staged
_MARK = "__sglfleet_exit "
_AS_ROOT = 'if [ "$(id -u)" = 0 ]; then exec sh -c "$0"; else exec sudo -n sh -c "$0"; fi'


class HostFailed(Exception):  # noqa: N818 - it names what became of the host
    """A host drops out: `reason` is one line for a person, `detail` what it printed."""

    def __init__(self, host: str, reason: str, detail: str = "") -> None:
        super().__init__(f"{host}: {reason}")
        self.host, self.reason, self.detail = host, reason, detail


@dataclass(frozen=True)
class Output:
    """What a script printed and how it ended."""

    code: int
    out: str
    err: str

    @property
    def ok(self) -> bool:
        return self.code == 0


def run(host: Host, script: str, *, stdin: str = "", timeout: float = 60, check: bool = True) -> Output:
    """Run a script as root. Raises HostFailed when the host is lost, and, with `check`, when the script fails."""
    from paramiko import SSHException
    from pyinfra.api.command import QuoteString, StringCommand

    marked = f'(\n{script}\n)\necho "{_MARK}$?" >&2\n'  # pyinfra tells only whether the code was 0
    command = StringCommand("sh", "-c", QuoteString(_AS_ROOT), QuoteString(marked))
    try:
        ok, lines = host.run_shell_command(
            command,
            print_input=host.state.print_input,
            print_output=False,
            **{"_timeout": timeout, **({"_stdin": stdin} if stdin else {})},
        )
    except (TimeoutError, OSError, EOFError, SSHException) as e:
        raise HostFailed(host.name, _lost(e, timeout)) from None
    out = [secrets.mask(str(line)) for line in lines.stdout_lines]
    err = [secrets.mask(str(line)) for line in lines.stderr_lines]
    if host.state.print_output:
        _show(host, [*out, *err])
    mark = next((line for line in reversed(err) if line.startswith(_MARK)), "")
    code = int(mark.removeprefix(_MARK)) if mark else (0 if ok else 255)
    err = [line for line in err if not line.startswith(_MARK)]
    result = Output(code, "\n".join(out), "\n".join(err))
    if check and code:
        raise HostFailed(host.name, _reason(result), f"{result.out}\n{result.err}".strip())
    return result


def raw(host: Host, command: str, timeout: float) -> list[str]:
    """Standard output of one shell command, as the connection's own user. Raises HostFailed when the host is lost."""
    from paramiko import SSHException
    from pyinfra.api.command import StringCommand

    try:
        _, lines = host.run_shell_command(
            StringCommand(command), print_input=host.state.print_fact_input, print_output=False, _timeout=timeout
        )
    except (TimeoutError, OSError, EOFError, SSHException) as e:
        raise HostFailed(host.name, _lost(e, timeout)) from None
    return [str(line) for line in lines.stdout_lines]


def _lost(e: BaseException, timeout: float) -> str:
    return (
        f"no answer in {timeout:.0f} s" if isinstance(e, TimeoutError) else f"connection lost: {e or type(e).__name__}"
    )


def _reason(result: Output) -> str:
    """The last thing it said, as one line."""
    lines = [line.strip() for line in f"{result.out}\n{result.err}".splitlines() if line.strip()]
    return lines[-1][:500] if lines else f"exit code {result.code}"


def _show(host: Host, lines: list[str]) -> None:
    import click

    for line in lines:
        click.echo(f"{host.print_prefix}{line}", err=True)


# --- stage ----------------------------------------------------------------------------------------------------------

_STAGE = """\
set -eu
umask 077
service=$1 release=$2 user=$3 payload=$4
base={state}/$service etc={etc}/$service
mkdir -p "$base/releases" "$etc" {cache}
chmod 755 {state} "$base" "$base/releases" {cache}
chmod 700 {etc} "$etc"
free=$(df -Pm "$base" | awk 'NR==2 {{print $4}}')
[ "$free" -ge {free} ] || {{ echo "only $free MiB free in $base, {free} are needed: make room" >&2; exit 1; }}
if ! id -u "$user" >/dev/null 2>&1; then
  useradd --system --user-group --no-create-home --home-dir {cache} --shell /usr/sbin/nologin "$user"
fi
install -d -m 750 -o "$user" -g "$user" {cache}/$service
rm -rf "$base"/releases/.staging.* "$etc"/.staging.*   # what a killed run left
if [ "$(cat "$base/releases/$release/.complete" 2>/dev/null || :)" = "$payload" ]; then cat >/dev/null; exit 0; fi
new=$(mktemp -d "$base/releases/.staging.XXXXXX")
key=$(mktemp -d "$etc/.staging.XXXXXX")
trap 'rm -rf "$new" "$key"' EXIT
base64 -d | tar -x -C "$new" --no-same-owner --no-same-permissions
if [ -d "$new/secrets" ]; then
  mv "$new/secrets"/* "$key"/
  rmdir "$new/secrets"
  rm -rf "$etc/$release"
  mv -T "$key" "$etc/$release"
fi
chmod -R u=rwX,go=rX "$new"
find "$new" -type f -exec sync {{}} +
printf %s "$payload" > "$new/.complete"
sync "$new/.complete"
if [ -e "$base/releases/$release" ]; then mv -T "$base/releases/$release" "$new.old"; fi
mv -T "$new" "$base/releases/$release"
rm -rf "$new.old"
sync -f "$base" "$etc"
"""


def stage_script(release: Release) -> tuple[str, str]:
    """(script, standard input) that put all of a release on its host. Nothing that runs is touched; repeatable."""
    archive, payload = _archive(release)
    text = _STAGE.format(state=paths.STATE, etc=paths.ETC, cache=paths.CACHE, free=STAGE_FREE_MIB)
    words = (release.service, release.id, release.user, payload)
    return f"set -- {' '.join(map(shlex.quote, words))}\n{text}", archive


def _archive(release: Release) -> tuple[str, str]:
    """A tar as base64 lines, and a digest of what is in it (the secrets by the release id, which stands for them)."""
    import hashlib

    buffer, digest = io.BytesIO(), hashlib.sha256(release.id.encode())
    secret = {f"secrets/{name}": bytes(value) for name, value in release.secrets.items()}
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, content in sorted({**release.files, **secret}.items()):
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(content), 0o600
            tar.addfile(info, io.BytesIO(content))
            if name not in secret:
                digest.update(f"{name}\0{len(content)}\0".encode() + content)
    return base64.encodebytes(buffer.getvalue()).decode(), digest.hexdigest()[:32]


def stage(host: Host, release: Release) -> None:
    """Put all of a release on its host and see that it could start: model, engine, GPUs, as the service user.

    Raises HostFailed; nothing that runs was touched then.
    """
    script, archive = stage_script(release)
    run(host, script, stdin=archive, timeout=120)
    command = " ".join(shlex.quote(word) for word in release.preflight)
    run(host, f"cd /; runuser -u {shlex.quote(release.user)} -- {command}", timeout=300)


# --- switch, start, stop --------------------------------------------------------------------------------------------


def switch_to(host: Host, service: str, release: str) -> None:
    """Unit and `current` of a staged release in place. Raises HostFailed; then nothing changed."""
    run(host, switch.script(service, release), timeout=60)


def start(host: Host, service: str, timeout: float) -> None:
    """Start and wait until it generates. Raises HostFailed with the last lines of its journal."""
    unit = paths.unit(service)
    script = f"""\
systemctl reset-failed {unit} 2>/dev/null
systemctl start {unit} && exit 0
code=$?
id=$(systemctl show -P InvocationID {unit})
journalctl -o cat --no-pager -n 40 _SYSTEMD_INVOCATION_ID=$id + INVOCATION_ID=$id
echo "{unit} did not start: see its journal" >&2
exit $code
"""
    run(host, script, timeout=timeout + LOST)


def stop(host: Host, service: str, timeout: float) -> None:
    """Stop, which drains. Raises HostFailed when a process is left."""
    unit = paths.unit(service)
    script = f"""\
systemctl stop {unit} || exit
group=$(systemctl show -P ControlGroup {unit})
[ -z "$group" ] || ! cat /sys/fs/cgroup$group/cgroup.procs /sys/fs/cgroup/unified$group/cgroup.procs 2>/dev/null |
  grep -q . || {{ echo "{unit} left processes behind" >&2; exit 1; }}
"""
    run(host, script, timeout=timeout + LOST)


def remove(host: Host, service: str, timeout: float) -> None:
    """Stop and remove a service that left the configuration, its releases and secrets. History and caches stay."""
    unit, file = paths.unit(service), paths.unit_file(service)
    script = f"""\
[ ! -f {file} ] || systemctl disable --now {unit} || exit
rm -rf {file} {paths.current(service)} {paths.releases(service)} {paths.ETC}/{service}
systemctl daemon-reload
systemctl reset-failed {unit} 2>/dev/null
exit 0
"""
    run(host, script, timeout=timeout + LOST)
