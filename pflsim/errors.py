"""The few error classes; whose fault it is decides which one."""

from collections.abc import Sequence
from typing import Any


class PflsimError(Exception):
    """Anything that pflsim raises on purpose."""


class DescriptionError(PflsimError):
    """The run description is wrong: `key` has `value`, and `expected` says what would be right."""

    def __init__(self, key: str, value: object, expected: str) -> None:
        self.key, self.value, self.expected = key, value, expected
        is_absent = repr(value) == "None" and expected.startswith("is required")
        super().__init__(f"{key} {expected}" if is_absent else f"{key} = {value!r}: {expected}")


class RunFailed(PflsimError):
    """A run that had started could not be finished: `actor` failed in the way that `reason` tells."""

    def __init__(self, actor: str, reason: str) -> None:
        self.actor, self.reason = actor, reason
        super().__init__(f"{actor}: {reason}")


class TooEarly(PflsimError):
    """What is asked for is not there yet."""


class BadMessage(PflsimError):
    """What arrived is not a message that this run may accept; it is counted and dropped, never used."""

    message: Any = None
    """What could be read of it: the message without its tensors, if its header was sound."""


def few(names: Sequence[str]) -> str:
    """The first five names, and how many more there are."""
    shown = ", ".join(names[:5])
    return f"{shown} and {len(names) - 5} more" if len(names) > 5 else shown
