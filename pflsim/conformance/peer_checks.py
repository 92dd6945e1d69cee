"""What every method without a server must satisfy: checks as in `pflsim.conformance.checks`.

The classification has a linear model and one with a hidden layer in turn, on the graph `LOPSIDED`: it has weights, a
node of one edge, and one of none.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import torch

from pflsim.conformance.checks import (
    ROUNDS,
    SHAPES,
    Check,
    is_a_frozen_dataclass_with_the_whole_interface,
    refused,
)
from pflsim.conformance.peer_rounds import on_graph, over_the_wire, run_peers
from pflsim.conformance.problems import classification
from pflsim.conformance.watching import Watched, require, same
from pflsim.errors import DescriptionError
from pflsim.federation import Neighbour, Round

LOPSIDED = np.zeros((5, 5))
for k, m, weight in ((0, 1, 0.25), (0, 2, 1.0), (1, 2, 0.5), (2, 3, 0.75)):
    LOPSIDED[k, m] = LOPSIDED[m, k] = weight
ALONE = 4


def problem_with(hidden: int | None = None, graph: np.ndarray = LOPSIDED, **training: Any) -> Any:
    """The classification, with a hidden layer or without, on a graph [5, 5]."""
    return on_graph(classification(graph=graph, hidden=hidden, **training), graph)


def taken(method: Any, graph: np.ndarray = LOPSIDED) -> Iterator[Any]:
    """The problems that the method does not refuse."""
    for hidden in (None, 6):
        problem = problem_with(hidden, graph)
        if not refused(method, problem):
            yield problem


def first_round(problem: Any) -> Round:
    """The first one."""
    return Round(0, (), problem.federation, problem.federation.training.step_size)


def stays_finite_does_the_work_it_declared_and_changes_no_argument(method: Any) -> None:
    """With steps, with epochs and with whole batches, as far as the method takes these."""
    for hidden, shape in product((None, 6), SHAPES.values()):
        problem = problem_with(**{"hidden": hidden} | shape)
        if not refused(method, problem):
            run_peers(Watched(method), problem, ROUNDS)


def gives_the_same_bits_again_and_over_the_wire(method: Any) -> None:
    """Whatever the method remembers outside of its states would show here."""
    for problem in taken(method):
        plain = run_peers(method, problem, ROUNDS).you
        require(same(plain, run_peers(method, problem, ROUNDS).you), "a second run gives other bits")
        wired = run_peers(Watched(method), problem, ROUNDS, over_the_wire).you
        require(same(plain, wired), "a run in which models cross the wire gives other bits")


def learns_alone_without_neighbours_and_changes_nobody(method: Any) -> None:
    """Where a peer has none for a round, nothing else happens to it either."""
    for problem, lonely in zip(taken(method), taken(method, np.zeros((5, 5))), strict=True):
        ran, nobody = run_peers(method, problem, ROUNDS), run_peers(method, lonely, ROUNDS)
        require(same(ran.you[ALONE], nobody.you[ALONE]), "a peer without neighbours learns from somebody")
        require(same(nobody.after, nobody.worked), "a peer changes without neighbours")
        after = method.peer_step(ran.you[0], [], first_round(problem))
        require(same(after, ran.you[0]), "peer_step changes a peer to which no neighbour came")


def ignores_neighbours_that_count_for_nothing_or_agree(method: Any) -> None:
    """Shares of 0, and models that are the peer's own."""
    for problem in taken(method):
        one, other = run_peers(method, problem, ROUNDS).you[:2]
        nothing = [Neighbour(1, method.peer_shows(other), 0.0, 0.0)]
        after = method.peer_step(one, nothing, first_round(problem))
        require(same(after, one), "a neighbour of weight 0 changes a peer")
        agreeing = [Neighbour(client, method.peer_shows(one), 0.5, 0.25) for client in (1, 2)]
        after = method.peer_step(one, agreeing, first_round(problem))
        for key, tensor in one.items():
            torch.testing.assert_close(after[key], tensor, rtol=1e-6, atol=1e-7)


def keeps_the_mean_of_what_two_show_that_exchange_models_and_all_else_of_both(method: Any) -> None:
    """What one gains the other gives."""
    for problem in taken(method):
        before = run_peers(method, problem, ROUNDS).you[:2]
        shown = [method.peer_shows(you) for you in before]
        met = zip(before, (Neighbour(1, shown[1], 0.8, 0.5), Neighbour(0, shown[0], 0.8, 0.5)), strict=True)
        after = [method.peer_step(you, [neighbour], first_round(problem)) for you, neighbour in met]
        for key in shown[0]:
            sums = [
                torch.stack([method.peer_shows(you)[key].double() for you in pair]).sum(0) for pair in (before, after)
            ]
            torch.testing.assert_close(sums[1], sums[0], rtol=1e-6, atol=1e-6)
        for was, now in zip(before, after, strict=True):
            private = was.keys() - shown[0]
            kept = same([was[key] for key in private], [now[key] for key in private])
            require(kept, "an exchange changes what a peer does not show")


def shows_part_of_its_state_and_no_more_than_a_model(method: Any) -> None:
    """So that a mixture of what neighbours show can take its place."""
    *_, problem = taken(method)  # with a hidden layer if it can be: of one layer alone nothing may be shared
    for you in run_peers(method, problem, ROUNDS).you:
        shown = method.peer_shows(you)
        own = all(any(torch.equal(tensor, other) for other in you.values()) for tensor in shown.values())
        require(own, "peer_shows shows what is no part of the state")
        size = sum(len(tensor) for tensor in shown.values())
        require(0 < size <= problem.federation.layout.dimension, "peer_shows shows nothing, or more than a model")


def keeps_the_names_types_and_shapes_of_its_state(method: Any) -> None:
    """Pairs add up what the work and what exchanges have changed, tensor by tensor."""
    for problem in taken(method):
        ran = run_peers(method, problem, 2)
        first = method.client_init(problem.client(0))
        expected = {key: (tensor.dtype, tensor.shape) for key, tensor in first.items()}
        for you in (*ran.worked[0], *ran.after[0], *ran.you):
            found = {key: (tensor.dtype, tensor.shape) for key, tensor in you.items()}
            require(found == expected, f"a state that began as {expected} became {found}")


def offers_models_that_can_be_evaluated_and_evaluating_changes_nothing(method: Any) -> None:
    """On the test part of every peer."""
    for problem in taken(method):
        for client, you in enumerate(run_peers(method, problem, ROUNDS).you):
            task = problem.new_task(client, ROUNDS, ROUNDS)
            models = Watched(method).client_model(you, {}, task)
            require(bool(models), "client_model offers no model")
            for name, model in models.items():
                require(task.evaluate(model).total == 3, f"the model {name!r} cannot be evaluated")


def accepts_its_defaults_and_needs_a_graph(method: Any) -> None:
    """Without a word on one of the two models at least; and it says so where there is no graph."""
    require(
        [] in [method.check(problem.federation) for problem in taken(method)], "check refuses or warns of its defaults"
    )
    graphless = replace(problem_with().federation, topology=None, graph=None)
    try:
        method.check(graphless)
    except DescriptionError as problem:
        require(problem.key == "topology", f"check complains of {problem.key} where there is no topology")
    else:
        require(False, "check accepts a federation without a graph")


PEER_CHECKS: tuple[Check, ...] = (
    is_a_frozen_dataclass_with_the_whole_interface,
    stays_finite_does_the_work_it_declared_and_changes_no_argument,
    gives_the_same_bits_again_and_over_the_wire,
    learns_alone_without_neighbours_and_changes_nobody,
    ignores_neighbours_that_count_for_nothing_or_agree,
    keeps_the_mean_of_what_two_show_that_exchange_models_and_all_else_of_both,
    shows_part_of_its_state_and_no_more_than_a_model,
    keeps_the_names_types_and_shapes_of_its_state,
    offers_models_that_can_be_evaluated_and_evaluating_changes_nothing,
    accepts_its_defaults_and_needs_a_graph,
)
