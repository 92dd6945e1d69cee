"""Small federations: least squares in float64, whose answers are known, and a real classification.

`LeastSquares` offers what a method asks of `pflsim.learning.task.Task`, without a network, so that an equivalence can
be tested to 1e-10; `Study` puts N of them together, with everything that a federation knows.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from pflsim.conformance.problems import Problem as Study
from pflsim.conformance.problems import classification, training_of
from pflsim.federation import Federation
from pflsim.learning.task import Training, Work
from pflsim.rng import stream

__all__ = ["LeastSquares", "Study", "classification", "least_squares", "quadratics", "study", "training_of"]

Batch = np.ndarray  # rows of the client's own data
Extra = Callable[[torch.Tensor], torch.Tensor]


@dataclass
class LeastSquares:
    """f(w) = (1 / n) sum_j (1/2) (a_j . w - y_j)^2, with a [n, d] and y [n] in float64."""

    a: torch.Tensor
    y: torch.Tensor
    training: Training
    client: int = 0
    visit: int = 0
    round: int = 0
    seed: int = 1
    stream_of: Callable[[str], str] = lambda purpose: purpose  # which batch stream a purpose draws from
    spent: Work = field(default_factory=lambda: Work(0, 0))

    @property
    def n_samples(self) -> int:
        return len(self.a)

    @property
    def step_size(self) -> float:
        return self.training.step_size_at(self.round)

    @property
    def steps(self) -> int:
        return self.training.steps(self.n_samples)

    def within_limit(self, steps: int) -> int:
        return steps

    def rng(self, purpose: str) -> np.random.Generator:
        return stream(self.seed, purpose, self.client, self.visit)

    def fixed_batches(self) -> list[Batch]:
        rows = np.arange(self.n_samples)
        return np.split(rows, range(self.training.batch, self.n_samples, self.training.batch))

    def batches(self, k: int, purpose: str = "batch") -> Iterator[Batch]:
        rng, left = self.rng(self.stream_of(purpose)), np.array([], dtype=int)
        for _ in range(k):
            if not len(left):
                left = rng.permutation(self.n_samples)
            batch, left = left[: self.training.batch], left[self.training.batch :]
            yield batch

    def grad(self, w: torch.Tensor, batch: Batch) -> torch.Tensor:
        self.spend(Work(len(batch), len(batch)))
        a = self.a[batch]
        return a.T @ (a @ w - self.y[batch]) / len(batch)

    def loss(self, w: torch.Tensor) -> float:
        self.spend(Work(self.n_samples, 0))
        return float(((self.a @ w - self.y) ** 2).mean() / 2)

    def batch_loss(self, w: torch.Tensor, batch: Batch) -> float:
        self.spend(Work(len(batch), 0))
        return float(((self.a[batch] @ w - self.y[batch]) ** 2).mean() / 2)

    def spend(self, work: Work) -> None:
        self.spent = self.spent + work

    def sgd(
        self,
        w: torch.Tensor,
        *,
        steps: int | None = None,
        step_size: float | None = None,
        extra: Extra | None = None,
        purpose: str = "batch",
    ) -> torch.Tensor:
        eta = self.step_size if step_size is None else step_size
        for batch in self.batches(self.steps if steps is None else steps, purpose):
            slope = self.grad(w, batch).add_(w, alpha=self.training.weight_decay)
            w = w.add(slope if extra is None else slope.add_(extra(w)), alpha=-eta)
        return w

    def work(self, *, passes: int = 1, forwards: int = 0) -> Work:
        per_pass = self.training.samples(self.n_samples, self.steps)
        return Work(per_pass * (passes + forwards), per_pass * passes)


def least_squares(
    sizes: Sequence[int] = (7, 12, 9, 5),
    d: int = 3,
    seed: int = 1,
    graph: np.ndarray | None = None,
    stream_of: Callable[[str], str] = lambda purpose: purpose,
    **training: object,
) -> Study:
    """One random least-squares problem per client, [n_i, d]; its optimum differs from client to client."""
    rng = stream(seed, "problem")
    data = [(rng.normal(size=(n, d)), rng.normal(size=n)) for n in sizes]
    return study([(torch.from_numpy(a), torch.from_numpy(y)) for a, y in data], seed, graph, stream_of, **training)


def quadratics(
    curvatures: Sequence[np.ndarray],
    optima: Sequence[np.ndarray],
    graph: np.ndarray | None = None,
    **training: object,
) -> Study:
    """f_i(w) = (1/2) (w - b_i)^T H_i (w - b_i) with full gradients: d rows whose Gram matrix is d H_i."""
    rows = [np.sqrt(len(h)) * np.linalg.cholesky(h).T for h in curvatures]
    data = [(torch.from_numpy(a), torch.from_numpy(a @ b)) for a, b in zip(rows, optima, strict=True)]
    return study(data, 1, graph, **{"batch": 1000, **training})


def study(
    data: Sequence[tuple[torch.Tensor, torch.Tensor]],
    seed: int = 1,
    graph: np.ndarray | None = None,
    stream_of: Callable[[str], str] = lambda purpose: purpose,
    **training: object,
) -> Study:
    """The federation of clients that hold `data`; starts from w0 = (1, 2, 3, ...) / 10."""
    chosen = training_of(**training)
    federation = Federation(
        clients=range(len(data)),
        sizes=np.array([len(a) for a, _ in data]),
        labels=((0,),) * len(data),
        graph=graph,
        initial=torch.arange(1, data[0][0].shape[1] + 1, dtype=torch.float64) / 10,
        layout=None,  # no method of these tests looks inside a vector
        training=chosen,
        seed=seed,
        new_initial=lambda rng: torch.from_numpy(rng.normal(size=data[0][0].shape[1])),
    )
    return Study(federation, lambda i, visit, round: LeastSquares(*data[i], chosen, i, visit, round, seed, stream_of))
