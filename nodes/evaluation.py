"""How good a client's or a peer's models are on its own data; takes no simulated time."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from safetensors.torch import save

from pflsim.federation import Tensors
from pflsim.messages.port import Port
from pflsim.messages.wire import SERVER
from pflsim.method import Model
from pflsim.study import Study

GLOBAL = "global"
"""How methods call the model that the server has for everybody."""


@dataclass
class Evaluated:
    """What was evaluated last, and after which round (from 1); kept only if the models are to be saved."""

    models: Mapping[str, Model] = field(default_factory=dict)
    round: int = 0


def scores(
    study: Study, number: int, visits: int, round: int, you: Tensors, down: Tensors, evaluated: Evaluated
) -> dict[str, dict[str, Any]]:
    """By model, headline first, and by split: [correct, total, mean loss]."""
    task = study.task(number, visits, round)
    found: dict[str, dict[str, Any]] = {}
    models = study.method.client_model(you, down, task)
    if study.description.record.models:
        evaluated.models, evaluated.round = models, round
    for name, model in models.items():
        found[name] = {}
        for split in study.evaluated_splits:
            result = task.evaluate(model, split)
            mean_loss = result.loss_sum / result.total if result.total else 0.0
            found[name][split] = [result.correct, result.total, mean_loss]
    return found


def tell_models(port: Port, study: Study, number: int, evaluated: Evaluated) -> None:
    """Tell the headline model that was evaluated last, and the first client the server's, for the launcher to save."""
    for name, model in list(evaluated.models.items())[:1]:
        port.recorder.tell("model", port.name, _as_safetensors(study, number, name, model, evaluated.round))
    if number == 0 and GLOBAL in evaluated.models and not study.is_for_peers:
        model = evaluated.models[GLOBAL]
        port.recorder.tell("model", SERVER, _as_safetensors(study, number, GLOBAL, model, evaluated.round))


def _as_safetensors(study: Study, number: int, name: str, model: Model, round: int) -> bytes:
    """A model by the names of its module's parameters and constants; nothing for one that is a function."""
    if not isinstance(model, torch.Tensor):
        return b""
    told = {"model": name, "round": str(round), "algorithm": study.method_name}
    return save(study.network_of(number).state(model), told)
