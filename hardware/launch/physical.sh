# The functions of physical.py's scripts, which each start with "directory=… snaplen=…" and this text.
# A script prints "ready", waits for "go" and "stop", sends files ("file NAME BYTES", then the bytes), and prints
# "done". However it ends, `finish` stops what it started and restores what it changed.
set -eu
umask 077
jobs='' undo=''

die() { echo "error $*"; exit 1; }

# each SIGNAL: send it to the process group of every job; succeeds if any is left
each() {
  found=1
  for j in $jobs; do kill -s "$1" -- "-$j" 2>/dev/null && found=0; done
  return $found
}

finish() {
  trap '' EXIT HUP INT TERM PIPE
  each TERM || :
  (sleep 5; each KILL || :) >/dev/null 2>&1 &
  late=$!
  for j in $jobs; do wait "$j" 2>/dev/null || :; done
  for i in $(seq 60); do each 0 || break; sleep 0.1; done  # a job's first process may end before the others
  kill "$late" 2>/dev/null || :
  eval "$undo"
  rm -rf "$dir"
}

dir=$(mktemp -d "$directory/cctoolkit.XXXXXX") || die "cannot make a directory in $directory"
trap finish EXIT
trap 'exit 1' HUP INT TERM PIPE

wait_for() { read -r word || exit 1; [ "$word" = "$1" ] || exit 1; }

send_file() { printf 'file %s %s\n' "$1" "$(wc -c <"$dir/$1")"; cat "$dir/$1"; }

need() { for c in "$@"; do command -v "$c" >/dev/null || die "$c is not installed"; done; }

# job NAME COMMAND…: run it in the background, in its own process group; descriptor 3 is this script's output
job() {
  name=$1; shift
  setsid "$@" 3>&1 >"$dir/$name.out" 2>"$dir/$name.err" </dev/null &
  jobs="$jobs $!"
}

# set_sysctl NAME VALUE: until the script ends
set_sysctl() {
  old=$(sysctl -n "$1") || die "sysctl $1 does not exist"
  [ "$old" = "$2" ] && return 0
  sysctl -qw "$1=$2" || die "cannot set sysctl $1"
  undo="sysctl -qw '$1=$old' || :; $undo"
}

# raise_sysctl NAME LEAST: to at least LEAST, until the script ends
raise_sysctl() {
  old=$(sysctl -n "$1" 2>/dev/null) || return 0  # a network namespace may not see it; iperf3 says if it is too low
  [ "$old" -ge "$2" ] || set_sysctl "$1" "$2"
}

# no_qdisc DEVICE: fail if someone has set a queue discipline; remove ours at the end
no_qdisc() {
  tc qdisc show dev "$1" root | grep -q ' 0: ' || die "$1 has a queue discipline of its own: remove it first"
  undo="tc qdisc del dev $1 root 2>/dev/null || :; $undo"
}

# no_offloads DEVICE: every packet is one frame
no_offloads() {
  for f in tso:tcp-segmentation-offload gso:generic-segmentation-offload gro:generic-receive-offload; do
    ethtool -k "$1" | grep -q "^${f#*:}: on\$" || continue
    ethtool -K "$1" "${f%%:*}" off >/dev/null 2>&1 || die "cannot turn ${f%%:*} off on $1"
    undo="ethtool -K $1 ${f%%:*} on >/dev/null 2>&1 || :; $undo"
  done
}

# run_tc WORDS…: run tc
run_tc() { tc "$@" >&2 || die "tc $*"; }

# need_cca CCA: fail if the kernel lacks the congestion control
need_cca() {
  modprobe -q "tcp_$1" 2>/dev/null || :
  grep -qw "$1" /proc/sys/net/ipv4/tcp_available_congestion_control || die "the kernel has no congestion control $1"
}

# serve SECONDS ADDRESS PORT…: start an iperf3 server for each port, and wait until all listen
serve() {
  limit=$1 address=$2; shift 2
  for p in "$@"; do
    job "server$p" timeout "$limit" iperf3 -s -1 -B "$address" -p "$p"
    eval "server$p=$!"
  done
  for p in "$@"; do
    for i in $(seq 300); do
      ss -Hltn "sport = :$p" | grep -q . && break
      eval "kill -0 \$server$p" 2>/dev/null || break  # it has ended
      sleep 0.1
    done
    ss -Hltn "sport = :$p" | grep -q . || die "iperf3 does not listen on port $p: $(cat "$dir/server$p.out")"
  done
}

# record NAME DEVICE FILTER: capture until `recorded`
taps=''
record() {
  job "$1" tcpdump -n -i "$2" -s "$snaplen" -B 65536 --time-stamp-precision=nano -Z "$(id -un)" -w "$dir/$1.pcap" "$3"
  taps="$taps $!"
  for i in $(seq 300); do
    grep -q 'listening on' "$dir/$1.err" && return 0
    kill -0 "$!" 2>/dev/null || break  # it has ended
    sleep 0.1
  done
  die "tcpdump on $2: $(tail -n 1 "$dir/$1.err")"
}

# tcpdump gets packets in blocks, so the last ones take a moment
recorded() {
  sleep 2
  for j in $taps; do kill -s INT "$j"; wait "$j" || :; done
}

