"""A run that goes on from a checkpoint ends with the bits, and the record, of one that was never disturbed."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from nodes.keeping import Keeper, Silent
from nodes.programs import STATES, port_of, program_of
from nodes.sequential import FactList, Sequential, run_sequentially
from pflsim.messages.wire import COORDINATOR
from pflsim.spec import validate
from pflsim.study import Study
from pflsim.timing.clock import VirtualClock
from tests.test_chaos import ENGINES, LINKS, RUN, Shuffled, tables_of
from tests.test_peers_chaos import ENGINES as PEER_ENGINES
from tests.test_peers_chaos import tables_of as peer_tables

SAID = ("digest", "trace_digest", "simulated_s", "rounds", "stopped")


def ran(
    tables: dict[str, Any], folder: Path, resumed: int = 0, seed: int | None = None, found: Path | None = None
) -> dict[str, FactList]:
    """What each actor tells in a run that keeps a checkpoint after every round, and may go on from one of others."""
    study = Study(validate(tables), RUN)
    carrier = Sequential(RUN) if seed is None else Shuffled(seed)
    told = {name: FactList() for name in (study.hub, *study.names)}
    if found is not None:
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(found / f"{resumed:06d}", folder / f"{resumed:06d}")
    for name, facts in told.items():
        port = port_of(study, name, VirtualClock(), carrier, Silent() if resumed else facts)
        port.promises &= seed is not None
        carrier.add(port, program_of(study, name, Keeper(folder, 1, told.__getitem__, STATES, resumed)))
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


def assert_resumes(tables: dict[str, Any], folder: Path, seed: int | None = None) -> None:
    """A run with checkpoints is one without; and from each of them it goes on to the same end, told in the same way."""
    expected = run_sequentially(Study(validate(tables), RUN)).finished()
    whole = ran(tables, folder, seed=seed)
    assert_same(whole, expected)
    rounds = [fact[1] for fact in whole["c000"].facts if fact[0] == "checkpoint"]
    assert len(rounds) > 2
    for round in rounds:
        resumed = ran(tables, folder / "again", round, seed, found=folder)
        assert_same(resumed, expected)
        for name, facts in resumed.items():
            if name != COORDINATOR:
                assert timeless(facts.facts) == timeless(after(whole[name], round)), (name, round)


def assert_same(told: dict[str, FactList], expected: dict[str, Any]) -> None:
    hub = next(iter(told))
    for said in SAID:
        assert told[hub].finished()[said] == expected[said], said


@pytest.mark.parametrize("engine", ENGINES)
def test_whatever_the_schedule_a_run_goes_on_from_any_of_its_checkpoints(engine: str, tmp_path: Path) -> None:
    assert_resumes(tables_of(engine, links=LINKS["lossy"]), tmp_path)


@pytest.mark.parametrize("engine", PEER_ENGINES)
def test_so_do_peers(engine: str, tmp_path: Path) -> None:
    assert_resumes(peer_tables(engine, links=LINKS["lossy"]), tmp_path)
