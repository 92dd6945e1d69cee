"""The interface of a schedule: what a file in `schedules/` has to offer. A schedule is pure, and knows no actor."""

from typing import Any, Protocol


class Schedule(Protocol):
    """Who works when, and when what they answer is folded in.

    Schedules with rounds also have `sampling`, as `pflsim.sampling.load` takes it; those without have `concurrency`,
    `takes`, `folds`, `fold`.
    """

    promises: bool
    """Whether clients tell, when they start to work, before when they will not answer."""

    gives_up: bool
    """Whether the server gives up work that is never answered."""
    mend: str
    """What to do where it does not."""

    def check(self, clients: int, method: Any) -> list[str]:
        """Raises DescriptionError for what has no meaning with so many clients, or this method; returns warnings."""

    def size(self, clients: int) -> int:
        """How many clients are at work at a time."""
