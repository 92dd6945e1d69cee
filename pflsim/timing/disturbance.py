"""What delays a message beyond rate and latency: queues on the way, losses, and the slow start of a connection.

The first two are decided at the sender, message by message, from the seed alone: nothing is kept between messages.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from pflsim.catalogue import validated
from pflsim.errors import DescriptionError
from pflsim.rng import stream
from pflsim.timing.latency import NS_PER_MS, milliseconds

INITIAL_WINDOW_SEGMENTS = 10
"""How many segments a connection sends before the first acknowledgement (RFC 6928)."""


class Delay(NamedTuple):
    """What befell one message: ns of jitter, and how often something of it was lost and sent again."""

    jitter_ns: int
    retransmissions: int


@dataclass(frozen=True)
class Disturbance:
    """What a table of links says of jitter, loss and slow start; nothing, by default.

    jitter_ms: mean of an extra delay per message, exponential, as waiting in a queue on the way is (M/M/1).
    loss: the probability that a message loses a segment, each time that one is sent. How often that happens is
    geometric, with mean loss / (1 - loss), and each time costs `retransmit_ms` (the sender's time-out; Linux waits at
    least 200 ms, RFC 6298 recommends 1 s) and puts one full segment on the wire again.
    slow_start: each message finds the congestion window at its initial size, as after an idle time (RFC 5681, 4.1).
    """

    jitter_ms: float = 0.0
    loss: float = 0.0
    retransmit_ms: float | None = None
    slow_start: bool = False

    @property
    def is_random(self) -> bool:
        return self.jitter_ms > 0 or self.loss > 0

    def delay(self, seed: int, sender: str, receiver: str, sequence: int) -> Delay:
        """What befalls message `sequence` from `sender` to `receiver`."""
        if not self.is_random:
            return Delay(0, 0)
        rng = stream(seed, "links", "message", sender, receiver, sequence)
        jitter_ns = round(rng.standard_exponential() * self.jitter_ms * NS_PER_MS)
        return Delay(jitter_ns, int(rng.geometric(1 - self.loss)) - 1)

    def delay_ns(self, delay: Delay) -> int:
        """How much later than without it a message arrives."""
        return delay.jitter_ns + delay.retransmissions * round((self.retransmit_ms or 0.0) * NS_PER_MS)


NAMES = ("jitter_ms", "loss", "retransmit_ms", "slow_start")


def disturbance(table: Mapping[str, object], key: str) -> Disturbance:
    """What `table` says of jitter, loss and slow start; raises DescriptionError."""
    given = {name: table[name] for name in NAMES if name in table}
    found = Disturbance(**validated(Disturbance, given, key))
    milliseconds(f"{key}.jitter_ms", found.jitter_ms)
    if not 0 <= found.loss <= 0.9:
        raise DescriptionError(f"{key}.loss", found.loss, "must be a probability from 0 to 0.9")
    if found.loss and found.retransmit_ms is None:
        raise DescriptionError(f"{key}.retransmit_ms", None, "is required with loss: after how long it is sent again")
    if found.retransmit_ms is not None:
        milliseconds(f"{key}.retransmit_ms", found.retransmit_ms)
    return found


def slow_start_ns(size_bytes: int, rate: float, round_trip_ns: int, segment_bytes: int) -> int:
    """How many ns longer a message takes because its connection starts slowly; `rate` in bytes/ns.

    The window starts at INITIAL_WINDOW_SEGMENTS and doubles each round trip (RFC 5681). While it is smaller than what
    the line holds in a round trip, the sender waits in each round for round_trip - window / rate; in the round in which
    the message ends it does not. The connection is there already: no handshake.
    """
    window, sent, waited = float(INITIAL_WINDOW_SEGMENTS * segment_bytes), 0.0, 0.0
    while sent + window < size_bytes and window < rate * round_trip_ns:
        waited += round_trip_ns - window / rate
        sent += window
        window *= 2
    return math.ceil(waited)
