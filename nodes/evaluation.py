"""How good a client's or a peer's models are on its own data; takes no simulated time."""

from typing import Any

from pflsim.federation import Tensors
from pflsim.study import Study


def scores(
    study: Study, number: int, visits: int, round: int, you: Tensors, down: Tensors
) -> dict[str, dict[str, Any]]:
    """By model, headline first, and by split: [correct, total, mean loss]."""
    task = study.task(number, visits, round)
    found: dict[str, dict[str, Any]] = {}
    for name, model in study.method.client_model(you, down, task).items():
        found[name] = {}
        for split in study.evaluated_splits:
            result = task.evaluate(model, split)
            mean_loss = result.loss_sum / result.total if result.total else 0.0
            found[name][split] = [result.correct, result.total, mean_loss]
    return found
