"""GPFL against the same thing written out as torch modules, and what of it travels."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from pflsim.algorithms.gpfl import GPFL
from pflsim.conformance.rounds import models, run
from pflsim.errors import DescriptionError
from pflsim.federation import Answer, Round
from pflsim.spec import validate
from pflsim.study import Study
from tests.launching import description
from tests.problems import classification


class Condition(nn.Sequential):
    """z -> gamma(z) or beta(z)."""

    def __init__(self, parts: dict[str, Tensor], name: str) -> None:
        k = len(parts[f"{name}_bias"])
        super().__init__(nn.Linear(k, k), nn.ReLU(), nn.LayerNorm(k))
        names = ("0.weight", "0.bias", "2.weight", "2.bias")
        self.load_state_dict(
            {
                own: parts[f"{name}_{part}"]
                for own, part in zip(names, ("weight", "bias", "scale", "shift"), strict=True)
            }
        )


class Written(nn.Module):
    """The whole of a client's model, with a linear base [3, 4]."""

    def __init__(self, shared: dict[str, Tensor], head: dict[str, Tensor]) -> None:
        super().__init__()
        self.base, self.head = nn.Linear(4, 3), nn.Linear(3, 3)
        self.base.load_state_dict({"weight": shared["x"][:12].view(3, 4), "bias": shared["x"][12:]})
        self.head.load_state_dict({"weight": head["head_weight"], "bias": head["head_bias"]})
        self.e = nn.Parameter(shared["e"].clone())
        self.gamma, self.beta = Condition(shared, "gamma"), Condition(shared, "beta")

    def valve(self, f: Tensor, z: Tensor) -> Tensor:
        return torch.relu((self.gamma(z) + 1) * f + self.beta(z))

    def personal(self, x: Tensor, p: Tensor) -> Tensor:
        found: Tensor = self.head(self.valve(torch.relu(self.base(x)), p))
        return found

    def loss(self, x: Tensor, y: Tensor, g: Tensor, p: Tensor, frozen: Tensor, lam: float) -> Tensor:
        guided = self.valve(torch.relu(self.base(x)), g)
        cosines = functional.cosine_similarity(guided[:, None, :], self.e[None, :, :], dim=2)
        own = functional.cross_entropy(self.personal(x, p), y) + functional.cross_entropy(cosines, y)
        return own + lam * ((guided - frozen[y]) ** 2).sum().sqrt()


def test_two_visits_are_what_torch_makes_of_the_objective() -> None:
    problem, method = classification(), GPFL(lam=0.3, mu=0.1)
    ran = run(method, problem, 2, lambda *_: [1])
    one = run(method, problem, 1, lambda *_: [1])
    head: Any = None
    for visit in range(2):
        shared, task = ran.server[visit], problem.new_task(1, visit, visit)
        assert not isinstance(task.y, list)
        labels: Any = task.y[torch.from_numpy(task.part.train)]
        p = torch.stack([(labels == c).float().mean() * shared["e"][c] for c in range(3)]).sum(0)
        first = {f"head_{name}": value for name, value in _first(task).items()}
        written = Written(shared, head or first)
        guided = [value for name, value in written.named_parameters() if name[:4] not in ("base", "head")]
        plain = [*written.base.parameters(), *written.head.parameters()]
        groups: Any = [{"params": plain}, {"params": guided, "weight_decay": 0.1}]
        optimiser = torch.optim.SGD(groups, lr=0.05)
        for batch in task.batches(4):
            optimiser.zero_grad()
            batch_: Any = batch
            written.loss(batch_.x, batch_.y, shared["e"].mean(0), p, shared["e"], 0.3).backward()  # type: ignore
            optimiser.step()
        head = {f"head_{name}": value.detach() for name, value in written.head.named_parameters()}
        after = one if visit == 0 else ran
        torch.testing.assert_close(after.you[1]["head_weight"], head["head_weight"])
        torch.testing.assert_close(after.all["e"], written.e.detach())
        torch.testing.assert_close(after.all["x"][:12], written.base.weight.detach().flatten())
        torch.testing.assert_close(after.all["gamma_weight"], written.gamma[0].weight.detach())
        torch.testing.assert_close(after.all["beta_shift"], written.beta[2].bias.detach())


def _first(task: Any) -> dict[str, Tensor]:
    from pflsim.rng import stream

    rng = stream(task.seed, "head")
    return {
        "weight": torch.from_numpy(rng.uniform(-(3**-0.5), 3**-0.5, (3, 3))).float(),
        "bias": torch.from_numpy(rng.uniform(-(3**-0.5), 3**-0.5, 3)).float(),
    }


def test_the_head_never_travels_and_everything_else_does() -> None:
    ran = run(GPFL(), classification(), 2)
    for up in ran.ups[1].values():
        assert sorted(up) == sorted(ran.all) and not any(name.startswith("head") for name in up)
    assert sorted(ran.you[0]) == ["head_bias", "head_weight"]
    assert not torch.equal(ran.you[0]["head_weight"], ran.you[1]["head_weight"])


def test_the_server_averages_every_part_by_samples_or_uniformly() -> None:
    problem = classification()
    state = GPFL().server_init(problem.federation)
    this = Round(0, (0, 1), problem.federation, 0.05)
    came = [Answer(k, {name: value + k for name, value in state.items()}, state, 0, n) for k, n in ((0, 3), (1, 1))]
    for method, share in ((GPFL(), 0.25), (GPFL(weights="uniform"), 0.5)):
        after = method.server_step(state, came, this)
        assert all(torch.allclose(after[name], state[name] + share) for name in state)
    arrived = GPFL().server_arrival(state, came[1], 0.3, this)
    buffered = GPFL().server_buffer(state, came, [1.0, 0.5], this)
    assert all(torch.allclose(arrived[name], state[name] + 0.3) for name in state)
    assert all(torch.allclose(buffered[name], state[name] + 0.25) for name in state)


def test_a_client_is_evaluated_by_its_own_head_on_features_under_its_own_condition() -> None:
    problem = classification()
    ran = run(GPFL(), problem, 2)
    task: Any = problem.new_task(2, 2, 2)
    predict: Any = models(GPFL(), problem, ran, 2)["personalised"]
    labels = task.y[torch.from_numpy(task.part.train)]
    p = torch.stack([(labels == c).float().mean() * ran.all["e"][c] for c in range(3)]).sum(0)
    expected = Written(ran.all, ran.you[2]).personal(task.x, p)
    torch.testing.assert_close(predict(task.x), expected.detach())


def test_the_model_is_built_with_as_many_outputs_as_there_are_features() -> None:
    def study(**settings: Any) -> Study:
        return Study(validate(description(algorithm={"name": "gpfl", **settings})), b"8 bytes.")

    assert study(features=5).network.layout.shapes[-1] == (5,)
    assert study().network.layout.shapes[-1] == (32,)
    state = study(features=5).method.server_init(study(features=5).federation)
    assert state["e"].shape == (4, 5)


@pytest.mark.parametrize(
    ("settings", "training", "said"),
    [
        ({"lam": -1.0}, {}, "algorithm.lam = -1.0"),
        ({"features": 0}, {}, "algorithm.features = 0"),
        ({}, {"weight_decay": 0.1}, "training.weight_decay = 0.1: gpfl has steps of its own"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings: dict[str, Any], training: dict[str, Any], said: str) -> None:
    with pytest.raises(DescriptionError) as problem:
        GPFL(**settings).check(classification(**training).federation)
    assert str(problem.value).startswith(said)
