"""Selection of flows to monitor: those requested, and the heaviest of the others."""

from __future__ import annotations

from collections.abc import Iterable

from .collector import FlowKey

__all__ = ["FlowSelection"]


class FlowSelection:
    """Decides repeatedly which flows to monitor.

    Parameters
    ----------
    flows : iterable of FlowKey
        Flows to monitor always.
    heavy : int
        Maximum number of other flows to monitor.
    idle_s : float
        A heavy flow is dropped after being silent for this long, or if all places are taken and another one sent more
        than twice as much.
    """

    def __init__(self, flows: Iterable[FlowKey] = (), heavy: int = 16, idle_s: float = 5.0) -> None:
        self._requested = list(dict.fromkeys(flows))
        self._heavy = heavy
        self._idle_s = idle_s
        self._last_seen: dict[FlowKey, float] = {}  # heavy flows only

    def first(self) -> list[FlowKey]:
        """Flows to monitor from the beginning."""
        return self._requested

    def note_packet(self, key: FlowKey, now_s: float) -> None:
        """Note that a flow sent something."""
        if key in self._last_seen:
            self._last_seen[key] = now_s

    def update(
        self, candidates: Iterable[tuple[FlowKey, int]], now_s: float
    ) -> tuple[list[FlowKey], list[FlowKey]]:
        """Flows to add and to remove, given the recent bytes of flows; no flow is in both lists."""
        sent = dict(candidates)
        for key in sent:
            self.note_packet(key, now_s)
        gone = [key for key, last_seen_s in self._last_seen.items() if now_s - last_seen_s > self._idle_s]
        for key in gone:
            del self._last_seen[key]
        new = [key for key in sent if key not in self._last_seen and key not in self._requested]
        new.sort(key=lambda key: -sent[key])
        added = []
        for key in new:
            if len(self._last_seen) >= self._heavy:
                if not self._heavy:
                    break
                lightest = min(self._last_seen, key=lambda one: sent.get(one, 0))
                if sent[key] <= 2 * sent.get(lightest, 0):
                    break
                del self._last_seen[lightest]
                gone.append(lightest)
            self._last_seen[key] = now_s
            added.append(key)
        return added, gone
