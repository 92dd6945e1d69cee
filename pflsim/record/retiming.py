"""The times of a recorded synchronous run on other devices and links, worked out without training again.

In synchronous rounds time decides nothing: who works, what is computed and what travels are the same on every device
and link. So the recorded rounds are gone through once more, with the same messages and the same work, over the very
uplinks, downlinks and devices that a run uses.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from typing import NamedTuple

from pflsim.record.database import Reader
from pflsim.record.history import SERVER, Period
from pflsim.timing.fair_share import Flight
from pflsim.timing.links import Links, wire_bytes


class Message(NamedTuple):
    """A message of the method as it was sent."""

    kind: str
    sender: str
    receiver: str
    sequence: int
    header_bytes: int
    payload_bytes: int


class Visit(NamedTuple):
    """One client's work in a round, or what it does to tell its loss: what it was sent, and what it answered."""

    client: str
    number: int  # how many visits it had before
    work: Message
    result: Message

    @property
    def is_probe(self) -> bool:
        """Whether only its loss was wanted."""
        return self.work.kind == "PROBE"


class RecordedRound(NamedTuple):
    """A synchronous round that has ended, its visits in the order in which the server asked for them."""

    period: Period
    probes: tuple[Visit, ...]  # whose losses were asked for first
    visits: tuple[Visit, ...]


def recorded_rounds(reader: Reader) -> list[RecordedRound]:
    """The rounds of a record; ValueError for a message without an answer, as where clients come and go."""
    select = (
        "SELECT round, kind, sender, receiver, sequence, header_bytes, payload_bytes FROM sent "
        "WHERE channel = 'data' ORDER BY sender, sequence"
    )
    asked: defaultdict[int, list[Message]] = defaultdict(list)
    answers: dict[tuple[int, str, str], Message] = {}
    for round_, *message in reader.query(select):
        sent = Message(*message)
        if sent.kind in _ANSWER:
            asked[round_].append(sent)
        else:
            answers[round_, sent.kind, sent.sender] = sent
    visited: Counter[str] = Counter()
    rounds = []
    for row in reader.query("SELECT round, start_ns, end_ns FROM rounds ORDER BY round"):
        period, visits = Period(*row), []
        for work in asked[period.round]:
            result = answers.get((period.round, _ANSWER[work.kind], work.receiver))
            if result is None:
                raise ValueError(f"{work.receiver} did not answer in round {period.round}")
            visits.append(visit := Visit(work.receiver, visited[work.receiver], work, result))
            visited[work.receiver] += not visit.is_probe
        probes = tuple(visit for visit in visits if visit.is_probe)
        rounds.append(RecordedRound(period, probes, tuple(visit for visit in visits if not visit.is_probe)))
    return rounds


_ANSWER = {"WORK": "RESULT", "PROBE": "LOSS"}


class Retiming:
    """Goes through recorded rounds on other devices and links.

    `frames(message)` are the sizes of its tensors' frames, `work_ns(visit, round)` and `server_ns(round)` how long a
    client and the server compute, all for the new devices. `links` must be fresh: nothing has been sent over them.
    """

    def __init__(
        self,
        links: Links,
        frames: Callable[[Message], Sequence[int]],
        work_ns: Callable[[Visit, int], int],
        server_ns: Callable[[RecordedRound], int],
    ) -> None:
        self._links, self._frames, self._work_ns, self._server_ns = links, frames, work_ns, server_ns
        self._first_byte_ns: Counter[tuple[str, str]] = Counter()

    def run(self, rounds: Sequence[RecordedRound]) -> list[Period]:
        """When each round would have begun and ended."""
        periods: list[Period] = []
        now_ns = 0
        for one in rounds:
            start_ns, now_ns = now_ns, self._end_ns(one, now_ns)
            periods.append(Period(one.period.round, start_ns, now_ns))
        return periods

    def _end_ns(self, one: RecordedRound, start_ns: int) -> int:
        now_ns = self._exchange(one.probes, one.period.round, start_ns)
        return self._exchange(one.visits, one.period.round, now_ns) + self._server_ns(one)

    def _exchange(self, visits: Sequence[Visit], round: int, start_ns: int) -> int:
        """When the last answer has come, if the server asks at `start_ns`."""
        downlink, now_ns = self._links.downlink(SERVER), start_ns
        self._send(SERVER, start_ns, [visit.work for visit in visits])
        for visit in visits:
            arrival_ns, _ = self._links.downlink(visit.client).take()
            done_ns = arrival_ns + self._work_ns(visit, round)
            self._send(visit.client, done_ns, [visit.result])
        for _ in visits:
            now_ns, _ = downlink.take()
        return now_ns

    def _send(self, sender: str, now_ns: int, messages: Sequence[Message]) -> None:
        """Put messages that leave at one instant on the way to their receivers' downlinks."""
        if not messages:
            return
        transfers = [
            self._links.transfer(sender, one.receiver, wire_bytes([one.header_bytes, *self._frames(one)]), one.sequence)
            for one in messages
        ]
        for message, flight in zip(messages, self._links.uplink(sender).stamp(now_ns, transfers), strict=True):
            self._links.downlink(message.receiver).add((sender, message.sequence), self._in_order(message, flight))

    def _in_order(self, message: Message, flight: Flight) -> Flight:
        """One connection keeps its messages in order, as a port's departures do."""
        pair = (message.sender, message.receiver)
        self._first_byte_ns[pair] = max(flight.first_byte_ns, self._first_byte_ns[pair])
        return flight._replace(latency_ns=self._first_byte_ns[pair] - flight.departure_ns)
