"""Power of choice: of some clients drawn by their samples, those whose loss is highest take part.

Cho, Wang, Joshi: Towards Understanding Biased Client Selection in Federated Learning, AISTATS 2022, section 4. By
default in the form that costs no further message (rpow-d): a client's loss is the one that it reported when it worked
last. With `fresh` it is that at the present model (pow-d), for which an exchange goes before each round: the candidates
are sent the model, pass their training samples forward, and send the mean loss back. It costs bytes and time like any
other; those who are then chosen are sent the model once more, with their work.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pflsim.errors import DescriptionError
from pflsim.sampling import Population, Sampling
from pflsim.samplings.by_samples import BySamples


@dataclass(frozen=True)
class PowerOfChoice(Sampling):
    """d `candidates` are drawn as by-samples draws; the cohort are those of them with the highest last loss.

    Who never reported a finite loss counts as highest; ties go to the lower id. Fresh losses have as long to come as
    work has where the schedule has a deadline, and whose loss has not come by then is not chosen.
    """

    candidates: int  # d
    fresh: bool = False  # ask the candidates for their loss at the present model, before each round

    @property
    def needs_losses(self) -> bool:
        """Not from those who work, if the candidates are asked first."""
        return not self.fresh

    def check(self, clients: int, count: int) -> None:
        """Raises DescriptionError unless there is something to choose, from clients that there are."""
        if not count <= self.candidates <= clients:
            expected = f"must be {count} to {clients}: at least the cohort, at most the number of clients"
            raise DescriptionError("schedule.sampling.candidates", self.candidates, expected)

    def asked_first(
        self, population: Population, candidates: Sequence[int], rng: np.random.Generator
    ) -> tuple[int, ...] | None:
        """The d candidates, if their losses shall be fresh."""
        return BySamples().drawn(population, candidates, self.candidates, 0, rng, {}) if self.fresh else None

    def drawn(
        self,
        population: Population,
        candidates: Sequence[int],
        count: int,
        round: int,
        rng: np.random.Generator,
        losses: Mapping[int, float],
    ) -> tuple[int, ...]:
        """The `count` of d candidates with the highest losses."""
        offered = BySamples().drawn(population, candidates, self.candidates, round, rng, losses)

        def rank(client: int) -> tuple[float, int]:
            loss = losses.get(client, math.inf)
            return (-loss if math.isfinite(loss) else -math.inf, client)

        return tuple(sorted(sorted(offered, key=rank)[:count]))
