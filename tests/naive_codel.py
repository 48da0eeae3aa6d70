"""CoDel word for word from RFC 8289, section 5, on a list of packets; slow and obvious."""

from __future__ import annotations

import math


class NaiveCoDel:
    """`dequeue_time` of each packet is given: what is asked is which of them are dropped."""

    def __init__(self, target_ns, interval_ns, mtu):
        self.target, self.interval, self.mtu = target_ns, interval_ns, mtu
        self.first_above_time = 0
        self.drop_next = 0
        self.count = 0
        self.lastcount = 0
        self.dropping = False

    def control_law(self, t, count):
        return t + int(self.interval / math.sqrt(count))

    def dodequeue(self, packet, now):
        """Of section 5.4; `packet` is (sojourn_ns, bytes left behind it)."""
        ok_to_drop = False
        sojourn, left = packet
        if sojourn < self.target or left <= self.mtu:
            self.first_above_time = 0
        elif self.first_above_time == 0:
            self.first_above_time = now + self.interval
        elif now >= self.first_above_time:
            ok_to_drop = True
        return ok_to_drop

    def deque(self, fetch, now):
        """Of section 5.5: `fetch` gives the next packet; returns how many were dropped before the one that leaves."""
        drops = 0
        ok_to_drop = self.dodequeue(fetch(), now)
        if self.dropping:
            if not ok_to_drop:
                self.dropping = False
            while now >= self.drop_next and self.dropping:
                drops += 1
                self.count += 1
                ok_to_drop = self.dodequeue(fetch(), now)
                if not ok_to_drop:
                    self.dropping = False
                else:
                    self.drop_next = self.control_law(self.drop_next, self.count)
        elif ok_to_drop:
            drops += 1
            ok_to_drop = self.dodequeue(fetch(), now)
            self.dropping = True
            delta = self.count - self.lastcount
            self.count = 1
            if delta > 1 and now - self.drop_next < 16 * self.interval:
                self.count = delta
            self.drop_next = self.control_law(now, self.count)
            self.lastcount = self.count
        return drops
