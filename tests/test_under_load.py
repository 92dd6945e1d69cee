"""Real processes on a busy machine, whose messages take a random while: the sequential driver's bits each time.

`PFLSIM_ORDERS` says how often each run is repeated.
"""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nodes.sequential import run_sequentially
from pflsim.spec import validate
from pflsim.study import Study
from tests.delayed import DELAY
from tests.launching import description, run_here
from tests.test_chaos import ENGINES as SERVER_ENGINES
from tests.test_chaos import ORDERS
from tests.test_peers_chaos import ENGINES as PEER_ENGINES

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

BURNERS = 2
DELAY_S = 0.004
METHODS = {"asynchronous": "DelayedDFedU", "pairs": "DelayedGossip", "fedbuff": "DelayedFedAvg"}


@pytest.fixture
def load() -> Iterator[None]:
    """Two processes that do nothing but compute."""
    burners = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(BURNERS)]
    yield
    for burner in burners:
        burner.kill()
        burner.wait()


def tables_of(engine: str) -> dict[str, Any]:
    schedule = PEER_ENGINES.get(engine) or SERVER_ENGINES[engine]
    method = {"algorithm": {"name": f"tests.delayed:{METHODS[engine]}"}, "topology": {"name": "ring"}}
    slow = {"devices__flops_per_second": 2e6, "devices__jitter": 0.5}
    return description(run__clients=6, run__rounds=5, schedule=schedule, **method, **slow)


@pytest.mark.parametrize("engine", METHODS)
def test_a_run_is_the_same_each_time_however_busy_the_machine_and_late_the_messages(
    engine: str, load: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = tables_of(engine)
    expected = run_sequentially(Study(validate(tables), b"8 bytes.")).finished()
    monkeypatch.setenv(DELAY, str(DELAY_S))
    for repetition in range(ORDERS):
        tables["run"]["clients_per_process"] = 1 + repetition % 2
        summary = run_here(tables, tmp_path / str(repetition)).summary
        found = (summary["digest"], summary["trace_digest"])
        assert found == (expected["digest"], expected["trace_digest"]), repetition
