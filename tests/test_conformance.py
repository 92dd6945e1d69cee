"""What every method must satisfy; a new file in `algorithms/` is found and tested without being named here.

Each method with a server runs with its default settings on a small classification, half of the clients drawn in each
round; those of peers run in `tests/test_peer_conformance.py`.
"""

import ast
import dataclasses
import importlib
import inspect
from pathlib import Path

import numpy as np
import pytest
import torch

from pflsim import catalogue
from pflsim.algorithms.local import Local
from pflsim.errors import DescriptionError
from pflsim.method import OF_A_SERVER, OF_EVERYBODY, OF_PEERS, OPTIONAL, Method, PeerMethod, is_for_peers
from pflsim.rng import stream
from tests.problems import classification
from tests.rounds import models, run

ALL_METHODS = catalogue.names("algorithms")
PEER_METHODS = [name for name in ALL_METHODS if is_for_peers(catalogue.find("algorithms", name, "algorithm.name"))]
METHODS = [name for name in ALL_METHODS if name not in PEER_METHODS]
MAY_IMPORT = {
    "algorithms.cgpfl",
    "clustering.geometry",
    "clustering.kmeans",
    "clustering.labels",
    "clustering.merging",
    "clustering.uploads",
    "errors",
    "rng",
    "federation",
    "stragglers",
    "topology",
    "learning.simplex",
    "moreau",
    "learning.loss",
    "learning.vector",
    "learning.task",
    "learning.whole_data",
}
ROUNDS = 4
SHAPES = {
    "steps": {},
    "epochs": {"local_steps": None, "local_epochs": 2},
    "whole batches": {"batch": 100},
    "a hidden layer": {"hidden": 6},
}


def new(name):
    return catalogue.find("algorithms", name, "algorithm.name")()


def problem_with(**training):
    drawn = np.triu(stream(2, "graph").uniform(size=(5, 5)), 1)
    return classification(graph=drawn + drawn.T, **training)


def some_but_never_the_last(federation, number):
    return stream(3, "cohort", number).permutation(len(federation.clients) - 1)[:2].tolist()


def refused(method, problem):
    """Whether the method says that it cannot work on this problem."""
    try:
        if hasattr(method, "check"):
            method.check(problem.federation)
        return False
    except DescriptionError:
        return True


def tensors_in(value):
    """Every tensor that can be reached from an argument or a result."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        return [tensor for part in value.values() for tensor in tensors_in(part)]
    if isinstance(value, list | tuple):
        return [tensor for part in value for tensor in tensors_in(part)]
    if dataclasses.is_dataclass(value):
        return tensors_in([getattr(value, field.name) for field in dataclasses.fields(value)])
    return []


class Watched:
    """A method whose every call is checked: arguments stay as they are, results are finite."""

    def __init__(self, method, on_wire=lambda tensors: tensors):
        self._method, self._on_wire = method, on_wire

    def __getattr__(self, name):
        called = getattr(self._method, name)
        if not callable(called):
            return called

        def watched(*arguments):
            before = [tensor.clone() for tensor in tensors_in(arguments)]
            result = called(*arguments)
            for tensor, copy in zip(tensors_in(arguments), before, strict=True):
                assert torch.equal(tensor, copy), f"{name} changed an argument"
            for tensor in tensors_in(result):
                assert torch.isfinite(tensor).all(), f"{name} returned a value that is not finite"
            if name == "server_down":
                return self._on_wire(result)
            return (result[0], self._on_wire(result[1])) if name == "client_step" else result

        return watched


def over_the_wire(tensors):
    """What the receiver makes of the bytes, in memory that starts anywhere."""
    arrived = {}
    for name, tensor in tensors.items():
        assert tensor.dtype in (torch.float32, torch.int64), f"{name} travels as {tensor.dtype}"
        frame = bytearray(8) + bytearray(tensor.contiguous().numpy().tobytes())
        arrived[name] = torch.frombuffer(frame, dtype=tensor.dtype, offset=8).reshape(tensor.shape)
    return arrived


def same_states(one, other):
    return all(
        torch.equal(a, b)
        for a, b in zip(tensors_in([one.all, one.you]), tensors_in([other.all, other.you]), strict=True)
    )


@pytest.mark.parametrize("name", ALL_METHODS)
def test_a_method_is_a_frozen_dataclass_with_the_whole_interface(name):
    found = type(new(name))
    half, of_half = (PeerMethod, OF_PEERS) if name in PEER_METHODS else (Method, OF_A_SERVER)
    assert dataclasses.is_dataclass(found) and found.__dataclass_params__.frozen
    assert found.__doc__ and importlib.import_module(found.__module__).__doc__
    for required in (*OF_EVERYBODY, *of_half):
        asked = list(inspect.signature(getattr(half if required in of_half else Method, required)).parameters)
        assert list(inspect.signature(getattr(found, required)).parameters) == asked, required
    public = {attribute for attribute in vars(found) if not attribute.startswith("_")}
    settings = {field.name for field in dataclasses.fields(found)}
    assert public <= {*OF_EVERYBODY, *of_half, *OPTIONAL, *settings}


@pytest.mark.parametrize("name", ALL_METHODS)
def test_a_method_imports_only_what_a_method_may_know(name):
    module = importlib.import_module(type(new(name)).__module__)
    for node in ast.walk(ast.parse(Path(module.__file__).read_text())):
        if isinstance(node, ast.Import):
            assert all(not alias.name.startswith(("pflsim", "random", "time")) for alias in node.names)
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0
            assert not node.module.startswith("pflsim") or node.module.removeprefix("pflsim.") in MAY_IMPORT


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("shape", SHAPES)
def test_a_method_stays_finite_does_the_work_it_declared_and_changes_no_argument(name, shape):
    problem = problem_with(**SHAPES[shape])
    if refused(new(name), problem):
        pytest.skip("the method refuses such a model")
    run(Watched(new(name)), problem, ROUNDS, some_but_never_the_last)


@pytest.mark.parametrize("name", METHODS)
def test_a_method_gives_the_same_bits_again_and_over_the_wire(name):
    plain = run(new(name), problem_with(), ROUNDS, some_but_never_the_last)
    assert same_states(plain, run(new(name), problem_with(), ROUNDS, some_but_never_the_last))
    assert same_states(plain, run(Watched(new(name), over_the_wire), problem_with(), ROUNDS, some_but_never_the_last))


@pytest.mark.parametrize("name", METHODS)
def test_a_client_that_is_never_drawn_keeps_its_state(name):
    method, problem = new(name), problem_with()
    ran = run(method, problem, ROUNDS, some_but_never_the_last)
    assert ran.visits[4] == 0
    first = method.client_init(problem.client(4))
    assert first.keys() == ran.you[4].keys()
    assert all(torch.equal(first[key], ran.you[4][key]) for key in first)


@pytest.mark.parametrize("name", METHODS)
def test_a_round_without_answers_changes_nothing_at_the_server(name):
    method, problem = new(name), problem_with()
    ran = run(method, problem, 2, lambda _, number: [0, 1] if number == 0 else [])
    assert all(torch.equal(a, b) for a, b in zip(tensors_in(ran.server[1]), tensors_in(ran.server[2]), strict=True))


@pytest.mark.parametrize("name", METHODS)
def test_a_method_offers_models_that_can_be_evaluated_and_evaluating_changes_nothing(name):
    problem = problem_with()
    ran = run(new(name), problem, ROUNDS, some_but_never_the_last)
    for client in problem.federation.clients:
        evaluated = models(Watched(new(name)), problem, ran, client)
        assert evaluated
        for model in evaluated.values():
            result = problem.new_task(client, 0, 0).evaluate(model)
            assert 0 <= result.correct <= result.total == 3
            assert np.isfinite(result.loss_sum)


@pytest.mark.parametrize("name", METHODS)
def test_states_are_dictionaries_of_tensors(name):
    ran = run(new(name), problem_with(), 1)
    for state in (ran.all, *ran.you, *ran.ups[0].values()):
        assert isinstance(state, dict)
        assert all(isinstance(key, str) and isinstance(value, torch.Tensor) for key, value in state.items())


@pytest.mark.parametrize("name", METHODS)
def test_a_method_accepts_its_defaults_without_a_word_on_a_linear_model_or_on_one_with_a_hidden_layer(name):
    method = new(name)
    problems = [problem_with(), problem_with(hidden=6)]
    assert not all(refused(method, problem) for problem in problems)
    if hasattr(method, "check"):
        assert [] in [method.check(problem.federation) for problem in problems if not refused(method, problem)]


class Careless(Local):
    """Changes its state in place, which would spoil a snapshot taken before the visit."""

    def client_step(self, you, down, task):
        you["w"].add_(1.0)
        return you, {}


class Diverging(Local):
    def client_step(self, you, down, task):
        return {"w": task.sgd(you["w"]) / 0.0}, {}


class Idle(Local):
    """Declares the work of a visit and does none of it."""

    def client_step(self, you, down, task):
        return you, {}


@pytest.mark.parametrize(
    ("method", "complaint"),
    [(Careless(), "changed an argument"), (Diverging(), "not finite"), (Idle(), "declared Work")],
)
def test_these_checks_notice_a_method_that_breaks_a_rule(method, complaint):
    with pytest.raises(AssertionError, match=complaint):
        run(Watched(method), problem_with(), 1)
