"""Every method without a server satisfies what `pflsim.conformance` asks; a new one is found and tested by itself."""

from typing import Any

import pytest

from pflsim.algorithms.dpsgd import DPSGD
from pflsim.conformance.checks import sentence
from pflsim.conformance.peer_checks import PEER_CHECKS, problem_with
from pflsim.conformance.peer_rounds import run_peers
from pflsim.conformance.watching import Watched
from tests.test_conformance import PEER_METHODS, new


@pytest.mark.parametrize("name", PEER_METHODS)
@pytest.mark.parametrize("check", PEER_CHECKS, ids=sentence)
def test_a_method_of_peers(check: Any, name: str) -> None:
    check(new(name))


class Careless(DPSGD):
    """Changes its state in place, which would spoil what it has just shown."""

    def peer_step(self, you, neighbours, round):  # type: ignore[no-untyped-def]
        you["w"].add_(1.0)
        return you


class Diverging(DPSGD):
    def peer_step(self, you, neighbours, round):  # type: ignore[no-untyped-def]
        return {"w": you["w"] / 0.0}


class Idle(DPSGD):
    """Declares the work of a visit and does none of it."""

    def client_step(self, you, down, task):  # type: ignore[no-untyped-def]
        return you, {}


@pytest.mark.parametrize(
    ("method", "complaint"),
    [(Careless(), "changed an argument"), (Diverging(), "not finite"), (Idle(), "declared Work")],
)
def test_these_checks_notice_a_peer_method_that_breaks_a_rule(method: Any, complaint: str) -> None:
    with pytest.raises(AssertionError, match=complaint):
        run_peers(Watched(method), problem_with(), 1)
