"""A schedule of one's own: a form of one that pflsim knows, here FedAsync.

A schedule is a frozen dataclass that inherits from `Sync`, `Deadline`, `FedAsync`, `FedBuff` or `WithoutRounds` where
there is a server, and from `Neighbours`, `Epidemic`, `Asynchronous`, `Push` or `Pairs` where there is none: those are
the ways in which a process can make a round. What it overrides is its own, and so are the fields that it adds.

    pflsim run launch/runs/stragglers-fedasync.toml \\
        --set 'schedule={kind="examples/delay_adaptive.py:DelayAdaptive",concurrency=20}'
"""

from dataclasses import dataclass

from pflsim.schedules.fedasync import FedAsync


@dataclass(frozen=True)
class DelayAdaptive(FedAsync):
    """Answers count in full until they are as old as clients are at work, and the less the older they are after that.

    Koloskova, Stich, Jaggi 2022 (arXiv 2206.08307): steps shrink only where the delay exceeds the concurrency.
    """

    def weight(self, age: int) -> float:
        """s(age) = min(1, concurrency / age)."""
        return min(1.0, self.concurrency / max(age, 1))
