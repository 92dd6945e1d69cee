"""pFedBayes: each client learns a distribution over weights, held near one that all of them share.

Zhang, Li, Li, Li, Fu: Personalized Federated Learning via Variational Bayesian Inference, ICML 2022, Algorithm 1.

Every weight is normal and independent of the others: w ~ N(mu, sigma^2) with sigma = log(1 + exp(rho)), so that a
distribution is two vectors [d], mu and rho; mu is the vector of whatever model the run has.

Objective: min over W of (1 / N) sum_i F_i(W),
    F_i(W) = min over q_i of  -E_{w ~ q_i}[log p(D_i | w)] + zeta KL(q_i || W)                             (ELBO)
    KL(q || W) = sum log(sigma_W / sigma_q) + (sigma_q^2 + (mu_q - mu_W)^2) / (2 sigma_W^2) - 1/2

A round:
    server      sends W = (mu, rho) to the clients in S_t
    client i    W_i = W;  R times: one batch b,
                    Q times  eps ~ N(0, 1);  w = mu_i + sigma_i eps
                             q_i <- Adam step, size eta_p, on  n_i mean of -log p(y | x, w) over b + zeta KL(q_i || W_i)
                    W_i <- Adam step, size eta, on  zeta KL(q_i || W_i)
                sends W_i, keeps q_i
    server      W <- (1 - beta) W + beta * mean of W_i, i in S_t
The gradient comes through w = mu + sigma eps: with g = grad f_i(w; b) it is g for mu and g eps sigmoid(rho) for rho.

Communication per visit: 2 vectors [d] down (mu, rho), 2 up. Gradients per visit: R Q. State: W at the server; q_i at
the client, from (w0, rho0) and never sent. A client that is not drawn keeps its q_i.
Asynchronous form: mu and rho are mixed or buffered as FedAvg's x, with weights that are beta times as large.

Evaluated: `personalised` is the mean network mu_i, `global` that of W; with `samples` = M the personal one is the mean
of the probabilities that M networks drawn from q_i predict.

Readings. An unofficial implementation differs from the objective (elbo = "code"): the likelihood is summed over the
batch, the KL is divided by R, and eps has the deviation 0.001, which makes it nearly deterministic. Both use Adam, here
at rest at the start of each visit. Means are unweighted, as in the objective (that code weighs by samples), and rho is
averaged as it is; aggregate = "moments" takes the variance of the mixture of all W_i instead. mu starts at the model's
own start, not at N(0, 0.1^2). Step sizes follow `training.schedule` but not `training.step_size`, which is for plain
SGD. W takes no step on data, so that zeta = 0 leaves the server where it is. Stability: Adam moves no coordinate by
much more than eta in a step.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch.nn import functional

from pflsim.errors import DescriptionError
from pflsim.federation import Answer, Client, Federation, Round, Tensors, mixed, moved, require_number
from pflsim.learning.task import Predictor, Task, Work
from pflsim.learning.vector import average


@dataclass(frozen=True)
class PFedBayes:
    """q_i follows the data of client i and W; W follows the q_i."""

    zeta: float = 10.0  # the weight of the KL divergence
    inner_steps: int = 5  # Q, steps of q_i for each of W_i
    eta: float = 0.001  # step size of W_i
    eta_p: float = 0.001  # step size of q_i
    rho0: float = -3.0  # where every rho starts: sigma = log(1 + exp(rho0)) = 0.049
    beta: float = 1.0  # how far the server goes towards the mean
    elbo: Literal["paper", "code"] = "paper"  # how likelihood and KL are weighed, see above
    eps_std: float | None = None  # deviation of eps; None: 1 for "paper", 0.001 for "code"
    weights: Literal["uniform", "samples"] = "uniform"
    aggregate: Literal["rho", "moments"] = "rho"  # what is averaged of the W_i beside mu
    samples: int = 0  # M networks that predict together; 0: the mean network alone

    def check(self, federation: Federation) -> list[str]:
        training = federation.training
        for name in ("momentum", "weight_decay"):
            if getattr(training, name):
                reason = "pfedbayes has steps of its own: set it to 0 (the KL divergence is what regularises)"
                raise DescriptionError(f"training.{name}", getattr(training, name), reason)
        for name in ("zeta", "samples"):
            require_number(f"algorithm.{name}", getattr(self, name), 0)
        for name in ("eta", "eta_p", "beta"):
            require_number(f"algorithm.{name}", getattr(self, name), 0, above=True)
        require_number("algorithm.inner_steps", self.inner_steps, 1)
        require_number("algorithm.eps_std", self._eps_std, 0)
        if not -20 <= self.rho0 <= 20:
            raise DescriptionError("algorithm.rho0", self.rho0, "must be from -20 to 20")
        if self.samples and any(isinstance(label, float) for own in federation.labels for label in own):
            raise DescriptionError("algorithm.samples", self.samples, "mixes classifiers; these data have no classes")
        return []

    def client_init(self, client: Client) -> Tensors:
        return self._start(client.initial)

    def client_work(self, task: Task, down: Tensors) -> Work:
        return task.work(passes=self.inner_steps)

    def client_step(self, you: Tensors, down: Tensors, task: Task) -> tuple[Tensors, Tensors]:
        q, W = (you["mu"], you["rho"]), (down["mu"], down["rho"])
        noise = task.rng("noise")
        zeta = self.zeta if self.elbo == "paper" else self.zeta / max(1, task.steps)
        factor = task.step_size / (task.training.step_size or 1.0)  # of the schedule
        of_q, of_W = _Adam(q), _Adam(W)
        for batch in task.batches(task.steps):
            likelihood = float(task.n_samples if self.elbo == "paper" else len(batch))
            for _ in range(self.inner_steps):
                eps = torch.from_numpy(self._eps_std * noise.standard_normal(len(q[0]))).to(q[0].dtype)
                g = likelihood * task.grad(q[0] + functional.softplus(q[1]) * eps, batch)
                pull = _kl_slopes(q, W)[0]
                slopes = g + zeta * pull[0], g * eps * q[1].sigmoid() + zeta * pull[1]
                q = of_q.stepped(q, slopes, self.eta_p * factor)
            pull = _kl_slopes(q, W)[1]
            W = of_W.stepped(W, (zeta * pull[0], zeta * pull[1]), self.eta * factor)
        return {"mu": q[0], "rho": q[1]}, {"mu": W[0], "rho": W[1]}

    def server_init(self, federation: Federation) -> Tensors:
        return self._start(federation.initial)

    def server_down(self, all: Tensors, client: int, round: Round) -> Tensors:
        return dict(all)

    def server_step(self, all: Tensors, answers: Sequence[Answer], round: Round) -> Tensors:
        p = [answer.weight * (answer.n_samples if self.weights == "samples" else 1) for answer in answers]
        mu = average([answer.up["mu"] for answer in answers], p)
        rho = average([answer.up["rho"] for answer in answers], p)
        if mu is None or rho is None:
            return all
        if self.aggregate == "moments":
            rho = _rho_of_mixture(mu, answers, p)
        new = {"mu": mu, "rho": rho}
        return {name: (1.0 - self.beta) * all[name] + self.beta * new[name] for name in all}

    def server_arrival(self, all: Tensors, answer: Answer, weight: float, round: Round) -> Tensors:
        return {name: mixed(all[name], answer.up[name], self.beta * weight) for name in all}

    def server_buffer(self, all: Tensors, answers: Sequence[Answer], weights: Sequence[float], round: Round) -> Tensors:
        rates = [self.beta * weight for weight in weights]
        return {
            name: moved(all[name], [a.down[name] for a in answers], [a.up[name] for a in answers], rates)
            for name in all
        }

    def client_model(self, you: Tensors, down: Tensors, task: Task) -> dict[str, torch.Tensor | Predictor]:
        personal = self._predictor(you, task) if self.samples else you["mu"]
        return {"personalised": personal, "global": down["mu"]}

    def server_work(self, federation: Federation, answers: Sequence[Answer]) -> float:
        return 4.0 * len(federation.initial) * len(answers)

    @property
    def _eps_std(self) -> float:
        if self.eps_std is not None:
            return self.eps_std
        return 1.0 if self.elbo == "paper" else 0.001

    def _start(self, w0: torch.Tensor) -> Tensors:
        return {"mu": w0, "rho": torch.full_like(w0, self.rho0)}

    def _predictor(self, you: Tensors, task: Task) -> Predictor:
        """Samples -> logarithms of the probabilities that M networks drawn from q_i predict on average."""
        eps = task.rng("prediction").standard_normal((self.samples, len(you["mu"])))
        sigma, logits = functional.softplus(you["rho"]), task.network.logits
        drawn = [you["mu"] + sigma * torch.from_numpy(row).to(sigma.dtype) for row in eps]

        def predict(x: torch.Tensor) -> torch.Tensor:
            each = torch.stack([functional.log_softmax(logits(w, x), 1) for w in drawn])
            return each.logsumexp(0) - float(np.log(len(drawn)))

        return predict


_Normal = tuple[torch.Tensor, torch.Tensor]
"""mu and rho, each [d]."""


def _kl_slopes(q: _Normal, W: _Normal) -> tuple[_Normal, _Normal]:
    """The gradient of KL(q || W) for (mu, rho) of q, and for those of W."""
    s, S, gap = functional.softplus(q[1]), functional.softplus(W[1]), q[0] - W[0]
    towards = gap / S**2
    of_s, of_S = s / S**2 - 1 / s, 1 / S - (s**2 + gap**2) / S**3
    return (towards, of_s * q[1].sigmoid()), (-towards, of_S * W[1].sigmoid())


def _rho_of_mixture(mu: torch.Tensor, answers: Sequence[Answer], p: Sequence[float]) -> torch.Tensor:
    """rho [d] of the normal distribution that has the variance of the mixture of the W_i, around its mean mu."""
    spreads = [functional.softplus(a.up["rho"].double()) ** 2 + (a.up["mu"].double() - mu) ** 2 for a in answers]
    variance = average(spreads, p)
    assert variance is not None  # or there would be no mu
    return variance.sqrt().expm1().log().to(mu.dtype)


class _Adam:
    """Kingma, Ba: Adam, ICLR 2015, Algorithm 1, with its defaults, on the two vectors of a distribution."""

    def __init__(self, like: _Normal) -> None:
        self._steps = 0
        self._first = [torch.zeros_like(vector) for vector in like]
        self._second = [torch.zeros_like(vector) for vector in like]

    def stepped(self, at: _Normal, slopes: _Normal, step_size: float) -> _Normal:
        """A new point, one step further down."""
        self._steps += 1
        reached = []
        for vector, g, m, v in zip(at, slopes, self._first, self._second, strict=True):
            m.mul_(0.9).add_(g, alpha=0.1)
            v.mul_(0.999).addcmul_(g, g, value=0.001)
            scale = (v / (1 - 0.999**self._steps)).sqrt_().add_(1e-8)
            reached.append(vector.addcdiv(m, scale, value=-step_size / (1 - 0.9**self._steps)))
        return reached[0], reached[1]
