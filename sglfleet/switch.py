"""Put a staged release in place on its host: unit and `current`, each in one step. Stops and starts nothing."""

from __future__ import annotations

import shlex

from sglfleet import paths

# $1 service, $2 release. The unit names the files of its own release by absolute path, so that unit and release cannot
# differ; `current` is a pointer for people and tools. Killed between the two renames, the next run repeats both.
TEXT = f"""\
set -eu
umask 022
base={paths.STATE}/$1 unit=sglang-$1.service units={paths.UNITS}
dir=$base/releases/$2
[ -f "$dir/.complete" ] || {{ echo "release $2 of $1 is not staged on this host: deploy again" >&2; exit 1; }}
if ! cmp -s "$dir/$unit" "$units/$unit"; then
  cp "$dir/$unit" "$units/.$unit.new"
  sync "$units/.$unit.new"
  mv -T "$units/.$unit.new" "$units/$unit"
fi
if [ "$(readlink "$base/current" 2>/dev/null || :)" != "releases/$2" ]; then
  rm -f "$base/.current.new"
  ln -s "releases/$2" "$base/.current.new"
  mv -T "$base/.current.new" "$base/current"
fi
sync -f "$base" "$units"
systemctl daemon-reload
systemctl is-enabled --quiet "$unit" || systemctl enable --quiet "$unit"
"""


def script(service: str, release: str) -> str:
    """The same with service and release filled in: sh text, for root."""
    return f"set -- {shlex.quote(service)} {shlex.quote(release)}\n{TEXT}"
