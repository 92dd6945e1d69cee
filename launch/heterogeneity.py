"""`pflsim heterogeneity`: how unlike a description's clients are, within and between the groups that take turns."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pflsim.errors import DescriptionError
from pflsim.spec import validate

if TYPE_CHECKING:
    import torch

    from pflsim.study import Study

_SAMPLES = 50  # of a client, for sigma^2


def show_heterogeneity(tables: Mapping[str, Any], steps: int) -> None:
    """Print it at w0 and after `steps` steps down the mean of all clients' losses. Raises DescriptionError."""
    import torch

    from pflsim.study import Study

    torch.set_num_threads(1)
    study = Study(validate(tables), b"measured")
    if not study.cohorts.population.strata:
        sampling = getattr(study.schedule, "sampling", None)
        raise DescriptionError("schedule.sampling", sampling, 'must have groups: { kind = "groups", groups = 10 }')
    if empty := [name for name, size in zip(study.names, study.federation.sizes, strict=True) if not size]:
        raise DescriptionError("data.partition", empty[0], "has no training samples, and so no gradient")
    groups, N = len(study.cohorts.population.strata), len(study.names)
    print(f"{N} clients in {groups} groups, {study.schedule.size(N)} of them a round, each {_steps(study):g} steps")
    w = study.initial
    print(f"at the initial model: {_measured(study, w)}")
    for _ in range(steps):
        w = w - study.training.step_size * _gradients(study, w).mean(0)
    if steps:
        print(f"after {steps} steps down all clients' mean loss: {_measured(study, w)}")


def _gradients(study: "Study", w: "torch.Tensor") -> "torch.Tensor":
    """Every client's full gradient [N, d]."""
    import torch

    from pflsim.learning.whole_data import full_gradient

    return torch.stack([full_gradient(study.task(client, 0, 0), w) for client in range(len(study.names))])


def _measured(study: "Study", w: "torch.Tensor") -> str:
    from pflsim.learning.heterogeneity import heterogeneity, least_gamma_sq, sample_variance

    found = heterogeneity(_gradients(study, w), study.cohorts.population.strata)
    N = len(study.names)
    variances = [sample_variance(study.task(client, 0, 0), w, _SAMPLES) for client in range(N)]
    lines = [
        f"  within groups   gamma {found.gamma:.4g} (root mean square {found.gamma_rms:.4g})",
        f"  between groups  alpha {found.alpha:.4g} (root mean square {found.alpha_rms:.4g})",
        f"  of one sample   sigma^2 {max(variances):.4g} (mean {sum(variances) / N:.4g}), from {_SAMPLES} a client",
    ]
    for what, gamma_sq, sigma_sq in (
        ("the largest ones", found.gamma**2, max(variances)),
        ("means", found.gamma_rms**2, sum(variances) / N),
        (f"means, batches of {study.training.batch}", found.gamma_rms**2, sum(variances) / N / study.training.batch),
    ):
        least = least_gamma_sq(sigma_sq, N, study.schedule.size(N), _steps(study))
        holds = "holds: more groups help" if gamma_sq >= least else "does not hold"
        lines.append(f"  gamma^2 {gamma_sq:.4g} >= {least:.4g}, with {what}: {holds}")
    return "\n".join(["", *lines])


def _steps(study: "Study") -> float:
    """tau: the steps of a visit, the mean over clients."""
    return sum(study.task(client, 0, 0).steps for client in range(len(study.names))) / len(study.names)
