"""Every method satisfies what `pflsim.conformance` asks; a new file in `algorithms/` is found and tested by itself.

Methods with a server run with their default settings on a small classification, half of the clients drawn in each
round; those of peers are in `tests/test_peer_conformance.py`.
"""

import ast
import importlib
from pathlib import Path
from typing import Any

import pytest

from pflsim import catalogue
from pflsim.algorithms.local import Local
from pflsim.conformance.checks import CHECKS, problem_with, sentence
from pflsim.conformance.rounds import run
from pflsim.conformance.watching import Watched
from pflsim.method import is_for_peers

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


def new(name: str) -> Any:
    return catalogue.find("algorithms", name, "algorithm.name")()


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("check", CHECKS, ids=sentence)
def test_a_method(check: Any, name: str) -> None:
    check(new(name))


@pytest.mark.parametrize("name", ALL_METHODS)
def test_a_method_says_what_it_is_and_imports_only_what_a_method_may_know(name: str) -> None:
    found = type(new(name))
    module = importlib.import_module(found.__module__)
    assert found.__doc__ and module.__doc__ and module.__file__
    for node in ast.walk(ast.parse(Path(module.__file__).read_text())):
        if isinstance(node, ast.Import):
            assert all(not alias.name.startswith(("pflsim", "random", "time")) for alias in node.names)
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0 and node.module
            assert not node.module.startswith("pflsim") or node.module.removeprefix("pflsim.") in MAY_IMPORT


class Careless(Local):
    """Changes its state in place, which would spoil a snapshot taken before the visit."""

    def client_step(self, you, down, task):  # type: ignore[no-untyped-def]
        you["w"].add_(1.0)
        return you, {}


class Diverging(Local):
    def client_step(self, you, down, task):  # type: ignore[no-untyped-def]
        return {"w": task.sgd(you["w"]) / 0.0}, {}


class Idle(Local):
    """Declares the work of a visit and does none of it."""

    def client_step(self, you, down, task):  # type: ignore[no-untyped-def]
        return you, {}


@pytest.mark.parametrize(
    ("method", "complaint"),
    [(Careless(), "changed an argument"), (Diverging(), "not finite"), (Idle(), "declared Work")],
)
def test_these_checks_notice_a_method_that_breaks_a_rule(method: Any, complaint: str) -> None:
    with pytest.raises(AssertionError, match=complaint):
        run(Watched(method), problem_with(), 1)
