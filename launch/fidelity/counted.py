"""What the kernel should have counted on the clients' interfaces, by what the record says was sent."""

from pflsim.record.result import Result
from pflsim.timing.links import FRAMING_BYTES, SEGMENT_BYTES, wire_bytes

UNSEEN_BYTES = 24
"""Of each segment's framing: preamble, checksum and silence, which no kernel counts."""
_SIZES = ("payload_bytes", "header_bytes", "control_bytes")


def expected_bytes(result: Result) -> int:
    """The bytes that all clients put on their lines: what they sent, and an acknowledgement for each second segment.

    Left out are what opens connections, what encryption adds to each frame, and the facts for the record.
    """
    sent = acknowledged = 0
    for row in result.rows("messages"):
        if row["sender"] != "server":
            sizes = [row[f"sent_{one}"] for one in _SIZES]
            sent += wire_bytes(sizes) - UNSEEN_BYTES * _segments(sizes)
        else:
            acknowledged += _segments([row[f"received_{one}"] for one in _SIZES])
    return sent + acknowledged // 2 * (FRAMING_BYTES - UNSEEN_BYTES)


def _segments(sizes: list[int]) -> int:
    return -(-sum(sizes) // SEGMENT_BYTES)
