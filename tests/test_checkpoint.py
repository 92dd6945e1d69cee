"""A run that goes on from a checkpoint ends with the bits, and the record, of one that was never disturbed."""

from pathlib import Path
from typing import Any

import pytest

from nodes.keeping import Keeper, Silent
from nodes.programs import STATES, port_of, program_of
from nodes.sequential import FactList, Sequential
from pflsim.spec import validate
from pflsim.study import Study
from pflsim.timing.clock import VirtualClock
from tests.test_chaos import ENGINES, LINKS, RUN, Shuffled, tables_of

SAID = ("digest", "trace_digest", "simulated_s", "rounds", "stopped")


def ran(tables: dict[str, Any], folder: Path, resumed: int = 0, seed: int | None = None) -> dict[str, FactList]:
    """What each actor tells in a run that keeps a checkpoint after every round, and may go on from one."""
    study = Study(validate(tables), RUN)
    carrier = Sequential(RUN) if seed is None else Shuffled(seed)
    told = {name: FactList() for name in (study.hub, *study.names)}
    for name, facts in told.items():
        port = port_of(study, name, VirtualClock(), carrier, Silent() if resumed else facts)
        port.promises &= seed is not None
        carrier.add(port, program_of(study, name, Keeper(folder, 1, facts, STATES, resumed)))
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
        else:
            kept.append(fact)
    return kept


def after(facts: FactList, round: int) -> list[tuple[Any, ...]]:
    """What was told after a checkpoint."""
    place = next(at for at, fact in enumerate(facts.facts) if fact[0] == "checkpoint" and fact[2] == round)
    return facts.facts[place + 1 :]


def assert_resumes(tables: dict[str, Any], folder: Path) -> None:
    whole = ran(tables, folder)
    rounds = [fact[2] for fact in whole["server"].facts if fact[0] == "checkpoint"]
    assert rounds
    for round in rounds:
        resumed = ran(tables, folder, round)
        finished = {key: resumed["server"].finished()[key] for key in SAID}
        assert finished == {key: whole["server"].finished()[key] for key in SAID}
        for name, facts in resumed.items():
            assert timeless(facts.facts) == timeless(after(whole[name], round)), name


@pytest.mark.parametrize("engine", ENGINES)
def test_whatever_the_schedule_a_run_goes_on_from_any_of_its_checkpoints(engine: str, tmp_path: Path) -> None:
    assert_resumes(tables_of(engine, links=LINKS["lossy"]), tmp_path)
