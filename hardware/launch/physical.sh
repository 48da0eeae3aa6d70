# What physical.py's scripts are made of; each begins with this text, after "directory=…" and "snaplen=…".
# It says "ready", hears "go" and "stop", says "done", and between these hands files over ("file NAME BYTES", then the
# bytes). Whatever ends it, `finish` stops what was started and undoes what was changed.
set -eu
umask 077
jobs='' undo=''

die() { echo "error $*"; exit 1; }

# each SIGNAL: to all of every job; succeeds if there was one
each() {
  there=1
  for j in $jobs; do kill -s "$1" -- "-$j" 2>/dev/null && there=0; done
  return $there
}

finish() {
  trap '' EXIT HUP INT TERM PIPE
  each TERM || :
  (sleep 5; each KILL || :) >/dev/null 2>&1 &
  late=$!
  for j in $jobs; do wait "$j" 2>/dev/null || :; done
  for i in $(seq 60); do each 0 || break; sleep 0.1; done  # a job's first process may end before its others
  kill "$late" 2>/dev/null || :
  eval "$undo"
  rm -rf "$dir"
}

dir=$(mktemp -d "$directory/cctoolkit.XXXXXX") || die "cannot make a directory in $directory"
trap finish EXIT
trap 'exit 1' HUP INT TERM PIPE

heard() { read -r word || exit 1; [ "$word" = "$1" ] || exit 1; }

give() { printf 'file %s %s\n' "$1" "$(wc -c <"$dir/$1")"; cat "$dir/$1"; }

need() { for c in "$@"; do command -v "$c" >/dev/null || die "there is no $c"; done; }

# job NAME COMMAND…: in the background, in a process group of its own; descriptor 3 is this script's output
job() {
  name=$1; shift
  setsid "$@" 3>&1 >"$dir/$name.out" 2>"$dir/$name.err" </dev/null &
  jobs="$jobs $!"
}

# setting NAME VALUE: of sysctl, for the time being
setting() {
  old=$(sysctl -n "$1") || die "there is no setting $1"
  [ "$old" = "$2" ] && return 0
  sysctl -qw "$1=$2" || die "cannot set $1"
  undo="sysctl -qw '$1=$old' || :; $undo"
}

# plain DEVICE: has no queue discipline of somebody's, and will have none of ours
plain() {
  tc qdisc show dev "$1" root | grep -q ' 0: ' || die "$1 has a queue of its own: remove it first"
  undo="tc qdisc del dev $1 root 2>/dev/null || :; $undo"
}

# whole DEVICE: every packet is a frame of its own
whole() {
  for f in tso:tcp-segmentation-offload gso:generic-segmentation-offload gro:generic-receive-offload; do
    ethtool -k "$1" | grep -q "^${f#*:}: on\$" || continue
    ethtool -K "$1" "${f%%:*}" off >/dev/null 2>&1 || die "cannot turn ${f%%:*} of $1 off"
    undo="ethtool -K $1 ${f%%:*} on >/dev/null 2>&1 || :; $undo"
  done
}

# queue WORDS…: one line for tc
queue() { tc "$@" >&2 || die "tc $*"; }

# can CCA: this kernel has the congestion control
can() {
  modprobe -q "tcp_$1" 2>/dev/null || :
  grep -qw "$1" /proc/sys/net/ipv4/tcp_available_congestion_control || die "there is no $1"
}

# serve SECONDS ADDRESS PORT…: an iperf3 for each port, all listening
serve() {
  limit=$1 address=$2; shift 2
  for p in "$@"; do job "server$p" timeout "$limit" iperf3 -s -1 -B "$address" -p "$p"; done
  for p in "$@"; do
    for i in $(seq 50); do ss -Hltn "sport = :$p" | grep -q . && break; sleep 0.1; done
    ss -Hltn "sport = :$p" | grep -q . || die "iperf3 does not listen on port $p: $(cat "$dir/server$p.out")"
  done
}

# record NAME DEVICE FILTER: until `recorded`
taps=''
record() {
  job "$1" tcpdump -n -i "$2" -s "$snaplen" -B 65536 --time-stamp-precision=nano -Z "$(id -un)" -w "$dir/$1.pcap" "$3"
  taps="$taps $!"
  for i in $(seq 100); do grep -q 'listening on' "$dir/$1.err" && return 0; sleep 0.1; done
  die "tcpdump on $2: $(tail -n 1 "$dir/$1.err")"
}

# tcpdump gets packets a block at a time, so what came last needs a moment
recorded() {
  sleep 2
  for j in $taps; do kill -s INT "$j"; wait "$j" || :; done
}

