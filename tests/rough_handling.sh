#!/bin/sh
# The first process of a guest that handles queue disciplines roughly; it writes `output` and `dmesg`, and halts.
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/ LC_ALL=C
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t tmpfs tmpfs /run
mount -t tmpfs tmpfs /mnt
mkdir /mnt/run
mount -t hostfs -o /proc/self/cwd run /mnt/run
cd /mnt/run || exit
exec >output 2>&1

cat >/mnt/flood.py <<'PYTHON'
import socket, sys

count, size = int(sys.argv[1]), int(sys.argv[2])
sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 24)
for i in range(count):
    sock.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, i % 4)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_MARK, i % 70)
    try:
        sock.sendto(bytes(size), ("10.0.0.2", 9))
    except OSError:  # what is dropped at once, or too long
        pass
PYTHON
cat >/mnt/tcp.py <<'PYTHON'
import socket, subprocess, sys

RECEIVER = """
import socket
listening = socket.create_server(("10.0.0.2", 7))
print("up", flush=True)
sock, _ = listening.accept()
total = 0
while data := sock.recv(1 << 20):
    total += len(data)
print("received", total)
"""
receiver = subprocess.Popen(
    ["ip", "netns", "exec", "b", sys.executable, "-c", RECEIVER], stdout=subprocess.PIPE, text=True
)
receiver.stdout.readline()
with socket.create_connection(("10.0.0.2", 7)) as sock:
    sock.sendall(bytes(int(sys.argv[1])))
print(receiver.stdout.read(), end="")
PYTHON

flood() { python3 /mnt/flood.py "$@"; }
htb() {
    tc qdisc add dev v0 root handle 1: htb default 1
    tc class add dev v0 parent 1: classid 1:1 htb rate "$1" quantum 1514
}
# what: packets sent and backlog of each discipline of the device
show() {
    echo "$*:" "$(tc -s qdisc show dev v0 | sed -n 's/^ Sent .* bytes \(.*\) pkt.*/ sent \1/p; s/^ \(backlog .*\) requeues.*/ \1/p' | tr -d '\n')"
}

ip netns add b
ip link add v0 type veth peer name v1 netns b
ip addr add 10.0.0.1/24 dev v0
ip link set v0 up
ip -n b addr add 10.0.0.2/24 dev v1
ip -n b link set v1 up

for kind in pi2 ired abc codel_pisa; do
    echo "== $kind"
    parameters=/sys/module/sch_$kind/parameters
    for hostile in $(cat "hostile.$kind"); do
        file=$parameters/${hostile%%=*}
        before=$(cat "$file")
        echo "${hostile#*=}" >"$file"
        if tc qdisc add dev v0 root "$kind" >/mnt/refused 2>&1; then
            echo "ACCEPTED $hostile"
            tc qdisc del dev v0 root
        else
            echo "refused $hostile: $(head -n 1 /mnt/refused)"
        fi
        echo "$before" >"$file"
    done

    htb 1mbit
    tc qdisc add dev v0 parent 1:1 handle 10: "$kind"
    flood 600 1400
    sleep 0.3
    show flooded
    tc qdisc del dev v0 parent 1:1 handle 10:
    show deleted
    tc qdisc add dev v0 parent 1:1 handle 10: "$kind"
    flood 300 100
    ip link set v0 mtu 600
    flood 50 1400
    ip link set v0 mtu 9000
    flood 50 8000
    sleep 0.2
    ip link set v0 mtu 1500
    tc qdisc change dev v0 parent 1:1 handle 10: "$kind" 2>/dev/null
    ip link set v0 down
    show down
    ip link set v0 up
    flood 100 1000
    sleep 10
    show drained
    flood 200 1000
    for i in 1 2 3 4 5 6 7 8 9 10; do
        tc qdisc replace dev v0 parent 1:1 handle 2$i: "$kind"
        flood 20 500
    done
    tc qdisc replace dev v0 parent 1:1 handle 40: "$kind"
    show replaced
    tc qdisc del dev v0 root

    tc qdisc add dev v0 root "$kind"
    flood 100 1400
    tc qdisc del dev v0 root
    # two that peek
    tc qdisc add dev v0 root handle 1: tbf rate 2mbit burst 2000 limit 100000
    tc qdisc add dev v0 parent 1:1 handle 10: "$kind"
    flood 300 1400
    sleep 0.2 # iRED drops all but the scalable packets on departure: they take 0.4 s
    show tbf
    sleep 5
    show tbf drained
    tc qdisc del dev v0 root
    tc qdisc add dev v0 root handle 1: hfsc default 1
    tc class add dev v0 parent 1: classid 1:1 hfsc sc rate 2mbit ul rate 2mbit
    tc qdisc add dev v0 parent 1:1 handle 10: "$kind"
    flood 300 1400
    sleep 0.2
    show hfsc
    sleep 5
    show hfsc drained
    tc qdisc del dev v0 root

    # extreme parameters: on departure the last packets may be dropped, too, and the parent gets none
    for extreme in $(cat "extreme.$kind"); do
        file=$parameters/${extreme%%=*}
        echo "$file $(cat "$file")" >>/mnt/before
        echo "${extreme#*=}" >"$file"
    done
    htb 1mbit
    tc qdisc add dev v0 parent 1:1 handle 10: "$kind"
    for i in 1 2 3 4 5; do
        flood 40 1000
        sleep 1
    done
    show extreme
    tc qdisc del dev v0 root
    while read -r file value; do echo "$value" >"$file"; done </mnt/before
    rm /mnt/before

    htb 20mbit
    tc qdisc add dev v0 parent 1:1 handle 10: "$kind"
    timeout 100 python3 /mnt/tcp.py 5000000
    show tcp
    tc qdisc del dev v0 root
done
dmesg >dmesg
sync
echo o >/proc/sysrq-trigger
sleep 60
