"""A synchronous federation as a plain loop: no processes, no messages, no clock.

What it does is what the papers write; the tests use it as the mathematical oracle.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from pflsim.conformance.watching import require, title
from pflsim.federation import Answer, Federation, Round, Tensors


@dataclass
class Ran:
    """What a run left: the states after the last round, and what they were on the way."""

    all: Tensors
    you: list[Tensors]
    visits: list[int]
    server: list[Tensors] = field(default_factory=list)  # after each round; [0] is before the first
    ups: list[dict[int, Tensors]] = field(default_factory=list)  # of each round, by client
    you_before: list[list[Tensors]] = field(default_factory=list)  # the private states before each round


def everybody(federation: Federation, number: int) -> Sequence[int]:
    """The cohort of all."""
    return federation.clients


def run(method: Any, study: Any, rounds: int, draw: Callable[..., Sequence[int]] = everybody) -> Ran:
    """`rounds` synchronous rounds; `draw(federation, number)` gives the cohort."""
    federation = study.federation
    you = [method.client_init(study.client(i)) for i in federation.clients]
    ran = Ran(method.server_init(federation), you, [0] * len(you))
    ran.server.append(ran.all)
    for number in range(rounds):
        drawn = tuple(sorted(draw(federation, number)))
        round = Round(number, drawn, federation, federation.training.step_size_at(number))
        working = method.participants(ran.all, round, drawn) if hasattr(method, "participants") else drawn
        ran.you_before.append(list(ran.you))
        answers = [visit(method, study, ran, client, round) for client in sorted(working)]
        ran.all = method.server_step(ran.all, answers, round)
        ran.server.append(ran.all)
        ran.ups.append({answer.client: answer.up for answer in answers})
    return ran


def visit(method: Any, study: Any, ran: Ran, client: int, round: Round) -> Answer:
    """One client's work in one round; it must be the work that was declared."""
    task = study.new_task(client, ran.visits[client], round.number)
    down = method.server_down(ran.all, client, round)
    declared = method.client_work(task, down)
    ran.you[client], up = method.client_step(ran.you[client], down, task)
    require(task.spent == declared, f"{title(method)} declared {declared} and did {task.spent}")
    ran.visits[client] += 1
    return Answer(client, up, down, 0, task.n_samples)


def models(method: Any, study: Any, ran: Ran, client: int) -> dict[str, Any]:
    """The models that would be evaluated on `client` now."""
    round = Round(len(ran.ups), (), study.federation, study.federation.training.step_size_at(len(ran.ups)))
    task = study.new_task(client, ran.visits[client], round.number)
    offered: dict[str, Any] = method.client_model(ran.you[client], method.server_down(ran.all, client, round), task)
    return offered
