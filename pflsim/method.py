"""The interface of a method: what a file in `algorithms/` has to offer, on one page.

There is no base class. A method is a frozen dataclass whose fields are its settings and whose methods are
pure: they change none of their arguments, keep nothing, and draw only from the `.rng(purpose)` of what they
are given. What a client's task offers beside batches, gradients and descent: `fixed_batches` for what is kept for each
sample or batch, `within_limit` for a number of steps of one's own, `batch_loss`, and `spend` for work done by oneself.
All models start from `initial`; who needs further starts draws them by `federation.new_initial`.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeAlias

import torch

from pflsim.federation import Answer, Client, Federation, Neighbour, Round, Tensors
from pflsim.learning.task import Task, Work

Model: TypeAlias = torch.Tensor | Callable[[torch.Tensor], torch.Tensor]  # a vector [d], or inputs -> logits [b, C]

OF_EVERYBODY = ("client_init", "client_work", "client_step", "client_model")
OF_A_SERVER = ("server_init", "server_down", "server_step")
OF_PEERS = ("peer_shows", "peer_step")
OPTIONAL = (
    "check",
    "participants",
    "measures",
    "server_work",
    "server_arrival",
    "server_buffer",
    "mixes",
    "pools",
    "needs_public",
    "any_model",
    "varies",
)


def is_for_peers(method: object) -> bool:
    """Whether a method needs no server: its clients are peers, and it has the halves `OF_EVERYBODY` and `OF_PEERS`."""
    return hasattr(method, "peer_step")


def missing(found: object) -> list[str]:
    """What a class lacks to be a method."""
    other_half = OF_PEERS if is_for_peers(found) else OF_A_SERVER
    return [name for name in (*OF_EVERYBODY, *other_half) if not hasattr(found, name)]


def misfits(found: object) -> list[str]:
    """What of a class that lacks nothing cannot be called as a method's parts are, as it is and as it should be."""
    half_names: list[tuple[type, str]] = [(Method, name) for name in OF_EVERYBODY]
    half_names += [(PeerMethod, name) for name in OF_PEERS] if is_for_peers(found) else []
    half_names += [] if is_for_peers(found) else [(Method, name) for name in OF_A_SERVER]
    told = []
    for half, name in half_names:
        wanted = list(inspect.signature(getattr(half, name)).parameters)
        signature = inspect.signature(getattr(found, name))
        try:
            signature.bind(*wanted)
        except TypeError:
            told.append(f"{name} takes ({', '.join(signature.parameters)}) instead of ({', '.join(wanted)})")
    return told


class PeerMethod(Protocol):
    """What a method without a server has beside the client's half of `Method`, where nothing travels up or down.

    Its `client_step` and `client_model` are given {} for `down`, and what `client_step` wants to send up is not sent.
    """

    def peer_shows(self, you: Tensors) -> Tensors:
        """What of its state a peer sends to its neighbours."""

    def peer_step(self, you: Tensors, neighbours: Sequence[Neighbour], round: Round) -> Tensors:
        """The state after learning from what neighbours have shown, in ascending client id; one at least."""


class Method(Protocol):
    """The client's half and the server's half of a method; see `OPTIONAL` for what may be added.

    Optional, and looked for by name:
    - check(federation) -> list[str]           raises DescriptionError for what cannot work; returns warnings
    - participants(all, round, drawn) -> ids   who works this round, where that is not who was drawn
    - measures(all, round) -> dict             what to record of the server's state: numbers, or arrays
    - server_work(federation, answers) -> float  the FLOPs of a `server_step`: it costs simulated time
    - server_arrival(all, answer, weight, round) -> all   the asynchronous form: weight is alpha s(age), and
                                               `answer.weight` is s(age), for a method that mixes nothing
    - mixes = False                            such a method: its arrivals know no alpha
    - pools = True                             no federated method: all training data are moved to client 0
    - needs_public = True                      a tenth of the data is set aside for everybody, if nothing else is said
    - features                                 the outputs that the model is built with, where they are not the classes
    - any_model = True                         clients may have different models (`model.others`)
    - varies = True                            what clients send, or evaluate, has other names or shapes in later rounds
                                               than in the first; over a network it cannot be checked then
    - server_buffer(all, answers, weights, round) -> all   the buffered form: weights are rate s(age)
    """

    def client_init(self, client: Client) -> Tensors:
        """The private state, which never leaves the client."""

    def client_work(self, task: Task, down: Tensors) -> Work:
        """Exactly the samples that `client_step` will pass forward and backward; known before it starts."""

    def client_step(self, you: Tensors, down: Tensors, task: Task) -> tuple[Tensors, Tensors]:
        """One visit: the new private state, and what travels up."""

    def server_init(self, federation: Federation) -> Tensors:
        """The server's state before the first round."""

    def server_down(self, all: Tensors, client: int, round: Round) -> Tensors:
        """What travels down to `client`; the same tensor object for several clients is encoded once."""

    def server_step(self, all: Tensors, answers: Sequence[Answer], round: Round) -> Tensors:
        """The server's state after folding in the answers, which may be none, in ascending client id."""

    def client_model(self, you: Tensors, down: Tensors, task: Task) -> Mapping[str, Model]:
        """The models to evaluate on this client, headline first; `down` is what it would receive now."""
