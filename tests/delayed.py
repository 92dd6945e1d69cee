"""Methods whose processes send and take every message after a random while, from no seed at all.

Importing this file with `PFLSIM_TEST_DELAY_S` in the environment, the longest delay, slows down the mailroom.
"""

import os
import random
import time
from collections.abc import Sequence
from typing import Any

from nodes.mailroom import Mailroom
from pflsim.algorithms.dfedu import DFedU
from pflsim.algorithms.dpsgd import DPSGD
from pflsim.algorithms.fedavg import FedAvg
from pflsim.messages.wire import Frame

DELAY = "PFLSIM_TEST_DELAY_S"


class DelayedDFedU(DFedU):
    """dFedU over slow processes."""


class DelayedGossip(DPSGD):
    """D-PSGD over slow processes."""


class DelayedFedAvg(FedAvg):
    """FedAvg over slow processes."""


def _wait(longest_s: float) -> None:
    time.sleep(random.SystemRandom().uniform(0.0, longest_s))


def _slow_down(longest_s: float) -> None:
    post, dispatch = Mailroom.post, Mailroom._dispatch

    def slow_post(self: Mailroom, to: str, frames: Sequence[Frame]) -> None:
        _wait(longest_s)
        post(self, to, frames)

    def slow_dispatch(self: Mailroom, frames: list[Any]) -> None:
        _wait(longest_s)
        dispatch(self, frames)

    Mailroom.post, Mailroom._dispatch = slow_post, slow_dispatch  # type: ignore[method-assign]


if DELAY in os.environ:
    _slow_down(float(os.environ[DELAY]))
