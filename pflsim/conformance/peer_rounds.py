"""Rounds of peers as a plain loop: no processes, no messages, no clock; the oracle of the tests of peer methods."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import msgpack
import numpy as np

from pflsim.conformance.watching import require, title
from pflsim.federation import Neighbour, Round, Tensors
from pflsim.messages.wire import PUSH, Message, decode, encode_header, tensor_frames
from pflsim.topology import Topology

RUN_ID = b"tried"


@dataclass
class RanPeers:
    """What a run left: every peer's state after the last round, and what it was on the way."""

    you: list[Tensors]
    after: list[list[Tensors]] = field(default_factory=list)  # of each round, by peer
    worked: list[list[Tensors]] = field(default_factory=list)  # of each round, before the neighbours came


def on_graph(problem: Any, graph: np.ndarray) -> Any:
    """`problem`, whose federation knows `graph` [N, N] in every round."""
    federation = problem.federation
    fixed = Fixed("full", {}, federation.labels, federation.sizes, federation.seed)
    fixed.graph = graph
    return replace(problem, federation=replace(federation, graph=graph, topology=fixed))


class Fixed(Topology):
    """A topology that is one given matrix."""

    graph: np.ndarray | None = None

    def at(self, round: int) -> np.ndarray:
        return super().at(round) if self.graph is None else self.graph


def run_peers(
    method: Any, problem: Any, rounds: int, carried: Callable[[Tensors], Tensors] = lambda tensors: tensors
) -> RanPeers:
    """`rounds` rounds in step among the neighbours in the topology; `carried` is the way to them."""
    federation = problem.federation
    ran = RanPeers([method.client_init(problem.client(k)) for k in federation.clients])
    for number in range(rounds):
        round = Round(number, (), federation, federation.training.step_size_at(number))
        ran.worked.append([worked(method, problem, you, k, number) for k, you in enumerate(ran.you)])
        ran.you = mixed(method, ran.worked[-1], federation.topology, round, carried)
        ran.after.append(ran.you)
    return ran


def worked(method: Any, problem: Any, you: Tensors, peer: int, number: int) -> Tensors:
    """One peer's own work in one round; it must be the work that was declared, and nothing travels up."""
    task = problem.new_task(peer, number, number)
    declared = method.client_work(task, {})
    you, up = method.client_step(you, {}, task)
    require(up == {}, "client_step wants to send something up, and there is no server")
    require(task.spent == declared, f"{title(method)} declared {declared} and did {task.spent}")
    return you


def mixed(
    method: Any,
    states: list[Tensors],
    topology: Topology,
    round: Round,
    carried: Callable[[Tensors], Tensors] = lambda tensors: tensors,
) -> list[Tensors]:
    """What all peers learn from their neighbours, all at once."""
    graph, shares = topology.at(round.number), topology.mixing(round.number)
    shown = [carried(method.peer_shows(you)) for you in states]
    after = []
    for k, you in enumerate(states):
        linked = np.flatnonzero(graph[k]).tolist()
        there = [Neighbour(m, shown[m], float(graph[k, m]), float(shares[k, m])) for m in linked]
        after.append(method.peer_step(you, there, round) if there else you)
    return after


def over_the_wire(tensors: Tensors) -> Tensors:
    """What a neighbour makes of the bytes, in memory that starts anywhere."""
    descriptions, raw = tensor_frames(tensors)
    header = encode_header(Message(PUSH, "c000", "c001", round=1), RUN_ID, descriptions)
    frames = [memoryview(bytearray(8) + bytearray(frame))[8:] for frame in raw]
    return decode([header, msgpack.packb((0, 0, None, 0)), *frames], RUN_ID)[0].tensors
