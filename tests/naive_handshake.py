"""The slow, obvious twin of cctoolkit.analysis.handshake: all that passes is kept, and judged at the end."""

from __future__ import annotations

from dataclasses import dataclass, field

FIN, SYN, RST, ACK = 1, 2, 4, 16
MILLISECOND = 10**6
LONGEST = 900 * MILLISECOND


@dataclass(frozen=True)
class Sent:
    """A SYN or SYN/ACK, and the timestamp it echoes."""

    ts: int
    number: int
    tsval: int
    tsecr: int = 0


def newer(a: int, b: int) -> bool:
    return bool(a and b) and 0 < (a - b) % 2**32 < 2**31


def without_copies(sent: list[Sent]) -> list[Sent]:
    kept: list[Sent] = []
    for one in sent:
        copies = (k for k in kept if (k.number, k.tsval) == (one.number, one.tsval))
        if not any(0 <= one.ts - k.ts < MILLISECOND for k in copies):
            kept.append(one)
    return kept


@dataclass
class Opening:
    """A connection from its SYN on."""

    seq: int
    payload: int
    syns: list[Sent] = field(default_factory=list)
    answers: list[Sent] = field(default_factory=list)
    others: bool = False

    @property
    def starts(self) -> set[int]:
        return {(self.seq + 1) % 2**32, (self.seq + 1 + self.payload) % 2**32}

    def syn(self, ts: int, tsval: int) -> None:
        if not self.answers:
            self.syns.append(Sent(ts, self.seq, tsval))

    def other_side(self, ts: int, seq: int, ack: int, flags: int, tsval: int, tsecr: int) -> None:
        if flags & (SYN | ACK | RST) == SYN | ACK and ack in self.starts:
            self.answers.append(Sent(ts, seq, tsval, tsecr))
        elif not self.answers:
            self.others = True

    def ends_with(self, flags: int, seq: int) -> bool:
        return flags & (SYN | ACK | RST) == ACK and seq in self.starts

    def rtt(self, ts: int, ack: int, flags: int, payload: int, tsecr: int) -> int | None:
        """The RTT when the handshake ends; negative if a clock was set back, None if it is not certain."""
        if payload or flags & FIN:
            return None
        syns, answers = without_copies(self.syns), without_copies(self.answers)
        if not answers:
            rtt = ts - syns[0].ts
            return rtt if len(syns) == 1 and not self.others and rtt <= LONGEST else None
        if ack != (answers[-1].number + 1) % 2**32:
            return None
        halves = [
            half(syns, answers[0].ts, answers[0].tsecr),
            half(answers, ts, tsecr),
        ]
        if None in halves:
            return None
        return -1 if min(halves) < 0 else sum(halves)

    def syn_rtt(self) -> int | None:
        """Its half beyond the tap."""
        if not self.answers:
            return None
        answer = without_copies(self.answers)[0]
        return half(without_copies(self.syns), answer.ts, answer.tsecr)


def half(sent: list[Sent], answered: int, echo: int) -> int | None:
    """From the last of some transmissions to its answer, if it is certain that this is its answer."""
    last = sent[-1]
    if echo and last.tsval:
        proven = echo == last.tsval and all(newer(last.tsval, other.tsval) for other in sent[:-1])
    else:
        proven = len(sent) == 1
    took = answered - last.ts
    return took if proven and took <= LONGEST else None
