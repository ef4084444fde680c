#!/bin/sh
# Installs the router's own environment, writes its unit (base64 on standard input) and starts it. Root, POSIX sh.
#   router.sh UNIT HOME VERSION MANAGED(yes|no) INDEX_URL WORKERS_FILE
set -eu
umask 022
unit=$1 home=$2 version=$3 managed=$4 index=$5 workers=$6
have() {
  [ -x "$home/bin/python" ] || return 0
  "$home/bin/python" -c 'import importlib.metadata as m; print(m.version("sglang-router"))' 2>/dev/null || true
}
if [ "$(have)" != "$version" ]; then
  if [ "$managed" != yes ]; then
    echo "$home has sglang-router '$(have)', not $version: install it there, or take venv: managed" >&2
    exit 1
  fi
  rm -rf "$home.new"
  mkdir -p "$(dirname "$home")"
  if command -v uv >/dev/null; then
    uv venv -q "$home.new"
    uv pip install -q -p "$home.new/bin/python" ${index:+--index-url "$index"} "sglang-router==$version"
  else
    python3 -m venv "$home.new"
    "$home.new/bin/python" -m pip install -q ${index:+--index-url "$index"} "sglang-router==$version"
  fi
  rm -rf "$home"
  mv -T "$home.new" "$home"
fi
file=/etc/systemd/system/$unit
base64 -d > "$file.new"
if cmp -s "$file.new" "$file"; then
  rm "$file.new"
  changed=no
else
  # remembered servers of a pair mean nothing to a router of whole servers, nor the other way round
  kind() { grep -c -e --pd-disaggregation "$1" 2>/dev/null || true; }
  if [ -e "$file" ] && [ "$(kind "$file")" != "$(kind "$file.new")" ]; then rm -f "$workers"; fi
  mv -T "$file.new" "$file"
  systemctl daemon-reload
  changed=yes
fi
systemctl is-enabled --quiet "$unit" || systemctl enable --quiet "$unit"
if [ "$changed" = yes ]; then
  systemctl restart "$unit"
elif ! systemctl is-active --quiet "$unit"; then
  systemctl reset-failed "$unit" 2>/dev/null || true
  systemctl start "$unit"
fi
echo "changed=$changed"
