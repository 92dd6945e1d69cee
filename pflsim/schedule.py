"""The interface of a schedule: what a file in `schedules/` has to offer. A schedule is pure, and knows no actor."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Any, ClassVar, Literal, Protocol

from pflsim.errors import DescriptionError
from pflsim.federation import Answer, Round, Tensors
from pflsim.staleness import Staleness


class Schedule(Protocol):
    """Who works when, and when what they answer is folded in.

    Schedules with rounds also have `sampling`, as `pflsim.sampling.load` takes it; those without are `WithoutRounds`.
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


@dataclass(frozen=True)
class WithoutRounds(ABC):
    """`concurrency` clients are at work at any time, and what arrives counts the less the older it is."""

    concurrency: int
    staleness: Literal["constant", "polynomial", "hinge"] = "polynomial"
    staleness_a: float = 0.5
    staleness_b: int = 4
    timeout_s: float | None = None  # after how long work that is not answered is cancelled
    max_staleness: int | None = None  # what is older is discarded
    same: bool = False  # new work goes to the client that has just answered, not to one that is drawn

    promises: ClassVar[bool] = True
    mend: ClassVar[str] = "the client would be held busy without end: set schedule.timeout_s"

    @property
    def gives_up(self) -> bool:
        """Whether work that is never answered is given up."""
        return self.timeout_s is not None

    @property
    def timeout_ns(self) -> int | None:
        """After how long it is, in simulated nanoseconds."""
        return None if self.timeout_s is None else ceil(self.timeout_s * 1e9)

    def check(self, clients: int, method: Any) -> list[str]:
        """Raises DescriptionError for what cannot work; returns warnings."""
        if self.concurrency < 1:
            raise DescriptionError("schedule.concurrency", self.concurrency, "must be at least 1")
        if self.max_staleness is not None and self.max_staleness < 0:
            raise DescriptionError("schedule.max_staleness", self.max_staleness, "must be at least 0")
        if self.timeout_s is not None and not 0 < self.timeout_s < 1e9:
            raise DescriptionError("schedule.timeout_s", self.timeout_s, "must be above 0, and finite")
        self.weight(0)
        if self.concurrency > clients:
            return [f"schedule.concurrency = {self.concurrency}: there are {clients} clients, all of whom work"]
        if self.same and self.concurrency < clients:
            told = f"schedule.same: work stays with the first {self.concurrency} clients that get it"
            return [f"{told}, and {clients - self.concurrency} get none as long as these answer"]
        return []

    def size(self, clients: int) -> int:
        """How many clients are at work at a time."""
        return min(self.concurrency, clients)

    def takes(self, age: int) -> bool:
        """Whether an answer of this age is taken at all."""
        return self.max_staleness is None or age <= self.max_staleness

    def weight(self, age: int) -> float:
        """How much an answer of this age counts, s(age)."""
        return Staleness(self.staleness, self.staleness_a, self.staleness_b)(age)

    @abstractmethod
    def arrivals_per_round(self, clients: int) -> int:
        """How many arrivals count as one round."""

    @abstractmethod
    def folds(self, taken: Sequence[Answer]) -> list[Answer]:
        """What of the round's arrivals so far is folded in now."""

    @abstractmethod
    def fold(self, method: Any, all: Tensors, answers: Sequence[Answer], round: Round, version: int) -> Tensors:
        """The server's state after folding them in; `version` states were made before it."""

    def may_work(self, idle: Sequence[int], taken: Sequence[Answer]) -> list[int]:
        """Which of the idle clients may be given work, when these arrivals of the round have been taken."""
        return list(idle)


@dataclass(frozen=True)
class WithoutServer:
    """Peers exchange models with their neighbours in the topology; all of them work all the time."""

    promises: ClassVar[bool] = False
    mend: ClassVar[str] = "a peer would wait without end: use neighbours with deadline_s, asynchronous or push"
    mixes_evenly: ClassVar[bool] = False
    """Whether a mixture gives the own model and each that came the same share, whatever the graph says."""
    tells_everybody: ClassVar[bool] = False
    """Whether a peer sends its model to all of its neighbours after each piece of work."""
    active: float = field(default=1.0, init=False)
    """The share of peers that take part in a round."""
    receivers: int | None = field(default=None, init=False)
    """To how many neighbours, drawn anew, a peer sends its model; None for all."""

    @property
    def gives_up(self) -> bool:
        """Whether a peer goes on without what never comes."""
        return False

    def check(self, clients: int, method: Any) -> list[str]:
        """Raises DescriptionError for what has no meaning; returns warnings."""
        return []

    def size(self, clients: int) -> int:
        """All are at work at a time."""
        return clients


def require_share(key: str, value: float) -> None:
    """Raises DescriptionError, naming `key`, for what is no share above 0 and up to 1."""
    if not 0 < value <= 1:
        raise DescriptionError(key, value, "must be above 0 and at most 1")
