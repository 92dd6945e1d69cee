"""What every method must satisfy: checks that need nothing but the method, on a small classification in this process.

Half of the clients are drawn in each round. A check returns if its rule holds, and raises `BrokenRule` if not;
`CHECKS` are those of a method with a server, by what they check, `PEER_CHECKS` of `pflsim.conformance.peer_checks` the
others.
"""

import dataclasses
import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch

from pflsim.conformance.problems import Problem, classification
from pflsim.conformance.rounds import models, run
from pflsim.conformance.watching import Watched, over_the_wire, require, same
from pflsim.errors import DescriptionError
from pflsim.method import OF_A_SERVER, OF_EVERYBODY, OF_PEERS, OPTIONAL, Method, PeerMethod, is_for_peers
from pflsim.outside import told
from pflsim.rng import stream

Check = Callable[[Any], None]

ROUNDS = 4
SHAPES: dict[str, dict[str, Any]] = {
    "steps": {},
    "epochs": {"local_steps": None, "local_epochs": 2},
    "whole batches": {"batch": 100},
    "a hidden layer": {"hidden": 6},
}


def problem_with(**training: Any) -> Problem:
    """The classification, whose clients are linked at random."""
    drawn = np.triu(stream(2, "graph").uniform(size=(5, 5)), 1)
    return classification(graph=drawn + drawn.T, **training)


def some_but_never_the_last(federation: Any, number: int) -> Sequence[int]:
    """A cohort of two."""
    drawn: list[int] = stream(3, "cohort", number).permutation(len(federation.clients) - 1)[:2].tolist()
    return drawn


def refused(method: Any, problem: Problem) -> bool:
    """Whether the method says that it cannot work on this problem."""
    try:
        if hasattr(method, "check"):
            method.check(problem.federation)
        return False
    except DescriptionError:
        return True


def taken(method: Any) -> Problem:
    """The linear classification, or the one with a hidden layer if the method refuses the former."""
    return problem_with() if not refused(method, problem_with()) else problem_with(hidden=6)


def is_a_frozen_dataclass_with_the_whole_interface(method: Any) -> None:
    """Every required part takes what it is given by its name, and nothing public is there that nobody would call."""
    found = type(method)
    frozen = dataclasses.is_dataclass(found) and found.__dataclass_params__.frozen  # type: ignore[attr-defined]
    require(frozen, f"{found.__name__} is no frozen dataclass")
    half, of_half = (PeerMethod, OF_PEERS) if is_for_peers(found) else (Method, OF_A_SERVER)
    for name in (*OF_EVERYBODY, *of_half):
        asked = list(inspect.signature(getattr(half if name in of_half else Method, name)).parameters)
        given = list(inspect.signature(getattr(found, name)).parameters)
        require(given == asked, f"{name} takes ({', '.join(given)}) instead of ({', '.join(asked)})")
    public = {attribute for attribute in vars(found) if not attribute.startswith("_")}
    settings = {field.name for field in dataclasses.fields(found)}
    unknown = sorted(public - {*OF_EVERYBODY, *of_half, *OPTIONAL, *settings})
    require(not unknown, f"nobody would call {', '.join(unknown)}: what only the method itself uses begins with _")


def stays_finite_does_the_work_it_declared_and_changes_no_argument(method: Any) -> None:
    """With steps, with epochs, with whole batches, and with a hidden layer, where the method takes these."""
    for settings in SHAPES.values():
        problem = problem_with(**settings)
        if not refused(method, problem):
            run(Watched(method), problem, ROUNDS, some_but_never_the_last)


def gives_the_same_bits_again_and_over_the_wire(method: Any) -> None:
    """Whatever the method remembers outside of its states would show here."""
    states = [
        (ran.all, ran.you)
        for watched in (method, method, Watched(method, over_the_wire))
        for ran in [run(watched, taken(method), ROUNDS, some_but_never_the_last)]
    ]
    require(same(states[0], states[1]), "a second run gives other bits")
    require(same(states[0], states[2]), "a run in which tensors cross the wire gives other bits")


def leaves_a_client_that_is_never_drawn_alone(method: Any) -> None:
    """Its state is the first one."""
    problem = taken(method)
    ran = run(method, problem, ROUNDS, some_but_never_the_last)
    require(ran.visits[4] == 0, "a client works that was not drawn")
    first = method.client_init(problem.client(4))
    require(first.keys() == ran.you[4].keys() and same(first, ran.you[4]), "the state of a client changed without work")


def changes_nothing_at_the_server_in_a_round_without_answers(method: Any) -> None:
    """Nobody may have been there, or answered in time."""
    ran = run(method, taken(method), 2, lambda _, number: [0, 1] if number == 0 else [])
    require(same(ran.server[1], ran.server[2]), "server_step changed the state though there were no answers")


def offers_models_that_can_be_evaluated_and_evaluating_changes_nothing(method: Any) -> None:
    """On the test part of every client, also of one that has never worked."""
    problem = taken(method)
    ran = run(method, problem, ROUNDS, some_but_never_the_last)
    for client in problem.federation.clients:
        evaluated = models(Watched(method), problem, ran, client)
        require(bool(evaluated), "client_model offers no model")
        for name, model in evaluated.items():
            result = problem.new_task(client, 0, 0).evaluate(model)
            right = 0 <= result.correct <= result.total == 3 and bool(np.isfinite(result.loss_sum))
            require(right, f"the model {name!r} cannot be evaluated")


def keeps_states_that_are_dictionaries_of_tensors(method: Any) -> None:
    """At the server, at the clients, and on the way."""
    ran = run(method, taken(method), 1)
    for state in (ran.all, *ran.you, *ran.ups[0].values()):
        holds = isinstance(state, dict) and all(
            isinstance(key, str) and isinstance(value, torch.Tensor) for key, value in state.items()
        )
        require(holds, "a state is no dictionary from names to tensors")


def accepts_its_defaults_without_a_word(method: Any) -> None:
    """On a linear model or on one with a hidden layer, at least."""
    problems = [problem for problem in (problem_with(), problem_with(hidden=6)) if not refused(method, problem)]
    require(bool(problems), "check refuses both a linear model and one with a hidden layer, with the default settings")
    if hasattr(method, "check"):
        require([] in [method.check(problem.federation) for problem in problems], "check warns of its own defaults")


CHECKS: tuple[Check, ...] = (
    is_a_frozen_dataclass_with_the_whole_interface,
    stays_finite_does_the_work_it_declared_and_changes_no_argument,
    gives_the_same_bits_again_and_over_the_wire,
    leaves_a_client_that_is_never_drawn_alone,
    changes_nothing_at_the_server_in_a_round_without_answers,
    offers_models_that_can_be_evaluated_and_evaluating_changes_nothing,
    keeps_states_that_are_dictionaries_of_tensors,
    accepts_its_defaults_without_a_word,
)


def sentence(check: Check) -> str:
    """What a check is about, in words."""
    return check.__name__.replace("_", " ")


def broken(method: Any, guarded: Any, checks: Sequence[Check]) -> Iterator[tuple[str, str]]:
    """Each check in words, and what it complains of ("" if its rule holds).

    `guarded` is the same method as `pflsim.own_method` has it; only of itself can be told what its class has.
    """
    for check in checks:
        try:
            check(method if check is is_a_frozen_dataclass_with_the_whole_interface else guarded)
        except AssertionError as problem:
            yield sentence(check), str(problem)
        except DescriptionError as problem:
            yield sentence(check), problem.expected
        except (Exception, SystemExit) as problem:  # whatever a method of somebody's raises
            yield sentence(check), told(problem)
        else:
            yield sentence(check), ""
