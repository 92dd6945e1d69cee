"""Semi-synchronous rounds: more clients than needed are asked, and who misses the deadline holds up nobody."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, floor
from typing import Any, Literal

from pflsim.errors import DescriptionError
from pflsim.sampling import Setting, load, shortfall, takes_all
from pflsim.staleness import Staleness


@dataclass(frozen=True)
class Deadline:
    """A round ends when `cohort` clients have answered, or `deadline_s` after it began with at least `minimum` answers.

    The deadline may also be a `quantile` of how long those asked are expected to take, undisturbed. With fewer
    answers, it is extended once; then the round is closed with what there is. `late` answers, which come in a later
    round, are dropped, or carried: folded in with a weight that falls with their age; or the round's end cancels
    their work; or nobody is late, as each sends the steps that it has done by the deadline (partial), and the round
    ends when all of these have come: who is away at the deadline, or leaves before its answer is in, is given up.
    With the sampling "all" everybody is asked, whatever `over` says.
    """

    deadline_s: float | None = None
    quantile: float | None = None  # instead: when this share of those asked is expected to have answered
    slack: float = 1.1  # so many times the quantile: links are shared, and devices jitter
    cohort: int | None = None  # B; all clients without it
    over: float = 1.3  # so many times B are asked
    minimum: int = 1
    sampling: Setting = "uniform"
    late: Literal["drop", "carry", "cancel", "partial"] = "drop"
    staleness: Literal["constant", "polynomial", "hinge"] = "polynomial"
    staleness_a: float = 0.5
    staleness_b: int = 4

    promises = True
    mend = 'the client would be held busy without end: set late = "cancel"'

    @property
    def gives_up(self) -> bool:
        """Whether work that is not answered is given up."""
        return self.late == "cancel"

    def deadline_ns(self, expected_s: Sequence[float]) -> int:
        """The deadline in simulated nanoseconds, of a round whose clients are expected to take so many seconds each."""
        if self.deadline_s is not None:
            return ceil(self.deadline_s * 1e9)
        assert self.quantile is not None  # `check` refused it
        in_order = sorted(expected_s)
        expected = in_order[max(0, ceil(self.quantile * len(in_order)) - 1)] if in_order else 0.0
        return max(1, ceil(self.slack * expected * 1e9))

    def check(self, clients: int, method: Any) -> list[str]:
        """Raises DescriptionError for what cannot work; returns warnings."""
        if (self.deadline_s is None) == (self.quantile is None):
            given = (self.deadline_s, self.quantile)
            raise DescriptionError("schedule.deadline_s, schedule.quantile", given, "give one of the two")
        if self.deadline_s is not None and not 0 < self.deadline_s < 1e9:
            raise DescriptionError("schedule.deadline_s", self.deadline_s, "must be above 0, and finite")
        if not 0 < self.slack < 1e6:
            raise DescriptionError("schedule.slack", self.slack, "must be above 0")
        if self.quantile is not None and not 0 < self.quantile <= 1:
            raise DescriptionError("schedule.quantile", self.quantile, "must be above 0 and at most 1")
        if self.cohort is not None and self.cohort < 1:
            raise DescriptionError("schedule.cohort", self.cohort, "must be at least 1")
        if not 1 <= self.over < 1e6:
            raise DescriptionError("schedule.over", self.over, "must be at least 1, and below 1e6")
        if not 1 <= self.minimum <= self.wanted(clients):
            expected = f"must be 1 to {self.wanted(clients)}, the answers that end a round"
            raise DescriptionError("schedule.minimum", self.minimum, expected)
        self.weight(0)
        chosen = load(self.sampling)
        chosen.check(clients, self.size(clients))
        if self.minimum > (least := chosen.least(clients, self.size(clients))):
            expected = f"must be at most {least}: in some rounds there are no more clients to draw"
            raise DescriptionError("schedule.minimum", self.minimum, expected)
        return shortfall(chosen, clients, self.wanted(clients))

    def size(self, clients: int) -> int:
        """How many clients are asked in a round."""
        if takes_all(self.sampling):
            return clients
        if self.late == "partial":
            return self.wanted(clients)
        return min(clients, floor(self.over * self.wanted(clients) + 0.999999))

    def wanted(self, clients: int) -> int:
        """How many answers end a round before its deadline."""
        return min(self.cohort or clients, clients)

    def is_enough(self, answers: int) -> bool:
        """Whether a round may be closed with so many answers."""
        return answers >= self.minimum

    def weight(self, age: int) -> float:
        """How much a late answer counts."""
        return Staleness(self.staleness, self.staleness_a, self.staleness_b)(age)
