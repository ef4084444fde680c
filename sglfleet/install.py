"""Install a pinned engine on a host: uv, one environment per set of pins, side by side with the others."""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from sglfleet import operations, paths

if TYPE_CHECKING:
    from pyinfra.api.host import Host

    from sglfleet.engine import Engine

TIMEOUT = 3600  # seconds; torch and CUDA libraries are several GB
FREE_MIB = 20_000  # an engine from the index: 9 GB unpacked, as much again while it is unpacked
FREE_WHEELHOUSE_MIB = 256  # the wheels' size is added on the host
UV = f"{paths.OPT}/bin/uv"

# $1 venv, $2 python, $3 index, $4 wheelhouse, $5 MiB that must be free; requirements on standard input.
# An environment counts when `.complete` is there; half of one is made anew. The lock is for two controllers.
_INSTALL = f"""\
set -eu
umask 022
requirements=$(cat)
uv=$(command -v uv || echo {UV})
mkdir -p {paths.OPT}/engines
exec 9>{paths.OPT}/engines/.lock
flock 9
[ ! -f "$1/.complete" ] || exit 0
need=$5
[ -z "$4" ] || {{ [ -d "$4" ] || {{ echo "wheelhouse $4 is not there: put the wheels there" >&2; exit 1; }}
  need=$((need + 3 * $(du -sm "$4" | cut -f1))); }}
free=$(df -Pm {paths.OPT} | awk 'NR==2 {{print $4}}')
[ "$free" -ge "$need" ] || {{ echo "only $free MiB free in {paths.OPT}, $need are needed: make room" >&2; exit 1; }}
rm -rf "$1"
trap '[ -f "$1/.complete" ] || rm -rf "$1"' EXIT
export UV_NO_PROGRESS=1 UV_LINK_MODE=copy UV_PYTHON_INSTALL_DIR={paths.OPT}/python UV_CACHE_DIR={paths.CACHE}/uv
offline=
[ -z "$4" ] || offline="--offline --no-index --find-links $4"
# an interpreter in a home directory would be hidden from the server
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \\
  "$uv" venv --quiet ${{4:+--offline --no-python-downloads}} ${{2:+--python "$2"}} "$1"
case "$(readlink -f "$1/bin/python")" in
  /root/*|/home/*) echo "uv found only $(readlink -f "$1/bin/python"): install Python for all users" >&2; exit 1 ;;
esac
printf '%s\\n' "$requirements" | sed -n 's/^override //p' > "$1/overrides.txt"
printf '%s\\n' "$requirements" | sed -n 's/^require //p' > "$1/requirements.txt"
# compiled here, since the server's user cannot write there: else every start compiles all modules again
"$uv" pip install --quiet --compile-bytecode --python "$1/bin/python" $offline ${{3:+--index-url "$3"}} \\
  --override "$1/overrides.txt" -r "$1/requirements.txt"
touch "$1/.complete"
sync -f "$1"
"""


def install(host: Host, engine: Engine) -> None:
    """Install it if it is not there. Raises HostFailed; what runs is not touched, half an environment is not kept."""
    have = operations.run(host, f"command -v uv || ls {UV}", check=False)
    if not have.ok:
        _send_uv(host)
    words = (
        engine.venv,
        engine.python,
        engine.index_url,
        engine.wheelhouse,
        str(FREE_WHEELHOUSE_MIB if engine.wheelhouse else FREE_MIB),
    )
    lines = [*(f"require {r}" for r in engine.requirements), *(f"override {o}" for o in engine.overrides)]
    script = f"set -- {' '.join(map(shlex.quote, words))}\n{_INSTALL}"
    operations.run(host, script, stdin="\n".join(lines), timeout=TIMEOUT)


def _send_uv(host: Host) -> None:
    """Give the host the controller's own uv, a single static binary, where both have the same processor."""
    import base64
    import platform

    local = shutil.which("uv") or str(Path(__import__("sys").executable).parent / "uv")
    if not Path(local).is_file():
        raise operations.HostFailed(host.name, "no uv on the host and none on the controller: install uv on either")
    machine = operations.run(host, "uname -m").out.strip()
    if machine != platform.machine():
        raise operations.HostFailed(
            host.name,
            f"no uv on the host, and the controller's is for another processor than {machine}: install uv there",
        )
    text = base64.encodebytes(Path(local).read_bytes()).decode()
    operations.run(
        host,
        f"set -eu; mkdir -p {paths.OPT}/bin; base64 -d > {UV}.new; chmod 755 {UV}.new; mv -T {UV}.new {UV}",
        stdin=text,
        timeout=300,
    )
