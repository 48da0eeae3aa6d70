#!/bin/sh
# The first process of the guest. The root of the guest is that of the host, read-only; the directory of the run (the
# working directory of the kernel's process on the host) is mounted writable. Instructions are in files there, so that
# nothing of a scenario is on a command line. In any case, it writes `done` or `error` there and halts the guest.
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/ TMPDIR=/mnt LC_ALL=C
# Without looking into the host's /run/mount and for its helpers: whether they are there would change what the kernel
# draws at random later.
mount() {
    command mount -n -i "$@"
}
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t tmpfs tmpfs /run
mount -t tmpfs tmpfs /mnt
mkdir /mnt/run
# Names come from files only. A failed system call takes a microsecond of virtual time, and a search for a missing
# library of the host's nsswitch.conf has as many as the processor has levels (glibc-hwcaps/x86-64-v3, …).
for table in passwd group shadow initgroups hosts networks protocols services ethers rpc netgroup; do
    echo "$table: files"
done >/mnt/nsswitch.conf
[ ! -f /etc/nsswitch.conf ] || mount --bind /mnt/nsswitch.conf /etc/nsswitch.conf
mount -t hostfs -o /proc/self/cwd run /mnt/run
cd /mnt/run || exit # nowhere to report it; without its first process the kernel stops
echo 1 >/proc/self/timerslack_ns

off() {
    sync
    echo o >/proc/sysrq-trigger
    sleep 60
}

# step WHAT COMMAND…: if the command fails, its output is the error.
step() {
    what=$1
    shift
    "$@" >log 2>&1 && return
    { echo "$what" && cat log; } >error
    off
}

until_ns() { # CLOCK_REALTIME
    left=$(($1 - $(date +%s%N)))
    [ "$left" -le 0 ] || sleep "$((left / 1000000000)).$(printf %09d $((left % 1000000000)))"
}

settings='while read -r path value; do echo "$value" >"/proc/sys/$path" || exit; done <"$1"'

# a line is: module, parameter, value, needed or optional
modules='while read -r module name value needed; do
    if [ -e "/sys/module/$module/parameters/$name" ]; then
        echo "$value" >"/sys/module/$module/parameters/$name" || exit
    elif [ "$needed" = needed ]; then
        echo "module $module has no parameter $name; it has" $(ls "/sys/module/$module/parameters" 2>/dev/null) >&2
        exit 1
    fi
done <plan/modules'

uname -r >kernel
cat /proc/sys/net/ipv4/tcp_available_congestion_control >ccas
step settings sh -c "$settings" settings plan/machine.sysctl
[ ! -f plan/modules ] || step modules sh -c "$modules"
step links ip -batch plan/links
while read -r host; do
    [ ! -f "plan/$host.sysctl" ] || step "settings of $host" ip netns exec "$host" sh -c "$settings" settings "plan/$host.sysctl"
    [ ! -f "plan/$host.ip" ] || step "addresses of $host" ip -netns "$host" -batch "plan/$host.ip"
    [ ! -f "plan/$host.sh" ] || step "commands of $host" ip netns exec "$host" sh -e "plan/$host.sh"
    [ ! -f "plan/$host.tc" ] || step "queues of $host" tc -netns "$host" -batch "plan/$host.tc"
done <plan/hosts
[ ! -s plan/R.netlink ] || step "queues of R" ip netns exec R ./netlink rb plan/R.netlink

snaplen=$(cat plan/snaplen)
for tap in ingress:ra egress:rb; do
    # with writes of a megabyte: with 4096 bytes this would be half of all the work
    ip netns exec R stdbuf -o 1048576 tcpdump -i "${tap#*:}" -s "$snaplen" -B 8192 --time-stamp-precision=nano \
        -Z root -w - >"${tap%:*}.pcap" 2>"${tap%:*}.log" &
    taps="$taps $!"
done

epoch_ns=$(cat plan/epoch_ns)
while read -r at_ns changes; do
    until_ns $((epoch_ns + at_ns))
    step "change of the rate" tc -netns R -batch "plan/$changes"
done <plan/changes &
clock=$!

if [ -f plan/iperf3 ]; then
    while read -r index start_ns source sink to port arguments; do
        ip netns exec "$sink" iperf3 -s -1 -B "$to" -p "$port" >/dev/null 2>&1 &
        (
            until_ns $((epoch_ns + start_ns))
            # shellcheck disable=SC2086  # words
            exec ip netns exec "$source" iperf3 -c "$to" -p "$port" $arguments -J >"iperf3.$index" 2>/dev/null
        ) &
        clients="$clients $!"
    done <plan/iperf3
fi

# The taps listen long before the epoch: in the guest, only sleeping takes time, computing does not.
step traffic ./traffic plan/traffic . --epoch "$epoch_ns"
tc -s -j -netns R qdisc show dev rb >qdisc.json
kill "$clock" 2>/dev/null
[ -z "$clients" ] || wait $clients
sleep 2 # tcpdump reads packets at least once a second, so it now has them all
kill -INT $taps
wait $taps
echo >done
off
