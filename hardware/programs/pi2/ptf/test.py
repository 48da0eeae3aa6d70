"""PI2's data plane on a Tofino or on its model, with real packets: for the SDE's ``run_p4_tests.sh``.

::

    $SDE/run_p4_tests.sh -p pi2 -t $PWD/hardware/programs/pi2/ptf

The program runs on the switch (``hardware/README.md`` says how), and no control plane of it. Only what the SDE
brings is needed. Packets go into the first of PTF's ports and come out at the second. Nothing else may send there,
because the switch counts it: IPv6 is off on the test machine's interfaces (``veth_setup.sh`` does it for the model).
"""

import math
import struct

import bfrt_grpc.client as gc
import ptf.testutils as testutils
from bfruntime_client_base_tests import BfRuntimeTest
from ptf import config

PROGRAM = "pi2"
#: Probability 1; the draws have this many values (RANDOM_BITS in ../constants.p4).
ONE = 1 << 16
NOT_ECT, ECT_1, ECT_0, CE = range(4)
#: No packet takes longer, not even through a model that writes logs.
WAIT_S = 2.0
#: PTF keeps at most 100 waiting packets per port.
BATCH = 50
ALL_PIPES = 0xFFFF


def checksum(header):
    """The Internet checksum of RFC 1071."""
    total = sum(int.from_bytes(header[i : i + 2], "big") for i in range(0, len(header), 2))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def frame(version, ecn):
    """A UDP packet in 100 bytes of Ethernet, with this ECN field and, in IPv4, the checksum that belongs to it."""
    ethernet = b"\2\0\0\0\0\1\2\0\0\0\0\2"
    if version == 6:
        payload = 100 - 14 - 40
        header = (
            struct.pack("!IHBB", 6 << 28 | ecn << 20, payload, 17, 64) + bytes(15) + b"\1" + bytes(15) + b"\2"
        )
        ethernet += b"\x86\xdd"
    else:
        payload = 100 - 14 - 20
        header = struct.pack("!BBHHHBBH", 0x45, ecn, 20 + payload, 1, 0, 64, 17, 0) + b"\n\1\0\1\n\2\0\1"
        header = header[:10] + struct.pack("!H", checksum(header)) + header[12:]
        ethernet += b"\x08\x00"
    return ethernet + header + struct.pack("!HHHH", 1024, 5001, payload, 0) + bytes(payload - 8)


def share(ecn, root, coupled):
    """Share of packets to be signalled: p'^2 of classic ones, k p' of scalable ones (RFC 9331: ECT(1) and CE)."""
    return coupled / ONE if ecn in (ECT_1, CE) else (root / ONE) ** 2


class Pi2(BfRuntimeTest):
    """Two wired ports, and empty counters."""

    def setUp(self):
        BfRuntimeTest.setUp(self, 0, PROGRAM)
        self.before, self.behind = [port for _, port, _ in config["interfaces"]][:2]
        info = self.interface.bfrt_info_get(PROGRAM)
        self.target = gc.Target(device_id=0, pipe_id=ALL_PIPES)
        self.wire = info.table_get("Pi2Ingress.wire")
        self.probabilities = info.table_get("Pi2Egress.pi2.probabilities")
        self.delays = info.table_get("Pi2Egress.pi2.last_delay_ns")
        self.signals = info.table_get("Pi2Egress.signals")
        self.clear()
        self.put(self.wire, self.before, "send", port=self.behind)
        for register in (self.delays, self.signals):
            fields = [gc.DataTuple(name, 0) for name in self.fields(register)]
            register.entry_add(self.target, [self.cell(register)], [register.make_data(fields)])

    def tearDown(self):
        self.clear()
        BfRuntimeTest.tearDown(self)

    def clear(self):
        """Delete the entries, but not the default actions."""
        for table in (self.wire, self.probabilities):
            keys = [entry[1] for entry in table.entry_get(self.target, None, {"from_hw": False})]
            if keys:
                table.entry_del(self.target, keys)

    def put(self, table, at_port, action, **data):
        """Set a port's action."""
        (name,) = [n for n in table.info.action_name_list_get() if n.split(".")[-1] == action]
        keys = [table.make_key([gc.KeyTuple("port", at_port)])]
        made = [table.make_data([gc.DataTuple(field, value) for field, value in data.items()], name)]
        table.entry_add(self.target, keys, made)

    def set_probabilities(self, root, coupled):
        """p' and k p' of the port behind the queue."""
        keys = [e[1] for e in self.probabilities.entry_get(self.target, None, {"from_hw": False})]
        if keys:
            self.probabilities.entry_del(self.target, keys)
        self.put(self.probabilities, self.behind, "set_probabilities", root=root, coupled=coupled)

    def fields(self, register):
        return [name for name in register.info.data_field_name_list_get() if not name.startswith("$")]

    def cell(self, register):
        return register.make_key([gc.KeyTuple("$REGISTER_INDEX", self.behind)])

    def read(self, register):
        """The port's cell by the last part of the fields' names, added up over all pipes: only one is in use."""
        answer = next(register.entry_get(self.target, [self.cell(register)], {"from_hw": True}))
        data = answer[0].to_dict()
        return {name.split(".")[-1]: sum(data[name]) for name in self.fields(register)}

    def out(self, sent, count=1):
        """What comes out when a frame is sent so often."""
        frames = []
        for first in range(0, count, BATCH):
            waiting = min(BATCH, count - first)
            for _ in range(waiting):
                testutils.send_packet(self, self.before, sent)
            while waiting:
                answer = testutils.dp_poll(self, 0, self.behind, WAIT_S)
                if not isinstance(answer, self.dataplane.PollSuccess):
                    break
                received = bytes(answer.packet)[: len(sent)]
                if received[:12] == sent[:12]:  # not one that the test machine's kernel sent
                    frames.append(received)
                    waiting -= 1
        return frames


class WireTest(Pi2):
    """Without a probability, packets pass unchanged; without a wire, none does."""

    def runTest(self):
        for version in (4, 6):
            for ecn in range(4):
                self.assertEqual(self.out(frame(version, ecn)), [frame(version, ecn)])
        self.assertEqual(self.read(self.signals), {"marked": 0, "dropped": 0})
        self.clear()
        self.assertEqual(self.out(frame(4, ECT_0)), [])


class SignalTest(Pi2):
    """With probability 1, each packet with ECT is marked, with a right checksum, and each other one dropped."""

    def runTest(self):
        self.set_probabilities(ONE, ONE)
        for version in (4, 6):
            for ecn in range(4):
                expected = [] if ecn == NOT_ECT else [frame(version, CE)]
                self.assertEqual(self.out(frame(version, ecn)), expected)
        self.assertEqual(self.read(self.signals), {"marked": 6, "dropped": 2})


class KindTest(Pi2):
    """p' belongs to classic packets, k p' to scalable ones."""

    def runTest(self):
        for root, coupled, signalled in ((0, ONE, (ECT_1, CE)), (ONE, 0, (NOT_ECT, ECT_0))):
            self.set_probabilities(root, coupled)
            for ecn in range(4):
                before = sum(self.read(self.signals).values())
                self.out(frame(4, ecn))
                after = sum(self.read(self.signals).values())
                self.assertEqual(after - before, int(ecn in signalled))


class ShareTest(Pi2):
    """In between, packets that are signalled are those that are counted; and on a chip, their share is p'^2 or k p'.

    The model makes its random numbers from its clock, so there only the former is compared.
    """

    packets = 400

    def runTest(self):
        root, coupled = ONE // 2, 3 * ONE // 4
        self.set_probabilities(root, coupled)
        for ecn in range(4):
            before = self.read(self.signals)
            frames = self.out(frame(4, ecn), self.packets)
            signals = {name: count - before[name] for name, count in self.read(self.signals).items()}
            marked = frames.count(frame(4, CE))
            if ecn == CE:
                marked = signals["marked"]  # which cannot be seen
            else:
                self.assertEqual(len(frames), marked + frames.count(frame(4, ecn)))
            dropped = self.packets - len(frames)
            self.assertEqual(signals, {"marked": marked, "dropped": dropped})
            self.assertFalse(marked if ecn == NOT_ECT else dropped)
            if testutils.test_param_get("target") == "hw":
                p = share(ecn, root, coupled)
                # five standard deviations of the binomial distribution
                most = 5 * math.sqrt(self.packets * p * (1 - p))
                self.assertLess(abs(marked + dropped - self.packets * p), most)


class DelayTest(Pi2):
    """The delay of the last packet stays until it is reset. (The model's queue has no delays, so it may be 0 there.)"""

    def runTest(self):
        self.assertEqual(self.read(self.delays), {"f1": 0})
        self.out(frame(4, ECT_0))
        delay_ns = self.read(self.delays)["f1"]
        if testutils.test_param_get("target") == "hw":
            self.assertTrue(0 < delay_ns < 1000000000)
        self.assertEqual(self.read(self.delays)["f1"], delay_ns)
