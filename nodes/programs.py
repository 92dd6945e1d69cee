"""Which program an actor runs, and which port it needs for that."""

from collections.abc import Callable
from functools import partial
from typing import Any

from nodes.client import ClientState, client
from nodes.coding import Exchanged, Told
from nodes.coordinator import coordinator
from nodes.dispatch import Outstanding, ServerState
from nodes.evaluation import Evaluated
from nodes.keeping import Keeper
from nodes.peer import peer
from nodes.peering import PeerState, Received
from nodes.server import server
from pflsim.messages.coordinator_port import CoordinatorPort
from pflsim.messages.licence import Arbiter
from pflsim.messages.peer_port import PeerPort
from pflsim.messages.port import Carrier, Port, Recorder
from pflsim.messages.wire import COORDINATOR, SERVER
from pflsim.study import Study
from pflsim.timing.clock import Clock

STATES = (ServerState, Outstanding, Told, ClientState, Evaluated, PeerState, Received, Exchanged)
"""What a checkpoint of actors is made of, beside their ports."""


def program_of(study: Study, name: str, keeper: Keeper | None = None) -> Callable[[Any], None]:
    """The program of the actor `name`, which is kept by `keeper` now and then."""
    if name == SERVER:
        return partial(server, study=study, keeper=keeper)
    if name == COORDINATOR:
        return partial(coordinator, study=study, keeper=keeper)
    return partial(peer if study.is_for_peers else client, study=study, number=study.number_of[name], keeper=keeper)


def port_of(study: Study, name: str, clock: Clock, carrier: Carrier, recorder: Recorder) -> Port:
    """The port of the actor `name`."""
    world = (name, study.run_id, clock, study.links, carrier, recorder, study.faults)
    if name == COORDINATOR:
        coordinators = CoordinatorPort(*world)
        coordinators.arbiter = Arbiter(study.names, study.least_latency_ns)
        return coordinators
    if study.is_for_peers:
        peers = PeerPort(*world, least_latency_ns=study.least_latency_ns)
        peers.codecs = study.codecs
        return peers
    port = Port(*world)
    port.codecs = study.codecs
    port.promises, port.cancels = study.promises, study.cancels
    return port
