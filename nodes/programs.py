"""Which program an actor runs."""

from collections.abc import Callable
from functools import partial

from nodes.client import client
from nodes.server import server
from pflsim.messages.port import Port
from pflsim.study import Study


def program_of(study: Study, name: str) -> Callable[[Port], None]:
    """The program of the actor `name`."""
    if name == "server":
        return partial(server, study=study)
    return partial(client, study=study, number=study.number_of[name])
