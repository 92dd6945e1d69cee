"""The chaos test: whatever real order messages arrive in, a run gives the bits that the sequential driver gives."""

import os
import random
import secrets
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from greenlet import greenlet

from nodes.programs import port_of, program_of
from nodes.sequential import FactList, run_sequentially
from pflsim.messages.peer_port import PeerPort
from pflsim.messages.port import Port, frame_sizes
from pflsim.messages.wire import Frame, decode
from pflsim.spec import validate
from pflsim.study import Study
from pflsim.timing.clock import VirtualClock
from tests.launching import description

RUN = b"8 bytes."
ORDERS = int(os.environ.get("PFLSIM_ORDERS", "3"))
Program = Callable[[Port], None]


class Shuffled:
    """A carrier like the real one, whose frames take any time: only those of one pair keep their order."""

    def __init__(self, seed: int) -> None:
        self._random, self._hub = random.Random(seed), greenlet.getcurrent()
        self._ports: dict[str, Port] = {}
        self._actors: dict[str, greenlet] = {}
        self._wire: dict[tuple[str, str], deque[list[bytes]]] = {}
        self._waiting: set[str] = set()

    def add(self, port: Port, program: Program) -> None:
        self._ports[port.name] = port
        self._actors[port.name] = greenlet(lambda: program(port), parent=self._hub)

    def post(self, to: str, frames: Sequence[Frame]) -> None:
        copies = [bytes(frame) for frame in frames]
        sender = decode(copies, RUN)[0].sender
        self._wire.setdefault((sender, to), deque()).append(copies)

    def wait_for_mail(self, port: Port) -> None:
        while not port.may_go_on():
            self._waiting.add(port.name)
            self._hub.switch()

    def wait_until(self, port: Port, until_ns: int) -> None:
        pass

    place = ("", "")

    def meet(self, actor: str, process: str, endpoint: str) -> None:
        pass

    def run(self) -> None:
        """Deliver in any order, and give anybody a turn who may go on."""
        for actor in self._random.sample(list(self._actors.values()), len(self._actors)):
            actor.switch()
        while self._waiting:
            pairs = [pair for pair, frames in self._wire.items() if frames]
            ready = [name for name in sorted(self._waiting) if self._ports[name].may_go_on()]
            if not pairs and not ready:
                self._report()
                continue
            choice = self._random.choice([*pairs, *ready, None])
            if choice is None:
                self._report(self._random.choice(sorted(self._waiting)))
            elif isinstance(choice, str):
                self._waiting.discard(choice)
                self._actors[choice].switch()
            else:
                message, stamp = decode(frames := self._wire[choice].popleft(), RUN)
                self._ports[choice[1]].deliver(message, stamp, frame_sizes(frames))

    def _report(self, *names: str) -> None:
        """Let peers tell the arbiter that nothing comes; somebody must have something to say if nobody is named."""
        ports = [self._ports[name] for name in names or sorted(self._waiting)]
        wants = not names or self._random.random() < 0.5
        reported = [port.report(wants=wants) for port in ports if isinstance(port, PeerPort)]
        if not names and not any(reported):
            waits = {name: self._ports[name].waits_for() for name in sorted(self._waiting)}
            raise AssertionError(f"everybody waits for somebody else: {waits}")


ENGINES: dict[str, dict[str, Any]] = {
    "sync": {"kind": "sync", "sampling": "uniform", "cohort": 3},
    "choice": {"kind": "sync", "sampling": {"kind": "power-of-choice", "candidates": 4}, "cohort": 2},
    "fresh": {
        "kind": "sync",
        "sampling": {"kind": "power-of-choice", "candidates": 4, "fresh": True},
        "cohort": 2,
    },
    "fresh until": {
        "kind": "deadline",
        "deadline_s": 0.01,
        "sampling": {"kind": "power-of-choice", "candidates": 5, "fresh": True},
        "cohort": 2,
        "late": "cancel",
    },
    "fresh and carried": {
        "kind": "deadline",
        "deadline_s": 0.01,
        "sampling": {"kind": "power-of-choice", "candidates": 4, "fresh": True},
        "cohort": 2,
        "late": "carry",
    },
    "drop": {"kind": "deadline", "deadline_s": 0.02, "cohort": 3, "over": 1.6},
    "carry": {"kind": "deadline", "deadline_s": 0.02, "cohort": 4, "minimum": 2, "late": "carry"},
    "cancel": {"kind": "deadline", "deadline_s": 0.02, "cohort": 3, "over": 1.6, "late": "cancel"},
    "partial": {"kind": "deadline", "deadline_s": 0.02, "cohort": 3, "late": "partial"},
    "fedasync": {"kind": "fedasync", "concurrency": 3},
    "stale": {"kind": "fedasync", "concurrency": 5, "max_staleness": 2, "staleness": "hinge", "staleness_b": 1},
    "timeout": {"kind": "fedasync", "concurrency": 4, "timeout_s": 0.2},
    "same": {"kind": "fedasync", "concurrency": 3, "same": True, "alpha_decay": 0.5},
    "fedbuff": {"kind": "fedbuff", "concurrency": 4, "buffer": 3},
    "unique": {"kind": "fedbuff", "concurrency": 4, "buffer": 3, "unique": True},
}


LINKS: dict[str, Any] = {
    "ideal": "ideal",
    "wifi": "wifi",
    "4g": "4g",
    "lossy": {
        "client": {"uplink_mbps": {"kind": "lognormal", "mbps": 2.0, "spread": 1.0}, "downlink_mbps": 5.0},
        "server": {"uplink_mbps": 10.0, "downlink_mbps": 10.0},
        "latency_ms": 5.0,
        "jitter_ms": 5.0,
        "loss": 0.2,
        "retransmit_ms": 30.0,
    },
}

AVAILABILITY: dict[str, Any] = {
    "always": "always",
    "markov": {"kind": "markov", "on_s": 0.05, "off_s": 0.02},
    "bernoulli": {"kind": "bernoulli", "probability": 0.7, "period_s": 0.03},
    "diurnal": {"kind": "diurnal", "duty": 0.6, "period_s": 0.1},
}

ALL_KINDS = AVAILABILITY | {
    "trace": {"kind": "trace", "file": str(Path(__file__).with_name("there.csv")), "repeat_s": 0.4},
}
"""The trace is of five clients."""

FAULTS: dict[str, list[dict[str, Any]]] = {
    "nothing": [],
    "crash": [{"kind": "crash", "clients": ["c001", 3], "at_s": 0.02, "until_s": 0.06, "keeps_state": False}],
    "crash in rounds": [{"kind": "crash", "clients": [1], "at_round": 1, "until_round": 3, "keeps_state": True}],
    "partition": [{"kind": "partition", "groups": [["others"], ["c000", 2]], "at_s": 0.01, "until_s": 0.05}],
    "slow link": [{"kind": "slow-link", "factor": 10.0, "clients": [4], "at_s": 0.01}],
    "duplicate": [{"kind": "duplicate", "probability": 0.5}],
    "reorder": [{"kind": "reorder", "probability": 0.5, "delay_s": 0.02}],
}


LOSING: dict[str, list[dict[str, Any]]] = {
    "lose": [{"kind": "lose", "probability": 0.2}],
    "cut for ever": [{"kind": "partition", "groups": [["others"], ["c000"]], "at_s": 0.03}],
}


def tables_of(engine: str, **settings: Any) -> dict[str, Any]:
    """Five clients that take a while, each visit another one."""
    slow = {"devices__flops_per_second": 2e6, "devices__jitter": 0.5, "run__rounds": 5, "run__eval_every": 2}
    return description(run__clients=5, schedule=ENGINES[engine], **slow, **settings)


def shuffled(tables: dict[str, Any], seed: int, *, promises: bool = True) -> dict[str, Any]:
    """What a run tells at its end whose messages arrive in an order that `seed` decides."""
    study, told, carrier = Study(validate(tables), RUN), FactList(), Shuffled(seed)
    for name in (study.hub, *study.names):
        port = port_of(study, name, VirtualClock(), carrier, told)
        port.promises = promises and port.promises
        carrier.add(port, program_of(study, name))
    carrier.run()
    return told.finished()


def assert_same(found: dict[str, Any], tables: dict[str, Any]) -> None:
    expected = run_sequentially(Study(validate(tables), RUN)).finished()
    for said in ("digest", "trace_digest", "simulated_s", "rounds"):
        assert found[said] == expected[said]


@pytest.mark.parametrize("promises", [True, False])
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("links", LINKS)
@pytest.mark.parametrize("seed", range(4))
def test_a_run_is_the_same_in_whatever_order_its_messages_really_arrive(
    seed: int, links: str, engine: str, promises: bool
) -> None:
    tables = tables_of(engine, links=LINKS[links])
    assert_same(shuffled(tables, seed, promises=promises), tables)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("availability", ALL_KINDS)
def test_so_it_is_whoever_leaves_and_whatever_goes_wrong(availability: str, fault: str, engine: str) -> None:
    tables = tables_of(engine, links="4g", availability=ALL_KINDS[availability], fault=FAULTS[fault])
    assert_same(shuffled(tables, 1), tables)


@pytest.mark.parametrize("engine", ["cancel", "timeout", "fresh until"])
@pytest.mark.parametrize("fault", LOSING)
@pytest.mark.parametrize("links", LINKS)
@pytest.mark.parametrize("seed", range(ORDERS))
def test_so_it_is_when_messages_never_arrive(seed: int, links: str, fault: str, engine: str) -> None:
    tables = tables_of(engine, links=LINKS[links], fault=LOSING[fault])
    assert_same(shuffled(tables, seed), tables)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("links", ["lossy", "ideal"])
@pytest.mark.parametrize("engine", ENGINES)
def test_so_it_is_in_more_orders_with_and_without_links_that_are_shared(engine: str, links: str) -> None:
    """`PFLSIM_ORDERS` says in how many; the last is another one each time, and told when it fails."""
    for fault in FAULTS.values():
        for availability in ALL_KINDS.values():
            tables = tables_of(engine, links=LINKS[links], availability=availability, fault=fault)
            expected = run_sequentially(Study(validate(tables), RUN)).finished()
            for seed in (*range(ORDERS - 1), secrets.randbits(32)):
                found = shuffled(tables, seed)
                both = found["digest"], found["trace_digest"]
                assert both == (expected["digest"], expected["trace_digest"]), f"in the order of seed {seed}"


def test_who_is_cancelled_while_away_and_works_again_at_once_is_never_too_late() -> None:
    """The sequential driver must let it go on before the server takes what comes after its next answer."""
    same = {"kind": "fedasync", "concurrency": 6, "same": True, "alpha_decay": 0.5, "timeout_s": 0.1}
    tables = description(
        run__clients=6,
        run__rounds=2,
        run__seed=26,
        run__patience_s=60.0,
        algorithm={"name": "pfedme"},
        schedule=same,
        links="ideal",
        availability=AVAILABILITY["markov"],
        devices__flops_per_second=2e5,
        devices__server_flops_per_second="workstation",
        devices__jitter=0.5,
    )
    assert_same(shuffled(tables, 1), tables)


def test_work_that_comes_after_it_was_cancelled_keeps_nobody_from_what_follows() -> None:
    """Another message has overtaken it; in the sequential driver, too, what follows is taken in its turn."""
    reordered = [{"kind": "reorder", "probability": 0.5, "delay_s": 0.02}]
    tables = tables_of("fresh until", links="ideal", availability="always", fault=reordered)
    assert_same(shuffled(tables, 1), tables)
