"""The chaos test of a loss: whenever a peer dies and whenever the others hear of it, they go on to the end in order."""

from collections.abc import Sequence
from typing import Any

import pytest

from nodes.programs import port_of, program_of
from nodes.sequential import FactList
from pflsim.errors import BadMessage, RunFailed
from pflsim.messages.port import frame_sizes
from pflsim.messages.wire import COORDINATOR, HEARD, Frame, Message, decode
from pflsim.spec import validate
from pflsim.study import Study
from pflsim.timing.clock import VirtualClock
from tests.test_chaos import LINKS, ORDERS, RUN, Shuffled
from tests.test_peers_chaos import ENGINES, TOPOLOGIES, tables_of


class WithLoss(Shuffled):
    """Of one peer nothing comes from some moment on, be it sent or not; the coordinator hears of that later."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.dead = f"c{self._random.randrange(6):03d}"
        self._dies_in, self._is_told_in = self._random.randrange(400), self._random.choice([0, 5, 50, 500])
        self.is_dead = self.is_told = False

    def post(self, to: str, frames: Sequence[Frame]) -> None:
        if to != self.dead or not self.is_dead:
            super().post(to, frames)

    def part(self, actor: str) -> None:
        pass

    def run(self) -> None:
        for actor in self._random.sample(list(self._actors.values()), len(self._actors)):
            actor.switch()
        while self._waiting:
            self._happen()
            pairs = [pair for pair, frames in self._wire.items() if frames]
            ready = [name for name in sorted(self._waiting) if self._ports[name].may_go_on()]
            if not pairs and not ready and self.is_dead and not self.is_told:
                self._tell()
            elif not pairs and not ready:
                self._report()
            elif (choice := self._random.choice([*pairs, *ready, None])) is None:
                self._report(self._random.choice(sorted(self._waiting)))
            elif isinstance(choice, str):
                self._waiting.discard(choice)
                self._actors[choice].switch()
            else:
                self._deliver(choice)

    def _happen(self) -> None:
        if (
            self._ports[self.dead].state is None
            or self.is_told
            or (not self.is_dead and self.dead not in self._waiting)
        ):
            return
        if not self.is_dead and self._dies_in == 0:
            self.is_dead = True
            self._waiting.discard(self.dead)
            for (sender, to), frames in self._wire.items():
                left = (
                    0
                    if to == self.dead
                    else self._random.randint(0, len(frames))
                    if sender == self.dead
                    else len(frames)
                )
                while len(frames) > left:
                    frames.pop()
        elif self.is_dead and self._is_told_in == 0:
            self._tell()
        elif self.is_dead:
            self._is_told_in -= 1
        else:
            self._dies_in -= 1

    def _tell(self) -> None:
        self.is_told = True
        self._ports[COORDINATOR].lose(self.dead)

    def _deliver(self, pair: tuple[str, str]) -> None:
        message, stamp = decode(frames := self._wire[pair].popleft(), RUN)
        try:
            if self.is_told and pair == (self.dead, COORDINATOR):
                raise BadMessage("it has left the run")
            self._ports[pair[1]].deliver(message, stamp, frame_sizes(frames))
        except BadMessage:
            assert message.sender == self.dead, "what those say who go on is in order"


def test_a_peer_that_is_lost_before_all_have_met_ends_the_run() -> None:
    study, carrier = Study(validate(tables_of("sync")), RUN), Shuffled(1)
    port = port_of(study, COORDINATOR, VirtualClock(), carrier, FactList())
    carrier.add(port, program_of(study, COORDINATOR))
    port.lose("c001")
    with pytest.raises(RunFailed, match="c001: is lost before the run has begun"):
        carrier.run()


@pytest.mark.parametrize("actor", ["c001", [], None])
def test_nobody_has_heard_of_a_loss_that_was_not(actor: object) -> None:
    study = Study(validate(tables_of("sync")), RUN)
    port = port_of(study, COORDINATOR, VirtualClock(), Shuffled(1), FactList())
    with pytest.raises(BadMessage, match=r"c000 has heard that .* has left, which it has not"):
        port.deliver(Message(HEARD, "c000", COORDINATOR, facts={"actor": actor}), [0, 0, None, 0], (0, 0, 0))


def assert_others_go_on(tables: dict[str, Any], seed: int) -> bool:
    """Whether somebody was lost before the end; then the others have done all their rounds in simulated order."""
    study, carrier, told = Study(validate(tables), RUN), WithLoss(seed), FactList()
    for name in (study.hub, *study.names):
        carrier.add(port_of(study, name, VirtualClock(), carrier, told), program_of(study, name))
    carrier.run()
    if carrier.is_told:
        finished = told.finished()
        assert finished["rounds"] == study.rounds
        done = {
            (fact[2], fact[1]) for fact in told.facts if fact[0] == "steps" and study.names[fact[2]] != carrier.dead
        }
        stay = [peer for peer, name in enumerate(study.names) if name != carrier.dead]
        assert done == {(peer, round + 1) for peer in stay for round in range(study.rounds)}
    return carrier.is_told


@pytest.mark.parametrize("topology", TOPOLOGIES)
@pytest.mark.parametrize("engine", ENGINES)
def test_whenever_a_peer_is_lost_the_others_go_on_to_the_end(engine: str, topology: str) -> None:
    tables = tables_of(engine, topology=topology, algorithm="dpsgd", links=LINKS["wifi"])
    lost = [assert_others_go_on(tables, seed) for seed in range(2 * ORDERS)]
    assert any(lost)
