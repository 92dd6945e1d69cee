"""A run that goes on from a checkpoint ends with the bits, and the record, of one that was never disturbed."""

import random
import shutil
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest

from nodes.keeping import Keeper, Silent
from nodes.kept_files import Folder
from nodes.programs import STATES, port_of, program_of
from nodes.sequential import FactList, Sequential, run_sequentially
from pflsim.errors import BadMessage, RunFailed
from pflsim.interval import Interval
from pflsim.messages.common_round import Chosen
from pflsim.messages.wire import COORDINATOR, CUT, HERE, MARK, Message
from pflsim.spec import validate
from pflsim.study import Study
from pflsim.timing.clock import VirtualClock
from tests.launching import description
from tests.test_chaos import ALL_KINDS, ENGINES, FAULTS, LINKS, ORDERS, RUN, Shuffled, tables_of
from tests.test_codec_runs import CODECS, SERVER_CODECS, SERVERS, codec_of, way
from tests.test_peers_chaos import ENGINES as PEER_ENGINES
from tests.test_peers_chaos import TOPOLOGIES
from tests.test_peers_chaos import tables_of as peer_tables

EACH_ROUND = Interval(rounds=1)
SAID = ("digest", "trace_digest", "simulated_s", "rounds", "stopped")


def ran(
    tables: dict[str, Any],
    folder: Path,
    resumed: int = 0,
    seed: int | None = None,
    found: Path | None = None,
    every: Interval = EACH_ROUND,
) -> dict[str, FactList]:
    """What each actor tells in a run that keeps checkpoints, and may go on from one of others."""
    study = Study(validate(tables), RUN)
    carrier = Sequential(RUN) if seed is None else Shuffled(seed)
    told = {name: FactList() for name in (study.hub, *study.names)}
    if found is not None:
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(found / f"{resumed:06d}", folder / f"{resumed:06d}")
    for name, facts in told.items():
        port = port_of(study, name, VirtualClock(), carrier, Silent() if resumed else facts)
        port.promises &= seed is not None
        keeper = Keeper(Folder(folder), every.rounds, told.__getitem__, STATES, resumed, every.host_s)
        carrier.add(port, program_of(study, name, keeper))
    carrier.run()
    return told


def timeless(facts: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Facts without what the host's clock has in them, and without those of checkpoints and of resuming."""
    kept = []
    for fact in facts:
        if fact[0] == "events":
            what = fact[2]
            if what != "resumed":
                kept.append((*fact[:3], *(() if what == "finished" else fact[3:5])))
        elif fact[0] == "rounds":
            kept.append((*fact[:4], *fact[5:]))
        elif fact[0] not in ("checkpoint", "under way") and not is_about_licences(fact):
            kept.append(fact)
    return kept


def is_about_licences(fact: tuple[Any, ...]) -> bool:
    """Whether it is about what peers and their coordinator say to each other, which is never twice the same."""
    return fact[0] in ("sent", "received") and fact[4] == "control" and COORDINATOR in fact[1:3]


def after(facts: FactList, round: int) -> list[tuple[Any, ...]]:
    """What was told after a checkpoint."""
    place = next(at for at, fact in enumerate(facts.facts) if fact[0] == "checkpoint" and fact[1] == round)
    return facts.facts[place + 1 :]


def undisturbed(tables: dict[str, Any]) -> dict[str, Any]:
    """What a run says in the end that keeps no checkpoints."""
    return run_sequentially(Study(validate(tables), RUN)).finished()


def assert_same(told: dict[str, FactList], expected: dict[str, Any]) -> None:
    hub = next(iter(told))
    for said in SAID:
        assert told[hub].finished()[said] == expected[said], said


def whole_checkpoints(folder: Path, told: dict[str, FactList]) -> list[int]:
    """The rounds of those of which all parts are there."""
    clients = [name for name in told if name != COORDINATOR]
    parts = {f"{name}.state" for name in clients} | (
        {f"{name}.crossed" for name in clients} if COORDINATOR in told else set()
    )
    found = {int(place.name): {file.name for file in place.iterdir()} for place in folder.iterdir()}
    return sorted(round for round, files in found.items() if files == parts)


@pytest.mark.parametrize("engine", [*ENGINES, *(f"peers, {engine}" for engine in PEER_ENGINES)])
def test_from_each_checkpoint_a_run_goes_on_to_the_same_end_and_tells_the_same(engine: str, tmp_path: Path) -> None:
    among_peers = engine.startswith("peers, ")
    links = LINKS["lossy"]
    tables = peer_tables(engine[7:], links=links) if among_peers else tables_of(engine, links=links)
    expected, whole = undisturbed(tables), ran(tables, tmp_path / "whole")
    assert_same(whole, expected)
    assert whole_checkpoints(tmp_path / "whole", whole) == [1, 2, 3, 4]
    for round in (1, 4) if among_peers else (1, 2, 3, 4):
        resumed = ran(tables, tmp_path / "again", round, found=tmp_path / "whole")
        assert_same(resumed, expected)
        for name, facts in resumed.items():
            assert name == COORDINATOR or timeless(facts.facts) == timeless(after(whole[name], round)), (name, round)


@pytest.mark.parametrize("seed", [None, 1])
def test_work_that_was_done_before_a_checkpoint_may_be_cancelled_after_it(seed: int | None, tmp_path: Path) -> None:
    tables = tables_of("timeout", links=LINKS["lossy"])
    tables = tables | {"schedule": ENGINES["timeout"] | {"timeout_s": 0.06}}
    expected, whole = undisturbed(tables), ran(tables, tmp_path / "whole", seed=seed)
    crossed = 0
    for round in whole_checkpoints(tmp_path / "whole", whole):
        resumed = ran(tables, tmp_path / "again", round, seed, found=tmp_path / "whole")
        assert_same(resumed, expected)
        given = {fact[2] for fact in resumed["server"].facts if fact[0] == "sent" and fact[3] == "WORK"}
        crossed += any(fact[2] == "cancelled" and fact[1] not in given for fact in resumed["server"].facts)
    assert crossed


def assert_resumes_in_any_order(tables: dict[str, Any], folder: Path, order: random.Random) -> None:
    """Messages come in other orders each time; the run goes on twice."""
    expected = undisturbed(tables)
    whole = ran(tables, folder / "0", seed=order.randrange(1000))
    assert_same(whole, expected)
    last = 0
    for times in range(2):
        later = [round for round in whole_checkpoints(folder / str(times), whole) if round > last]
        if not later:  # as where some peers end before others begin a round
            break
        last = order.choice(later)
        seed = order.choice([None, order.randrange(1000)])
        resumed = ran(tables, folder / str(times + 1), last, seed, found=folder / str(times))
        assert_same(resumed, expected)


HARD: dict[str, dict[str, Any]] = {
    "away": {"links": "4g", "availability": ALL_KINDS["markov"]},
    "crashes": {"links": LINKS["lossy"], "fault": FAULTS["crash"]},
    "doubled": {"links": "wifi", "fault": FAULTS["duplicate"]},
    "held back": {"links": "ideal", "fault": FAULTS["reorder"]},
}


@pytest.mark.parametrize("engine", ENGINES)
def test_so_it_does_with_codecs_that_remember_in_whatever_order_messages_come(engine: str, tmp_path: Path) -> None:
    tables = tables_of(engine, links="4g", codec=SERVER_CODECS["carried over"], availability=ALL_KINDS["bernoulli"])
    assert_resumes_in_any_order(tables, tmp_path, random.Random(engine))


@pytest.mark.parametrize("method", [*SERVERS, "dfedu"])
@pytest.mark.parametrize("codec", CODECS)
def test_so_it_does_with_each_codec_and_its_memory(codec: str, method: str, tmp_path: Path) -> None:
    if method == "dfedu":
        tables = peer_tables("sync", codec={"peer": way(codec, goes_up=False)})
    else:
        tables = description(run__clients=4, codec=codec_of(codec), **SERVERS[method])
    assert_resumes_in_any_order(tables, tmp_path, random.Random(f"{codec} {method}"))


@pytest.mark.parametrize("hard", ["doubled", "held back"])
@pytest.mark.parametrize("engine", PEER_ENGINES)
def test_so_do_peers(engine: str, hard: str, tmp_path: Path) -> None:
    codec = {"peer": {"name": "qsgd"}}
    graph = {"topology": "changing", "algorithm": "dpsgd"} if hard == "doubled" else {}
    tables = peer_tables(engine, codec=codec, **graph, **HARD[hard])
    assert_resumes_in_any_order(tables, tmp_path, random.Random(f"{engine} {hard}"))


def test_an_answer_that_comes_before_a_resumed_peer_has_asked_again_waits_for_the_question(tmp_path: Path) -> None:
    """Its neighbour was written down later, with the question in its inbox, and answers at once."""
    tables = peer_tables("pairs", topology="apart", algorithm="dpsgd", links="wifi", codec={"peer": {"name": "qsgd"}})
    expected = undisturbed(tables)
    ran(tables, tmp_path / "whole", seed=5)
    for seed in range(3, 6):
        assert_same(ran(tables, tmp_path / "again", 2, seed, found=tmp_path / "whole"), expected)


@pytest.mark.parametrize("engine", ["sync", "fedasync", *(f"peers, {engine}" for engine in PEER_ENGINES)])
def test_so_it_does_where_the_hosts_time_says_when_whichever_rounds_that_are(
    engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = peer_tables(engine[7:]) if engine.startswith("peers, ") else tables_of(engine)
    tables = tables | {"run": tables["run"] | {"rounds": 10}}
    expected, rounds = undisturbed(tables), set[int]()
    for seed in range(1 + ORDERS // 4):
        host = random.Random(seed)
        now_s = accumulate(iter(host.random, None))
        monkeypatch.setattr("pflsim.timing.clock.time.monotonic", lambda now_s=now_s: next(now_s))
        first, second = tmp_path / f"{seed}", tmp_path / f"{seed} again"
        whole = ran(tables, first, seed=seed, every=Interval(host_s=5.0))
        assert_same(whole, expected)
        kept = whole_checkpoints(first, whole)
        rounds |= {*kept}
        assert len(kept) < 9, "not after every round"
        for round in kept[:1]:
            assert_same(ran(tables, second, round, seed, first, Interval(host_s=5.0)), expected)
    assert len(rounds) > 1


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("hard", HARD)
@pytest.mark.parametrize("engine", [*ENGINES, *(f"peers, {engine}" for engine in PEER_ENGINES)])
def test_so_it_does_whatever_goes_wrong(engine: str, hard: str, tmp_path: Path) -> None:
    """A quarter as often as `PFLSIM_ORDERS` says, and once at least."""
    for number in range(1 + ORDERS // 4):
        order = random.Random(f"{engine} {hard} {number}")
        if engine.startswith("peers, "):
            graph = {"topology": order.choice(list(TOPOLOGIES)), "algorithm": "dpsgd"}
            tables = peer_tables(engine[7:], **graph, **HARD[hard])
        else:
            tables = tables_of(engine, algorithm={"name": order.choice(["pfedme", "ditto"])}, **HARD[hard])
        assert_resumes_in_any_order(tables, tmp_path / str(number), order)


def test_what_is_no_tensor_and_no_number_in_a_state_is_refused_by_the_name_of_its_actor(tmp_path: Path) -> None:
    told = FactList()
    keeper = Keeper(Folder(tmp_path), 1, lambda _: told, STATES)
    port = port_of(Study(validate(tables_of("sync")), RUN), "c001", VirtualClock(), Sequential(RUN), told)
    with pytest.raises(RunFailed, match="c001: cannot be written into a checkpoint: a Random cannot be kept"):
        keeper.keep(port, 1, random.Random(1))


def test_a_mark_is_refused_where_no_checkpoints_are_taken() -> None:
    port = port_of(Study(validate(peer_tables("sync")), RUN), "c001", VirtualClock(), Sequential(RUN), FactList())
    with pytest.raises(BadMessage, match="c000 marks a checkpoint, and none are taken"):
        port.deliver(Message(MARK, "c000", "c001", round=5), [0, 0, None, 0], (0, 0, 0))


@pytest.mark.parametrize(("kind", "sender", "to"), [(HERE, "c000", COORDINATOR), (CUT, COORDINATOR, "c001")])
def test_a_round_is_chosen_only_where_the_hosts_time_says_when(kind: str, sender: str, to: str) -> None:
    port = port_of(Study(validate(peer_tables("sync")), RUN), to, VirtualClock(), Sequential(RUN), FactList())
    with pytest.raises(BadMessage, match=f"{sender} says {kind}, "):
        port.deliver(Message(kind, sender, to, round=5), [0, 0, None, 0], (0, 0, 0))


def test_only_the_coordinator_chooses_a_round() -> None:
    port = port_of(Study(validate(peer_tables("sync")), RUN), "c001", VirtualClock(), Sequential(RUN), FactList())
    port.chosen = Chosen(1.0, 0)
    with pytest.raises(BadMessage, match="c000 says CUT, which only a coordinator says"):
        port.deliver(Message(CUT, "c000", "c001", round=5), [0, 0, None, 0], (0, 0, 0))
