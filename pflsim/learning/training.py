"""How clients train: step size and schedule, momentum, weight decay, batch, and the length of a visit."""

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

from pflsim.errors import DescriptionError

Schedule = Literal["constant", "step", "exponential", "cosine", "inverse"]

LONGEST_VISIT_S = 1e9
LARGEST_STEP = 1e9  # far beyond any use, and small enough that float32 can hold what is multiplied by it


@dataclass(frozen=True)
class Training:
    """The optimiser settings of a run; one of `local_steps` and `local_epochs` says how long a visit is.

    `decay` and `schedule_rounds` (S) shape the step size at round t = 0, 1, ..., relative to `step_size`:

    constant     1
    step         decay ^ floor(t / S)
    exponential  decay ^ t
    cosine       (1 + cos(pi * min(t, S) / S)) / 2, which reaches 0 at round S
    inverse      1 / (1 + decay * t)
    """

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    step_size: float  # eta
    batch: int = 20  # samples; a client that has fewer uses all it has
    local_steps: int | None = None  # R, mini-batch steps a visit
    local_epochs: int | None = None  # E, passes a visit
    local_s: float | None = (
        None  # the simulated seconds that a visit may take: as many of its steps as fit, one at least
    )
    momentum: float = 0.0  # starts at rest in every visit
    weight_decay: float = 0.0  # wd, the coefficient of (wd/2) |w|^2
    schedule: Schedule = "constant"
    decay: float | None = None
    schedule_rounds: int | None = None

    def __post_init__(self) -> None:
        if (self.local_steps is None) == (self.local_epochs is None):
            given = (self.local_steps, self.local_epochs)
            raise _wrong("local_steps", given, "give exactly one of local_steps and local_epochs")
        for name in ("batch", "local_steps", "local_epochs", "schedule_rounds"):
            if (value := getattr(self, name)) is not None and value < 1:
                raise _wrong(name, value, "must be at least 1")
        if self.local_s is not None and not 0 < self.local_s <= LONGEST_VISIT_S:
            raise _wrong("local_s", self.local_s, f"must be above 0 and at most {LONGEST_VISIT_S:g}")
        for name in ("step_size", "weight_decay"):
            if not 0 <= getattr(self, name) <= LARGEST_STEP:
                raise _wrong(name, getattr(self, name), f"must be from 0 to {LARGEST_STEP:g}")
        if not 0 <= self.momentum < 1:
            raise _wrong("momentum", self.momentum, "must lie in [0, 1)")
        self._check_schedule()

    def _check_schedule(self) -> None:
        needs_decay = self.schedule in ("step", "exponential", "inverse")
        if needs_decay != (self.decay is not None):
            wanted = "needs a decay" if needs_decay else "takes no decay"
            raise _wrong("decay", self.decay, f"schedule {self.schedule!r} {wanted}")
        needs_rounds = self.schedule in ("step", "cosine")
        if needs_rounds != (self.schedule_rounds is not None):
            wanted = "needs schedule_rounds" if needs_rounds else "takes no schedule_rounds"
            raise _wrong("schedule_rounds", self.schedule_rounds, f"schedule {self.schedule!r} {wanted}")
        if self.decay is not None and not 0 <= self.decay < math.inf:
            raise _wrong("decay", self.decay, "must be finite and at least 0")

    def check(self, rounds: int) -> None:
        """Refuse a schedule whose step size grows beyond all bounds within so many rounds."""
        try:
            last = self.step_size_at(rounds - 1)
        except OverflowError:
            last = math.inf
        if not last <= LARGEST_STEP:
            reason = f"makes the step size larger than {LARGEST_STEP:g} by round {rounds}"
            raise _wrong("decay", self.decay, reason)

    def step_size_at(self, round: int) -> float:
        """The step size of a round, counted from 0; depends on nothing else."""
        decay, span = self.decay or 0.0, self.schedule_rounds or 1
        factor = {
            "constant": lambda: 1.0,
            "step": lambda: decay ** (round // span),
            "exponential": lambda: decay**round,
            "cosine": lambda: (1 + math.cos(math.pi * min(round, span) / span)) / 2,
            "inverse": lambda: 1 / (1 + decay * round),
        }
        return self.step_size * float(factor[self.schedule]())

    def steps(self, n_samples: int) -> int:
        """How many mini-batch steps a visit to a client with that many training samples has."""
        if n_samples == 0:
            return 0
        if self.local_steps is not None:
            return self.local_steps
        return (self.local_epochs or 0) * math.ceil(n_samples / self.batch)

    def samples(self, n_samples: int, steps: int) -> int:
        """How many samples `steps` batches hold together, short batches counted as they are."""
        if n_samples == 0:
            return 0
        passes, rest = divmod(steps, math.ceil(n_samples / self.batch))
        return passes * n_samples + rest * self.batch  # the short batch is a pass's last, never among the rest


def _wrong(name: str, value: object, expected: str) -> DescriptionError:
    return DescriptionError(f"training.{name}", value, expected)
