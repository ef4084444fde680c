#!/bin/sh
# What a rolling restart does on a host. Root, POSIX sh, one verb a call; answers are key=value lines.
#
#   node.sh probe   SERVICE                           what runs, what is current, whose lock, which turn
#   node.sh lock    SERVICE RUN LEASE WHO SINCE ORIGIN [BREAK]   take the node's lock; BREAK: run whose controller is known dead
#   node.sh renew   SERVICE RUN                       the controller is alive
#   node.sh unlock  SERVICE RUN
#   node.sh go      SERVICE RUN NEW OLD WATCH         stop, switch to NEW, start; goes back to OLD by itself if the start fails
#   node.sh adopt   SERVICE RUN WATCH                 take over a turn whose controller is gone
#   node.sh back    SERVICE RUN REASON                undo the turn
#   node.sh accept  SERVICE RUN LINE KEEP             the turn is done: write history, prune
#   node.sh journal SERVICE INVOCATION LINES          last lines of one start
#   node.sh errors  SERVICE INVOCATION CURSOR         lines that look like errors since the cursor
#   node.sh note    SERVICE LINE                      a line of history
#   node.sh targets SERVICE                           what is known of the kept releases
#
# `go` and `back` work in a transient unit: a lost connection or a killed controller cannot leave the host between stop
# and start. Once NEW has started, a timer takes the host back after WATCH seconds unless somebody accepts the turn; it
# waits as long as a live run holds the lock, be it this one (slow) or the next one (which took the turn over).
# Times are seconds of the host's own uptime with its boot id, so a wrong clock on either side does not matter.
set -u
verb=$1 svc=$2
shift 2
unit=sglang-$svc.service
base=/var/lib/sglfleet/$svc
dir=$base/.roll
self=$dir/node.sh
turn=$dir/turn
lock=$base/lock

say() { printf '%s=%s\n' "$1" "$(printf %s "$2" | tr '\n' ' ')"; }
up() { cut -d. -f1 /proc/uptime; }
boot() { echo "$(cat /proc/sys/kernel/random/boot_id)-$(systemctl show -p UserspaceTimestampMonotonic --value)"; }  # containers share the first half
field() { [ -f "$1" ] && sed -n "s/^$2=//p" "$1" | head -n1; }        # field FILE KEY
put() {                                                               # put FILE KEY VALUE: replace one line, atomically
  { [ ! -f "$1" ] || grep -v "^$2=" "$1"; say "$2" "$3"; } > "$1.new" && mv -T "$1.new" "$1"
}
show() { systemctl show -p "$1" --value "$unit"; }
release_of() { [ "${1:-0}" -gt 0 ] 2>/dev/null && tr '\0' '\n' < "/proc/$1/environ" 2>/dev/null | sed -n 's/^SGLFLEET_RELEASE=//p'; }
mine() {                                                              # a controller that was slept or cut off must not touch anything
  [ "$(field "$lock" run)" = "$1" ] || { say error "the lock is held by $(field "$lock" who), not by this run"; exit 75; }
}
alive() {                                                             # does a run hold the lock, with a lease that goes on?
  [ -f "$lock" ] && [ "$(field "$lock" boot)" = "$(boot)" ] || return 1
  renewed=$(field "$lock" renewed) lease_of=$(field "$lock" lease)      # a disk that was full may have left neither
  age=$(( $(up) - ${renewed:-0} ))
  [ -n "$renewed" ] && [ "$age" -ge 0 ] && [ "$age" -le "${lease_of:-0}" ]
}
settled() { case "$(field "$turn" phase)" in ''|accepted|reverted|stopped) return 0;; *) return 1;; esac; }
busy() {                                                              # is a turn or its undoing under way, by whomever?
  systemctl is-active --quiet "sglfleet-turn-$svc.service" "sglfleet-back-$svc.service" && return 0     # any of them
  [ -f "$dir/turn.mutex" ] && ! flock -n -s "$dir/turn.mutex" true
}
unwatch() {
  systemctl stop "sglfleet-watch-$svc.timer" 2>/dev/null
  [ "$verb" = watchdog ] || systemctl stop "sglfleet-watch-$svc.service" 2>/dev/null
  systemctl reset-failed "sglfleet-watch-$svc.*" 2>/dev/null
  true
}
watch() {
  unwatch
  systemd-run --quiet --collect --unit="sglfleet-watch-$svc" --on-active="$1" --timer-property=AccuracySec=1s \
    /bin/sh "$self" watchdog "$svc" "$2"
}
start() { systemctl reset-failed "$unit" 2>/dev/null; systemctl start "$unit"; }
start_again() {                                                       # what served before serves again, sooner or later: a busy machine
  for pause in 2 5 0; do                                              # or memory that is not free yet must not decide it
    start && return 0
    sleep "$pause"
  done
  return 1
}
history() {
  printf '%s\n' "$1" >> "$base/history.jsonl"
  if [ "$(wc -l < "$base/history.jsonl")" -gt 1000 ]; then
    tail -n 800 "$base/history.jsonl" > "$base/history.jsonl.new" && mv -T "$base/history.jsonl.new" "$base/history.jsonl"
  fi
}
go_back() {                                                           # go_back REASON, with the turn's mutex held
  settled && return 0
  old=$(field "$turn" old)
  put "$turn" reason "$1"
  put "$turn" failed_invocation "$(show InvocationID)"
  put "$turn" phase reverting
  unwatch
  systemctl stop "$unit"                                              # ends the restarts that systemd goes on with after a failed start
  if [ -z "$old" ]; then                                              # a first deploy: nothing to go back to
    systemctl disable --quiet "$unit" 2>/dev/null
    systemctl reset-failed "$unit" 2>/dev/null
    rm -f "$base/current"
    put "$turn" phase stopped
  elif sh "$dir/switch.sh" "$svc" "$old" >&2 && start_again; then
    put "$turn" phase reverted
  else
    put "$turn" phase revert-failed
  fi
  put "$turn" ended "$(up)"
}
summary() {                                                           # a line of history by the host itself, nobody else being there
  history "{\"schema_version\": 1, \"time\": \"$(date -u +%Y-%m-%dT%H:%M:%SZ)\", \"who\": \"the host itself\", \"run\": \"$(field "$turn" run)\", \"release\": \"$(field "$turn" new)\", \"previous\": \"$(field "$turn" old)\", \"result\": \"$(field "$turn" phase)\", \"reason\": \"$1\"}"
}
prune() {                                                             # prune KEEP: the newest releases, and whatever is in use
  current=$(basename "$(readlink "$base/current" 2>/dev/null)" 2>/dev/null)
  running=$(release_of "$(show MainPID)")
  ls -1t "$base/releases" 2>/dev/null | awk -v k="$1" 'NR > k' | while read -r id; do
    case "$id" in "$current"|"$running"|"$(field "$turn" new)"|"$(field "$turn" old)"|.*) continue;; esac
    rm -rf "$base/releases/$id" "/etc/sglfleet/$svc/$id" "$dir/targets/$id"
  done
  # engines that no kept release of any service names, except the newest of them: another deploy may be about to use it
  ls -1td /opt/sglfleet/engines/*/ 2>/dev/null | while read -r engine; do
    grep -rqsF -- "$engine" /var/lib/sglfleet/*/releases /etc/systemd/system --include='*.service' || printf '%s\n' "$engine"
  done | awk 'NR > 1' | while read -r engine; do rm -rf "$engine"; done
}

case $verb in
probe)
  # the turn before the unit: "reverted" or "started" beside a unit from before its start would look like a failure
  [ ! -f "$turn" ] || sed 's/^/turn_/' "$turn"
  state=$(systemctl show -p ActiveState,SubState,Result,MainPID,InvocationID,NRestarts,UnitFileState,ActiveEnterTimestampMonotonic "$unit")
  printf '%s\n' "$state" | sed 's/^/unit_/'
  say release "$(release_of "$(printf '%s\n' "$state" | sed -n 's/^MainPID=//p')")"
  say current "$(basename "$(readlink "$base/current" 2>/dev/null)" 2>/dev/null)"
  say boot "$(boot)"
  say uptime "$(up)"
  say clock "$(date +%s)"
  [ ! -f "$lock" ] || sed 's/^/lock_/' "$lock"
  busy && say busy yes
  say releases "$(ls -1t "$base/releases" 2>/dev/null | tr '\n' ' ')"
  [ ! -s "$base/history.jsonl" ] || say history "$(tail -n1 "$base/history.jsonl")"
  ;;
lock)
  run=$1 lease=$2 who=$3 since=$4 origin=$5 break=${6:-}
  mkdir -p "$dir/targets"
  exec 9> "$dir/lock.mutex"
  flock -w 10 9 || { say error "the lock's mutex is busy"; exit 75; }
  if [ -f "$lock" ]; then
    holder=$(field "$lock" run)
    if [ "$holder" != "$run" ] && [ "$holder" != "${break:-none}" ] && alive; then
      sed 's/^/lock_/' "$lock"
      say lock_age "$age"
      exit 75
    fi
    [ "$holder" = "$run" ] || say took_over "$(field "$lock" who), since $(field "$lock" since)"
  fi
  { say run "$run"; say who "$who"; say since "$since"; say origin "$origin"; say lease "$lease"; say renewed "$(up)"; say boot "$(boot)"; } > "$lock.new" \
    && mv -T "$lock.new" "$lock" || { say error "the lock cannot be written: make room in $base"; exit 74; }
  say lock taken
  ;;
renew)
  exec 9> "$dir/lock.mutex"; flock -w 10 9 || exit 75
  mine "$1"
  put "$lock" renewed "$(up)"
  ;;
unlock)
  exec 9> "$dir/lock.mutex"; flock -w 10 9 || exit 75
  mine "$1"
  rm -f "$lock"
  ;;
go)
  run=$1 new=$2 old=$3 watch=$4
  mine "$run"
  [ -f "$base/releases/$new/.complete" ] || { say error "release $new is not staged here"; exit 66; }
  busy && { say error "another turn is under way here"; exit 75; }
  exec 9> "$dir/turn.mutex"; flock -w 15 9 || { say error "another turn is under way here"; exit 75; }
  unwatch
  { say run "$run"; say new "$new"; say old "$old"; say watch "$watch"; say phase begun; say boot "$(boot)"; say began "$(up)"; } > "$turn.new" \
    && mv -T "$turn.new" "$turn" || { say error "nothing was begun, no space left: make room in $base"; exit 74; }
  systemd-run --quiet --collect --unit="sglfleet-turn-$svc" /bin/sh "$self" turn "$svc"
  ;;
turn)                                                                 # inside the transient unit
  exec 9> "$dir/turn.mutex"; flock 9
  [ "$(field "$turn" phase)" = begun ] || exit 0
  new=$(field "$turn" new) old=$(field "$turn" old)
  put "$turn" phase stopping
  systemctl stop "$unit" 2>/dev/null
  put "$turn" stopped "$(up)"
  put "$turn" phase switching
  if ! why=$(sh "$dir/switch.sh" "$svc" "$new" 2>&1); then go_back "the switch failed: $why"; exit 1; fi
  put "$turn" phase starting
  if ! start; then go_back "the start failed"; exit 1; fi
  put "$turn" started "$(up)"
  put "$turn" invocation "$(show InvocationID)"
  watch "$(field "$turn" watch)" "$(field "$turn" run)"
  put "$turn" phase started
  ;;
adopt)
  run=$1 watch=$2
  mine "$run"
  exec 9> "$dir/turn.mutex"; flock -w 15 9 || { say error "a turn is under way here"; exit 75; }
  settled && exit 0
  [ "$(field "$turn" phase)" = started ] || { say error "the turn was interrupted while $(field "$turn" phase)"; exit 70; }
  put "$turn" run "$run"
  put "$turn" invocation "$(show InvocationID)"
  watch "$watch" "$run"
  ;;
back)
  mine "$1"
  systemd-run --quiet --collect --unit="sglfleet-back-$svc" /bin/sh "$self" undo "$svc" "$1" "$2"
  ;;
undo)
  exec 9> "$dir/turn.mutex"; flock 9
  # accepted here, but not on another host of its group, or nobody heard of it: the turn as a whole failed
  [ "$(field "$turn" phase)" != accepted ] || [ "$(field "$turn" run)" != "$1" ] || put "$turn" phase started
  go_back "$2"
  ;;
watchdog)
  while :; do
    exec 9> "$dir/turn.mutex"; flock 9
    [ "$(field "$turn" run)" = "$1" ] && ! settled || exit 0
    alive || break                                                    # with the mutex: a run that takes the lock now finds us at work
    exec 9>&-
    sleep 2
  done
  go_back "nobody accepted the new release in time"
  summary "nobody accepted the new release in time"
  ;;
accept)
  run=$1 line=$2 keep=$3
  mine "$run"
  exec 9> "$dir/turn.mutex"; flock -w 15 9 || { say error "a turn is under way here"; exit 75; }
  [ "$(field "$turn" phase)" != accepted ] || exit 0                  # done already, only the answer was lost
  [ "$(field "$turn" phase)" = started ] || { say error "nothing to accept, the turn is $(field "$turn" phase)"; exit 70; }
  unwatch
  put "$turn" ended "$(up)"
  put "$turn" phase accepted
  history "$line"
  # removing an engine of 10 GB takes its time, and nobody waits for it
  systemd-run --quiet --collect --unit="sglfleet-prune-$svc" /bin/sh "$self" prune "$svc" "$keep" 2>/dev/null || true
  ;;
prune) prune "$1" ;;
note) history "$1" ;;
journal) journalctl --quiet --no-pager --output=cat --lines="$2" "_SYSTEMD_INVOCATION_ID=$1" + "INVOCATION_ID=$1" ;;
cursor) journalctl --quiet --no-pager --lines=1 --show-cursor --output=cat "_SYSTEMD_INVOCATION_ID=$1" | sed -n 's/^-- cursor: /cursor=/p' ;;
errors)
  set -- "_SYSTEMD_INVOCATION_ID=$1" ${2:+"--after-cursor=$2"}
  journalctl --quiet --no-pager --output=cat "$@" \
    | grep -E 'Traceback \(most recent|Scheduler hit an exception|CUDA error|AcceleratorError|OutOfMemoryError|Watchdog timeout|Segmentation fault' | head -n 20
  ;;
targets) for file in "$dir"/targets/*; do [ -f "$file" ] && cat "$file" && echo; done ;;
*) say error "unknown verb $verb"; exit 64 ;;
esac
