"""What every method without a server must satisfy; a new file in `algorithms/` is found and tested without being named.

Each method runs with its default settings on a small classification, once with a linear model and once with a hidden
layer, on the graph `LOPSIDED`: it has weights, a node of one edge, and one of none.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch

from pflsim.algorithms.dpsgd import DPSGD
from pflsim.errors import DescriptionError
from pflsim.federation import Neighbour, Round
from tests.peer_rounds import on_graph, over_the_wire, run_peers
from tests.problems import classification
from tests.test_conformance import PEER_METHODS, ROUNDS, SHAPES, Watched, new, tensors_in

LOPSIDED = np.zeros((5, 5))
for k, m, weight in ((0, 1, 0.25), (0, 2, 1.0), (1, 2, 0.5), (2, 3, 0.75)):
    LOPSIDED[k, m] = LOPSIDED[m, k] = weight
ALONE = 4

every_method = pytest.mark.parametrize("name", PEER_METHODS)
every_model = pytest.mark.parametrize("hidden", [None, 6], ids=["linear", "hidden"])


def problem_with(hidden=None, graph=LOPSIDED, **training):
    return on_graph(classification(graph=graph, hidden=hidden, **training), graph)


def same_states(one, other):
    return all(torch.equal(a, b) for a, b in zip(tensors_in(one), tensors_in(other), strict=True))


def first_round(problem):
    return Round(0, (), problem.federation, problem.federation.training.step_size)


@every_method
@every_model
@pytest.mark.parametrize("shape", SHAPES)
def test_a_peer_stays_finite_does_the_work_it_declared_and_changes_no_argument(name, hidden, shape):
    run_peers(Watched(new(name)), problem_with(**{"hidden": hidden} | SHAPES[shape]), ROUNDS)


@every_method
@every_model
def test_peers_give_the_same_bits_again_and_over_the_wire(name, hidden):
    plain = run_peers(new(name), problem_with(hidden), ROUNDS).you
    assert same_states(plain, run_peers(new(name), problem_with(hidden), ROUNDS).you)
    assert same_states(plain, run_peers(Watched(new(name)), problem_with(hidden), ROUNDS, over_the_wire).you)


@every_method
@every_model
def test_a_peer_without_neighbours_learns_alone_and_changes_nobody(name, hidden):
    """Where it has none for a round, nothing else happens to it either."""
    method, problem = new(name), problem_with(hidden)
    ran = run_peers(method, problem, ROUNDS)
    nobody = run_peers(method, problem_with(hidden, np.zeros((5, 5))), ROUNDS)
    assert same_states(ran.you[ALONE], nobody.you[ALONE])
    assert same_states(nobody.after, nobody.worked)
    assert same_states(method.peer_step(ran.you[0], [], first_round(problem)), ran.you[0])


@every_method
@every_model
def test_neighbours_that_count_for_nothing_or_agree_change_nothing(name, hidden):
    method, problem = new(name), problem_with(hidden)
    one, other = run_peers(method, problem, ROUNDS).you[:2]
    nothing = [Neighbour(1, method.peer_shows(other), 0.0, 0.0)]
    assert same_states(method.peer_step(one, nothing, first_round(problem)), one)
    agreeing = [Neighbour(client, method.peer_shows(one), 0.5, 0.25) for client in (1, 2)]
    after = method.peer_step(one, agreeing, first_round(problem))
    for key, tensor in one.items():
        torch.testing.assert_close(after[key], tensor, rtol=1e-6, atol=1e-7)


@every_method
@every_model
def test_an_exchange_between_two_keeps_the_mean_of_what_they_show_and_all_else_of_both(name, hidden):
    method, problem = new(name), problem_with(hidden)
    before = run_peers(method, problem, ROUNDS).you[:2]
    shown = [method.peer_shows(you) for you in before]
    met = zip(before, (Neighbour(1, shown[1], 0.8, 0.5), Neighbour(0, shown[0], 0.8, 0.5)), strict=True)
    after = [method.peer_step(you, [neighbour], first_round(problem)) for you, neighbour in met]
    for key in shown[0]:
        sums = [sum(method.peer_shows(you)[key].double() for you in pair) for pair in (before, after)]
        torch.testing.assert_close(sums[1], sums[0], rtol=1e-6, atol=1e-6)
    for was, now in zip(before, after, strict=True):
        assert same_states([was[key] for key in was.keys() - shown[0]], [now[key] for key in was.keys() - shown[0]])


@every_method
def test_what_a_peer_shows_is_part_of_its_state_and_no_more_than_a_model(name):
    method, problem = new(name), problem_with(hidden=6)
    for you in run_peers(method, problem, ROUNDS).you:
        shown = method.peer_shows(you)
        assert all(any(torch.equal(tensor, own) for own in you.values()) for tensor in shown.values())
        assert 0 < sum(len(tensor) for tensor in shown.values()) <= problem.federation.layout.dimension


@every_method
@every_model
def test_a_peers_state_keeps_its_names_types_and_shapes(name, hidden):
    """Pairs add up what the work and what exchanges have changed, tensor by tensor."""
    method, problem = new(name), problem_with(hidden)
    ran = run_peers(method, problem, 2)
    expected = {key: (tensor.dtype, tensor.shape) for key, tensor in method.client_init(problem.client(0)).items()}
    for you in (*ran.worked[0], *ran.after[0], *ran.you):
        assert {key: (tensor.dtype, tensor.shape) for key, tensor in you.items()} == expected


@every_method
@every_model
def test_a_peer_offers_models_that_can_be_evaluated_and_evaluating_changes_nothing(name, hidden):
    problem = problem_with(hidden)
    for client, you in enumerate(run_peers(new(name), problem, ROUNDS).you):
        task = problem.new_task(client, ROUNDS, ROUNDS)
        models = Watched(new(name)).client_model(you, {}, task)
        assert models
        for model in models.values():
            assert task.evaluate(model).total == 3


@every_method
def test_a_peer_method_accepts_its_defaults_and_needs_a_graph(name):
    said = [new(name).check(problem_with(hidden).federation) for hidden in (None, 6)]
    assert [] in said
    graphless = replace(problem_with().federation, topology=None, graph=None)
    with pytest.raises(DescriptionError, match=f"^topology = None: {name} needs a graph"):
        new(name).check(graphless)


class Careless(DPSGD):
    """Changes its state in place, which would spoil what it has just shown."""

    def peer_step(self, you, neighbours, round):
        you["w"].add_(1.0)
        return you


class Diverging(DPSGD):
    def peer_step(self, you, neighbours, round):
        return {"w": you["w"] / 0.0}


class Idle(DPSGD):
    """Declares the work of a visit and does none of it."""

    def client_step(self, you, down, task):
        return you, {}


@pytest.mark.parametrize(
    ("method", "complaint"),
    [(Careless(), "changed an argument"), (Diverging(), "not finite"), (Idle(), "declared Work")],
)
def test_these_checks_notice_a_peer_method_that_breaks_a_rule(method, complaint):
    with pytest.raises(AssertionError, match=complaint):
        run_peers(Watched(method), problem_with(), 1)
