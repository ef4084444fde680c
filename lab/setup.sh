#!/bin/bash
# Sets up what is missing, and nothing else: Debian packages (as root or by sudo), a Python environment, this project in it.
# Called by make. PY: Python to make the environment with. VENV: where; empty means PY has everything already.
set -euo pipefail
cd "$(dirname "$0")/.."
PY=${PY:-python3}
[ -n "${VENV:-}" ] || exit 0

missing=()
want() { command -v "$1" >/dev/null 2>&1 || [ -x "/usr/sbin/$1" ] || missing+=("$2"); }
if [ "$(uname -s)" = Linux ] && command -v apt-get >/dev/null; then
  want systemd-nspawn systemd-container; want systemctl systemd; want ip iproute2; want ssh openssh-client
  want sshd openssh-server; want sudo sudo; want dbus-daemon dbus; want git git; want curl curl
  [ -e /lib/systemd/systemd ] || missing+=(systemd-sysv)
  [ -e /lib/x86_64-linux-gnu/security/pam_systemd.so ] || compgen -G '/lib/*/security/pam_systemd.so' >/dev/null || missing+=(libpam-systemd)
  [ -x /usr/bin/python3 ] || missing+=(python3)  # lab hosts use the machine's own
  "$PY" -c 'import ensurepip, venv' 2>/dev/null || missing+=(python3-venv)
  if [ ${#missing[@]} -gt 0 ]; then
    as_root=()
    if [ "$(id -u)" != 0 ]; then
      if sudo -n true 2>/dev/null || [ -t 0 ]; then as_root=(sudo); else as_root=(false); fi
    fi
    echo "setup: installing packages: ${missing[*]}"
    # An SSH server is wanted in lab hosts, not on this machine: it is neither started nor enabled here.
    no_start=/usr/sbin/policy-rc.d made=
    if [ ! -e $no_start ]; then
      printf '#!/bin/sh\nexit 101\n' | "${as_root[@]}" tee $no_start >/dev/null && "${as_root[@]}" chmod 755 $no_start && made=1
    fi
    if ! { "${as_root[@]}" apt-get update -q && "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
           apt-get install -q -y --no-install-recommends "${missing[@]}"; }; then
      echo "setup: packages are missing: ${missing[*]}: without them there is no lab; install them as root" >&2
    fi
    if [[ " ${missing[*]} " == *" openssh-server "* ]]; then
      "${as_root[@]}" systemctl disable -q ssh.service ssh.socket 2>/dev/null || true
    fi
    [ -z "$made" ] || "${as_root[@]}" rm -f $no_start
  fi
fi

"$PY" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || {
  echo "setup: $PY: Python 3.11 or newer is needed: give one with PY=/path/to/python3.11" >&2; exit 1; }

# What the environment was made from; when that changed, pip looks again. Written last, so a broken run is done again.
stamp=$VENV/.made-from
made_from=$(cat pyproject.toml constraints.txt | sha256sum | cut -d' ' -f1)
if [ "$(cat "$stamp" 2>/dev/null)" != "$made_from" ]; then
  [ -x "$VENV/bin/python" ] && "$VENV/bin/python" -m pip --version >/dev/null 2>&1 || { rm -rf "$VENV"; "$PY" -m venv "$VENV"; }
  echo "setup: installing the project and its tools into $VENV"
  "$VENV/bin/python" -m pip install -q --disable-pip-version-check -c constraints.txt -e '.[dev]'
  echo "$made_from" > "$stamp"
fi
