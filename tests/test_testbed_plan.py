"""What a testbed is told to set up: plain data, checked without running anything."""

from __future__ import annotations

import itertools
import json
import pickle
import re
import struct
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import cctoolkit as cct
from cctoolkit import aqm
from cctoolkit.cca import Cca
from cctoolkit.errors import ParameterError
from cctoolkit.sim.taps import flow_keys
from cctoolkit.testbed import TestbedError, modules
from cctoolkit.testbed.iperf3 import iperf3_results
from cctoolkit.testbed.netlink import needs_netlink, qdisc_messages
from cctoolkit.testbed.plan import ModuleParameter, TapSettings, make_plan
from cctoolkit.testbed.qdisc import QdiscTree
from cctoolkit.testbed.traffic import TrafficResults


def scenario(*flows: cct.Flow, **bottleneck: object) -> cct.Scenario:
    link = {"rate_mbps": 100, "buffer_packets": 500} | bottleneck
    return cct.Scenario(
        bottleneck=cct.Bottleneck(**link), flows=flows or (cct.Flow("reno", rtt_ms=70),), duration_s=10
    )


def netem(lines: list[str]) -> dict[str, float]:
    """Delay in milliseconds by device."""
    found = {}
    for line in lines:
        match = re.search(r"dev (\w+) root netem limit \d+ delay ([\d.]+)us", line)
        if match:
            found[match[1]] = float(match[2]) / 1e3
    return found


def test_delays_add_up_to_the_round_trip_on_each_side_of_the_queue():
    plan = make_plan(scenario(cct.Flow("reno", rtt_ms=70, access_ms=10)))
    before = {**netem(plan.hosts["S0"].tc), **netem(plan.hosts["A"].tc)}
    behind = {**netem(plan.hosts["B"].tc), **netem(plan.hosts["D0"].tc)}
    assert before == {"s0": 10.0, "a0": 10.0}
    assert behind == {"b0": 25.0, "d0": 25.0}
    assert sum(before.values()) + sum(behind.values()) == 70
    assert netem(plan.hosts["R"].tc) == {}


def test_a_shared_netem_delays_by_the_whole_round_trip_on_the_way_back():
    flows = [cct.Flow("reno", rtt_ms=70, access_mbps=100), cct.Flow("cubic", rtt_ms=70)]
    plan = make_plan(scenario(*flows), ack_limit=123)
    assert [name for name, host in plan.hosts.items() if netem(host.tc)] == ["B"]
    assert plan.hosts["B"].tc == ["qdisc add dev br root netem limit 123 delay 70000.000us"]
    assert any("htb" in line for line in plan.hosts["S0"].tc)
    for other in (cct.Flow("reno", rtt_ms=71), cct.Flow("reno", rtt_ms=70, loss=0.1)):
        with pytest.raises(ParameterError, match="ack_limit: requires flows with the same rtt_ms"):
            make_plan(scenario(flows[0], other), ack_limit=123)


def test_flows_that_travel_alike_share_hosts():
    flows = [cct.Flow("reno", rtt_ms=20), cct.Flow("cubic", rtt_ms=20), cct.Flow("bbr", rtt_ms=40)]
    plan = make_plan(scenario(*flows, cct.Flow("udp", rtt_ms=20, rate_mbps=1)))
    assert plan.group_of == [0, 0, 1, 0]
    assert [name for name in plan.hosts if name[0] in "SD"] == ["S0", "D0", "S1", "D1"]
    assert plan.flows[3].source_netns == "/run/netns/S0"
    own_links = make_plan(scenario(cct.Flow("reno", access_mbps=50, count=2)))
    assert own_links.group_of == [0, 1]


def test_addresses_are_those_of_the_simulator():
    spec = scenario(cct.Flow("reno", count=300), cct.Flow("udp", rate_mbps=1))
    plan = make_plan(spec)
    keys = flow_keys(spec.flow_list(), np.arange(301))
    assert [f.source_address for f in plan.flows] == list(keys.src_text())
    assert [f.sink_address for f in plan.flows] == list(keys.dst_text())
    assert [f.source_port for f in plan.flows] == keys.sport.tolist()
    assert len({f.source_address for f in plan.flows}) == 301


def test_every_device_is_configured_where_it_is():
    plan = make_plan(scenario(cct.Flow("reno", rtt_ms=20), cct.Flow("reno", rtt_ms=30)))
    for link in plan.links:
        for host, device in ((link.host, link.device), (link.peer_host, link.peer_device)):
            assert sum(f"link set dev {device} " in line for line in plan.hosts[host].ip) == 1
    assert {name for x in plan.links for name in (x.host, x.peer_host)} == set(plan.hosts)


def test_names_begin_with_the_prefix_everywhere():
    plan = make_plan(scenario(), prefix="xyz")
    lines = plan.link_lines()
    assert "netns add xyzR" in lines
    assert all(name.startswith("xyz") for name in re.findall(r"netns (?:add )?(\w+)", "\n".join(lines)))
    assert plan.flows[0].source_netns == "/run/netns/xyzS0"
    assert "netns=/run/netns/xyzR device=rb" in plan.traffic_text(TapSettings(), "/c", ["tc"])


def test_nothing_of_a_users_text_reaches_a_command():
    spec = cct.Scenario(
        bottleneck=cct.Bottleneck(rate_mbps=10, buffer_packets=10),
        flows=[cct.Flow("reno", name="$(reboot); `x`\n")],
        duration_s=1,
        name="'; rm -rf / #",
    )
    plan = make_plan(spec)
    texts = plan.link_lines() + [x for h in plan.hosts.values() for x in (*h.ip, *h.tc)]
    assert not re.search(
        r"[$`;'#\n]", "".join(texts) + plan.traffic_text(TapSettings(), "/c", ["tc"]).replace("\n", "")
    )


def test_jitter_and_loss_are_behind_the_queue_and_in_order():
    plan = make_plan(scenario(cct.Flow("reno", rtt_ms=20, jitter_ms=4, loss=0.01)))
    (line,) = plan.hosts["B"].tc
    # netem: uniform from delay - jitter to delay + jitter, here 10 to 14 ms
    assert "delay 12000.000us 2000.000us rate 1000gbit loss random 1.0000000%" in line
    assert netem(plan.hosts["D0"].tc) == {"d0": 10.0}


def test_the_senders_own_link_holds_packets_back_before_the_access_delay():
    plan = make_plan(scenario(cct.Flow("reno", rtt_ms=20, access_ms=2, access_mbps=40)))
    sender = "\n".join(plan.hosts["S0"].tc)
    assert "htb rate 40000000bit ceil 40000000bit" in sender
    assert "netem" not in sender  # it would take packets out of the sight of the sender's TCP
    assert netem(plan.hosts["A"].tc) == {"i0": 2.0, "a0": 2.0}
    assert "mirred egress redirect dev i0" in "\n".join(plan.hosts["A"].tc)


def test_routes_carry_what_belongs_to_a_connection():
    flow = cct.Flow("reno", ecn=True, initial_window=30, min_rto_ms=50, delayed_ack=1, max_window=100)
    plan = make_plan(scenario(flow))
    (there,) = [x for x in plan.hosts["S0"].ip if x.startswith("route")]
    (back,) = [x for x in plan.hosts["D0"].ip if x.startswith("route")]
    assert there == "route add 10.2.0.1/32 dev s0 src 10.1.0.1 initcwnd 30 rto_min 50ms features ecn"
    assert back == "route add 10.1.0.1/32 dev d0 src 10.2.0.1 initrwnd 30 quickack 1"
    assert plan.flows[0].max_window_bytes == 100 * 1448
    plain = make_plan(scenario())
    assert [x for x in plain.hosts["S0"].ip if x.startswith("route")] == [
        "route add 10.2.0.1/32 dev s0 src 10.1.0.1"
    ]
    assert plain.flows[0].max_window_bytes is None


def test_traffic_takes_the_flows_times_and_rates():
    flow = cct.Flow(
        "udp",
        rate_mbps=2.5,
        start_s=1.5,
        stop_s=3,
        on_s=0.1,
        off_s=0.2,
        arrivals="poisson",
        packet_bytes=542,
        ecn="l4s",
    )
    (spec,) = make_plan(scenario(flow)).flows
    assert (spec.start_ns, spec.stop_ns, spec.rate_bps) == (1_500_000_000, 3_000_000_000, 2.5e6)
    assert (spec.on_ns, spec.off_ns, spec.arrivals, spec.payload_bytes) == (10**8, 2 * 10**8, "poisson", 500)
    assert spec.tos == 1  # ECT(1)


def test_the_rate_changes_on_schedule():
    plan = make_plan(scenario(rate_schedule=[(1.5, 50), (3, 80)]))
    assert [at for at, _ in plan.changes] == [1_500_000_000, 3_000_000_000]
    assert "class change dev rb parent 1: classid 1:1 htb rate 50000000bit" in plan.changes[0][1][0]


def test_a_shaper_may_send_ahead_a_frame_where_timers_are_late():
    (_, exact, _), (_, late, _) = (
        QdiscTree(scenario().bottleneck, virtual=virtual).setup() for virtual in (True, False)
    )
    assert "burst 62 " in exact and "burst 1516 " in late


# ---- queue disciplines -----------------------------------------------------------------------------------------------

KINDS = {
    "tail_drop": ("pfifo limit 500", {}),
    "bytes": ("bfifo limit 60000", {"buffer_packets": None, "buffer_bytes": 60000}),
    "codel": ("codel limit 500 target 5000us interval 100000us ecn", {"aqm": aqm.CoDel()}),
    "codel_linux": (
        "codel limit 500 target 7000us interval 90000us ecn",
        {"aqm": aqm.LinuxCoDel(target_ms=7, interval_ms=90)},
    ),
    "fq_codel": (
        "fq_codel limit 500 target 5000us interval 100000us ecn ce_threshold 1000us flows 64 quantum 300 "
        "memory_limit 1gb",
        {"aqm": aqm.FqCoDel(ce_threshold_ms=1), "fq_queues": 64, "quantum_bytes": 300},
    ),
    "pie": ("pie limit 500 target 15000us tupdate 15000us alpha 2 beta 20 ecn", {"aqm": aqm.Pie()}),
    "fq_pie": (
        "fq_pie limit 500 target 15000us tupdate 15000us alpha 2 beta 20 ecn flows 1024 quantum 1514 memory_limit 1gb",
        {"aqm": aqm.Pie(), "scheduler": "fq"},
    ),
    "fq": ("fq limit 500 flow_limit 500", {"aqm": "fq"}),
    "sfq": ("sfq limit 500 perturb 0", {"aqm": "sfq"}),
    "sfb": ("sfb limit 500 target 20 max 25", {"aqm": "sfb"}),
    "cake": (
        "cake unlimited rtt 100000us memlimit 90000",
        {"aqm": "cake", "buffer_packets": None, "buffer_bytes": 90000},
    ),
    "choke": (
        "choke limit 500 bandwidth 1gbit min 30 max 90 probability 0.020000000 ecn",
        {"aqm": "choke"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", KINDS)
def test_algorithms_become_queue_disciplines(name):
    words, bottleneck = KINDS[name]
    *_, line = QdiscTree(scenario(**bottleneck).bottleneck).setup()
    assert line.endswith(f"handle 10: {words}")


def test_red_gets_its_weight_from_the_burst_and_its_room_from_a_child():
    *_, red, child = QdiscTree(scenario(aqm=aqm.Red(gentle=False)).bottleneck).setup()
    assert child == "qdisc add dev rb parent 10:1 handle 8010: pfifo limit 500"
    words = red.split()
    value = dict(itertools.pairwise(words))
    assert (value["min"], value["max"], value["avpkt"]) == (str(5 * 1514), str(15 * 1514), "1514")
    # tc takes the first weight 2**-n with burst + 1 - min/avpkt <= (1 - (1 - w)**burst) / w
    burst = int(value["burst"])
    w = 0.5
    while burst + 1 - 5 > (1 - (1 - w) ** burst) / w:
        w /= 2
    assert w == 2**-9  # nearest to 0.002


def test_red_alone_is_below_a_shaper_that_asks_an_empty_queue():
    first, *_ = QdiscTree(scenario(aqm=aqm.Red(gentle=False)).bottleneck).setup()
    assert " root handle 1: cbs " in first and first.endswith("sendslope -9900000 idleslope 100000")
    first, *_ = QdiscTree(scenario(aqm=aqm.CoDel()).bottleneck).setup()
    assert " htb " in first


def test_several_queues_are_classes_that_flows_are_sent_to():
    spec = scenario(
        cct.Flow("reno"),
        cct.Flow("reno", queue=1),
        queues=[cct.Queue(weight=2), cct.Queue(buffer_packets=50, aqm="codel")],
    )
    lines = make_plan(spec).hosts["R"].tc
    assert "qdisc add dev rb parent 1:1 handle 2: drr" in lines
    assert "class add dev rb parent 2: classid 2:1 drr quantum 3028" in lines
    assert (
        "qdisc add dev rb parent 2:2 handle 11: codel limit 50 target 5000us interval 100000us ecn" in lines
    )
    assert [x.split("flower ")[1] for x in lines if "flower" in x] == [
        "src_ip 10.1.0.1/32 classid 2:1",
        "src_ip 10.1.0.2/32 classid 2:2",
    ]


def test_queues_with_a_rate_of_their_own_are_classes_of_the_shaper():
    queues = [cct.Queue(max_rate_mbps=10), cct.Queue(weight=3)]
    tree = QdiscTree(scenario(cct.Flow("reno", queue=1), queues=queues).bottleneck)
    text = "\n".join(tree.setup())
    assert "classid 1:10 htb rate 10000000bit ceil 10000000bit" in text
    assert "classid 1:11 htb rate 75000000bit ceil 100000000bit" in text
    # their guarantees follow the link's rate and the weights
    assert "classid 1:11 htb rate 37500000bit ceil 50000000bit" in "\n".join(tree.set_rate(50))
    assert "classid 1:11 htb rate 50000000bit" in "\n".join(tree.set_weight(1, [1, 1], 100))


def test_priorities():
    queues = [cct.Queue(), cct.Queue()]
    text = "\n".join(QdiscTree(scenario(queues=queues, scheduler="priority").bottleneck).setup())
    assert "handle 2: prio bands 2 priomap" in text and "parent 2:2 handle 11: pfifo limit 500" in text


def test_changes_of_queues():
    tree = QdiscTree(scenario(queues=[cct.Queue(), cct.Queue(aqm="codel")]).bottleneck)
    assert tree.set_weight(1, [1, 2.5], 100) == ["class change dev rb parent 2: classid 2:2 drr quantum 3785"]
    assert tree.set_buffer(0, 20, None) == ["qdisc change dev rb parent 2:1 handle 10: pfifo limit 20"]
    assert tree.set_buffer(0, None, None) == []
    with pytest.raises(ParameterError, match="between packets and bytes"):
        tree.set_buffer(0, None, 3000)
    with pytest.raises(ParameterError, match="dualpi2"):
        QdiscTree(scenario(aqm=aqm.DualPi2()).bottleneck).set_buffer(0, 10, None)


def test_dualpi2_as_the_kernel_reads_it():
    lines = QdiscTree(scenario(aqm=aqm.DualPi2(target_ms=10, alpha=0.25, step_ms=2)).bottleneck).setup()
    assert [needs_netlink(line) for line in lines] == [False, False, True]
    message = qdisc_messages(lines[2:])
    length, kind, flags, _, _ = struct.unpack_from("<IHHII", message)
    assert (length, kind, flags) == (len(message), 36, 0x600)
    assert struct.unpack_from("<II", message, 24) == (0x100000, 0x10001)
    attributes = {}
    at = 36
    while at < length:
        size, number = struct.unpack_from("<HH", message, at)
        attributes[number & 0x7FFF] = message[at + 4 : at + size]
        at += (size + 3) & ~3
    assert attributes[1] == b"dualpi2\0"
    options, at = {}, 0
    while at < len(attributes[2]):
        size, number = struct.unpack_from("<HH", attributes[2], at)
        options[number] = int.from_bytes(attributes[2][at + 4 : at + size], "little")
        at += (size + 3) & ~3
    assert options == {1: 500, 2: 2**30, 3: 10_000, 4: 16_000, 5: 64, 6: 819, 8: 2000, 9: 1, 10: 2}


def test_low_latency_flows_are_distinguished_by_ect_alone():
    flows = [cct.Flow("dctcp", ecn="l4s"), cct.Flow("cubic")]
    line = make_plan(scenario(*flows, aqm="dualpi2")).hosts["R"].tc[-1]
    assert line.endswith(" any_ect")
    mask = struct.pack("<HHI", 5, 14, 3)  # TCA_DUALPI2_ECN_MASK: any ECT
    assert mask in qdisc_messages([line])
    assert not make_plan(scenario(aqm="dualpi2")).hosts["R"].tc[-1].endswith("any_ect")
    with pytest.raises(ParameterError, match="cannot tell it from"):
        make_plan(scenario(*flows, cct.Flow("reno", ecn=True), aqm="dualpi2"))


def test_prague_is_distinguished_by_ect_1():
    flows = [cct.Flow("prague"), cct.Flow("cubic", ecn=True), cct.Flow("reno", ecn="accurate")]
    plan = make_plan(scenario(*flows, aqm="dualpi2"))
    assert not plan.hosts["R"].tc[-1].endswith("any_ect")
    # a setting of its hosts, which it shares with flows that negotiate the same
    accurate = [plan.hosts[f"S{g}"].sysctls.get("net/ipv4/tcp_ecn") for g in plan.group_of]
    assert accurate == ["3", None, "3"]
    assert plan.group_of[0] == plan.group_of[2] != plan.group_of[1]
    assert make_plan(scenario(cct.Flow("prague"), aqm="codel")).flows[0].cca == "prague"
    with pytest.raises(ParameterError, match="'classic', but prague in Linux supports only 'l4s'"):
        make_plan(scenario(cct.Flow("prague", ecn="classic")))
    # DCTCP in place of Prague beside Prague: the low-latency queue takes both
    both = make_plan(scenario(cct.Flow("prague"), cct.Flow("dctcp", ecn="l4s"), aqm="dualpi2"))
    assert both.hosts["R"].tc[-1].endswith("any_ect")


# ---- what Linux does not have ----------------------------------------------------------------------------------------


class Mine(aqm.Aqm):
    """Drops nothing."""

    @staticmethod
    def on_enqueue(p, s, stats, queue, packet, now_ns):
        return 0


REFUSED = [
    ({"aqm": aqm.Csfq()}, "bottleneck.aqm: Linux has no csfq; it has .*codel.*red"),
    ({"aqm": Mine()}, "Linux has no mine"),
    ({"aqm": aqm.P4CoDel()}, "Linux has no "),
    ({"aqm": aqm.Red()}, "aqm.gentle: true"),
    ({"aqm": aqm.Pie(alpha=0.1)}, "aqm.alpha: 0.1, but pie in Linux supports multiples of 1/16"),
    ({"aqm": aqm.Pie(burst_ms=100)}, "aqm.burst_ms: 100.0, but pie in Linux has 150.0"),
    ({"aqm": aqm.CoDel(mtu_bytes=9000)}, "aqm.mtu_bytes"),
    ({"aqm": aqm.CoDel(), "buffer_packets": None, "buffer_bytes": 10**6}, "codel in Linux is limited in packets"),
    ({"aqm": "cake"}, "cake in Linux is limited in bytes"),
    ({"buffer_bytes": 10**6}, "not in both"),
    ({"scheduler": "fq"}, "Linux supports fq with codel"),
    ({"scheduler": "dual_wrr"}, "dual_wrr only for dualpi2"),
    ({"aqm": aqm.DualPi2(), "scheduler": "dual_ts"}, "not dual_ts"),
    ({"aqm": aqm.DualPi2(coupling=1.5)}, "aqm.coupling: 1.5"),
    ({"aqm": aqm.Red(gentle=False), "rate_mbps": 10_000}, "only rates below 10000"),
    ({"queues": [cct.Queue(max_rate_mbps=3)]}, "set rate_mbps"),
]  # fmt: skip


@pytest.mark.parametrize(("bottleneck", "words"), REFUSED)
def test_bottlenecks_that_linux_does_not_have(bottleneck, words):
    with pytest.raises(ParameterError, match=words):
        make_plan(scenario(**bottleneck))


FLOWS_REFUSED = [
    (cct.Flow("bbr2"), r"flows\[1\].cca: Linux has no 'bbr2'; it has .*bbr, .*yeah"),
    (cct.Flow(cct.cca.Bbr3(down_gain=0.8)), r"flows\[1\].cca.down_gain: 0.8, but bbr3 in Linux has 0.90625"),
    (cct.Flow(cct.cca.Cubic(beta=0.5)), r"flows\[1\].cca.beta: 0.5, but cubic in Linux has 0.7"),
    (cct.Flow("dctcp", ecn="off"), "dctcp in Linux supports only 'accurate'"),
    (cct.Flow("reno", ecn="l4s"), "only for prague, and for dctcp with dualpi2"),
    (cct.Flow("dctcp", ecn="l4s"), "only for prague, and for dctcp with dualpi2"),
    (cct.Flow("reno", quick_acks=2), "quick_acks: 2"),
]


@pytest.mark.parametrize(("flow", "words"), FLOWS_REFUSED)
def test_flows_that_linux_does_not_have(flow, words):
    with pytest.raises(ParameterError, match=words):
        make_plan(scenario(cct.Flow("reno", count=3), flow))


def test_receivers_that_merge_segments():
    """One acknowledgement for up to six: what GRO may merge, on a host of their own."""
    plan = make_plan(
        scenario(cct.Flow("reno"), cct.Flow("reno", delayed_ack=6), cct.Flow("udp", rate_mbps=1))
    )
    assert plan.group_of == [0, 1, 0]
    assert f"link set dev d0 gro_max_size {52 + 6 * 1448 + 1}" in plan.hosts["D1"].ip
    assert plan.hosts["D1"].commands[0] == "ethtool -K d0 gro on"
    assert plan.hosts["B"].commands == ["ethtool -K b1 tso off"]
    assert not plan.hosts["D0"].commands and not any("gro" in line for line in plan.hosts["D0"].ip[1:])
    with pytest.raises(ParameterError, match=r"flows\[0\].delayed_ack: 6, but only backend uml"):
        make_plan(scenario(cct.Flow("reno", delayed_ack=6)), virtual=False)


def test_a_link_that_delivers_in_bursts():
    for both_ways, back in ((False, []), (True, ["qdisc add dev ra root opportunity"])):
        link = aqm.Opportunity(bytes=2000, interval_ms=2.5, both_ways=both_ways)
        plan = make_plan(scenario(aqm=link))
        assert [line for line in plan.hosts["R"].tc if " ra " in line] == back
        assert [(x.owner, x.name, x.value) for x in plan.modules] == [
            ("opportunity", "bytes", "2000"), ("opportunity", "interval_us", "2500"), ("opportunity", "limit", "500"),
        ]  # fmt: skip
    with pytest.raises(ParameterError, match=r"interval_ms: 0\.0005"):
        aqm.Opportunity(interval_ms=0.0005)


def test_a_congestion_control_may_have_linux_s_values_or_its_own():
    for cca in (cct.cca.Bbr3(), cct.cca.Bbr3(**cct.cca.Bbr3.in_linux)):
        assert make_plan(scenario(cct.Flow(cca))).flows[0].cca == "bbr3"


def test_flow_queueing_classifies_by_itself():
    with pytest.raises(ParameterError, match="queue: 0, but fq in Linux classifies packets itself"):
        make_plan(scenario(cct.Flow("reno", queue=0), aqm=aqm.FqCoDel()))


# ---- what only Linux has ---------------------------------------------------------------------------------------------


def test_linux_only_algorithms_go_to_toml_and_back_and_not_to_the_simulator(tmp_path):
    names = [name for name, cls in Cca.registry.items() if cls.linux_only]
    assert {
        "bic",
        "cdg",
        "highspeed",
        "hybla",
        "illinois",
        "lp",
        "nv",
        "scalable",
        "veno",
        "westwood",
        "yeah",
    } == set(names)
    spec = scenario(*(cct.Flow(name) for name in names), aqm={"name": "fq_pie", "target_ms": 20})
    path = tmp_path / "linux.toml"
    path.write_text(spec.to_toml())
    again = cct.read_scenario(path)
    assert again == spec and again.bottleneck.aqm == aqm.FqPie(target_ms=20)
    assert make_plan(again).flows[0].cca == names[0]
    for changes in ({"flows.*.cca": "reno"}, {"bottleneck.aqm": "tail_drop"}):
        with pytest.raises(ParameterError, match="only in the Linux kernel; run the scenario on the testbed"):
            cct.simulate(spec.replace(changes))


# ---- kernel code of the user's own -----------------------------------------------------------------------------------


def test_modules_go_to_toml_and_back_and_into_the_plan(tmp_path):
    own = {"name": "linux:lazy", "target_us": 2000}
    spec = scenario(cct.Flow("reno"), cct.Flow({"name": "linux:mine", "gain": 3, "mode": "slow"}), aqm=own)
    path = tmp_path / "own.toml"
    path.write_text(spec.to_toml())
    again = cct.read_scenario(path)
    assert again == spec == pickle.loads(pickle.dumps(spec))
    plan = make_plan(again)
    assert [flow.cca for flow in plan.flows] == ["reno", "mine"]
    assert plan.hosts["R"].tc[-1] == "qdisc add dev rb parent 1:1 handle 10: lazy"
    assert [(x.kind, x.owner, x.name, x.value, x.needed) for x in plan.modules] == [
        ("sch", "lazy", "target_us", "2000", True),
        ("sch", "lazy", "limit", str(spec.bottleneck.buffer_packets), False),
        ("tcp", "mine", "gain", "3", True),
        ("tcp", "mine", "mode", "slow", True),
    ]
    swept = spec.replace({"bottleneck.aqm.target_us": 7, "flows.1.cca.gain": 4})
    assert swept.bottleneck.aqm.parameters() == {"target_us": 7}
    assert swept.flows[1].cca.parameters() == {"gain": 4, "mode": "slow"}
    for changes in ({"flows.*.cca": "reno"}, {"bottleneck.aqm": "tail_drop"}):
        with pytest.raises(ParameterError, match="only in the Linux kernel; run the scenario on the testbed"):
            cct.simulate(spec.replace(changes))


def test_a_module_has_one_value_for_the_whole_machine():
    queues = [cct.Queue(aqm={"name": "linux:lazy", "target_us": us}) for us in (1000, 2000)]
    link = cct.Bottleneck(rate_mbps=10, buffer_packets=100, queues=queues)
    flows = [cct.Flow("reno", queue=0), cct.Flow("reno", queue=1)]
    with pytest.raises(ParameterError, match="parameters of the kernel's lazy must be the same everywhere"):
        make_plan(cct.Scenario(bottleneck=link, flows=flows, duration_s=1))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("linux:", "must be its name in the kernel"),
        ("linux:a b", "must be its name in the kernel"),
        ({"name": "linux:x", "a-b": 1}, "'a-b' is not a name of a module parameter"),
        ({"name": "linux:x", "a": 0.5}, "KernelModule.a: 0.5 must be a whole number or a word"),
        ({"name": "linux:x", "a": "b\nc"}, "must be a whole number or a word"),
        ("lazy", "bottleneck.aqm: 'lazy' is unknown"),
    ],
)
def test_modules_that_cannot_be(given, message, monkeypatch, tmp_path):
    monkeypatch.setenv("CCTOOLKIT_CACHE", str(tmp_path))
    with pytest.raises(ParameterError, match=message):
        cct.Bottleneck(rate_mbps=10, buffer_packets=100, aqm=given)


def test_the_name_alone_will_do_where_a_built_kernel_has_it(monkeypatch, tmp_path):
    monkeypatch.setenv("CCTOOLKIT_CACHE", str(tmp_path))
    folder = tmp_path / "testbed" / "kernel"
    folder.mkdir(parents=True)
    (folder / "linux-1.json").write_text('{"qdiscs": {"own-q": {"module": "sch_q"}}, "ccas": {"own-c": {}}}')
    for name, text in (("linux-2.json", "{"), ("linux-3.json", "[]"), ("linux-4.json", '{"qdiscs": 3}')):
        (folder / name).write_text(text)
    link = cct.Bottleneck(rate_mbps=10, buffer_packets=100, aqm="own-q")
    assert link.aqm == aqm.KernelModule("own-q") and cct.Flow("own-c").cca.name == "linux:own-c"
    with pytest.raises(ParameterError, match="'own-q' is unknown"):
        cct.Flow("own-q")


def test_parameters_of_the_hosts_modules(monkeypatch, tmp_path):
    monkeypatch.setattr(modules, "_MODULES", tmp_path)
    folder = tmp_path / "sch_lazy" / "parameters"
    folder.mkdir(parents=True)
    (folder / "target_us").write_text("5000\n")
    modules.set_module_parameters(
        [
            ModuleParameter("sch", "lazy", "target_us", "7"),
            ModuleParameter("sch", "lazy", "limit", "9", False),
        ]
    )
    assert (folder / "target_us").read_text() == "7\n" and not (folder / "limit").exists()
    with pytest.raises(ParameterError, match="module sch_lazy has no parameter gain; it has target_us"):
        modules.set_module_parameters([ModuleParameter("sch", "lazy", "gain", "7")])


STREAM = {
    "sender": {"bytes": 3000, "retransmits": 1, "min_rtt": 20_000, "mean_rtt": 30_000}, "receiver": {"bytes": 2900},
}  # fmt: skip
INTERVAL = {
    "end": 0.1, "bytes": 3000, "retransmits": 1, "snd_cwnd": 14_480, "bits_per_second": 1e6, "rtt": 20_000,
    "rttvar": 500,
}  # fmt: skip
REPORT = {"intervals": [{"streams": [INTERVAL]}], "end": {"streams": [STREAM]}}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (json.dumps(REPORT), None),
        (None, "left no report"),
        ("", "left no report"),
        (json.dumps(REPORT)[:100], "left no report"),
        ("[]", "left no report"),
        ('{"error": "unable to connect"}', "iperf3: unable to connect"),
        ("{}", "report is damaged"),
        (json.dumps(REPORT | {"end": {"streams": []}}), "report is damaged"),
        (json.dumps(REPORT | {"intervals": [{"streams": [{"end": 1}]}]}), "report is damaged"),
        (json.dumps(REPORT | {"intervals": 5}), "report is damaged"),
    ],
)
def test_reports_of_iperf3(tmp_path: Path, text: str | None, message: str | None) -> None:
    if text is not None:
        (tmp_path / "iperf3.0").write_text(text)
    plan, nothing = make_plan(scenario()), pd.DataFrame()
    series = pd.DataFrame(columns=["ts_ns", "index", "bytes_sent"])
    sampled = TrafficResults(10**18, 2 * 10**18, nothing, series, nothing)
    if message is None:
        results = iperf3_results(tmp_path, plan, sampled)
        assert results.flows.received_bytes.tolist() == [2900] and results.series.bytes_sent.tolist() == [
            3000
        ]
    else:
        with pytest.raises(TestbedError, match=f"flow 0: .*{message}"):
            iperf3_results(tmp_path, plan, sampled)
