"""A network that is cut for some seconds between a host and the launcher's machine, or whose connections end once."""

import random
import re
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from launch.token import Token
from tests.machines import Machines, machines, run_token
from tests.relay import Relay
from tests.test_failures import FAILED
from tests.test_lan import digests, finish
from tests.test_on_loss import completed_without, goes_on
from tests.test_peers import expected

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

CUT_S = 3.0


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Machines]:
    """`lab.start(tables, hosts)` starts `pflsim run --listen`, `lab.join(name)` a `pflsim host`."""
    yield from machines(tmp_path)


@pytest.fixture
def relay() -> Iterator[Relay]:
    """Closed with the test."""
    found = Relay()
    yield found
    found.close()


def start(lab: Machines, relay: Relay, tables: dict[str, Any], *arguments: str) -> None:
    """A run over two hosts, of which the second is behind the relay."""
    lab.start(tables, 2, *arguments)
    lab.join("here", "--clients", "2")
    token = Token.read(run_token(lab.run))
    port = relay.port_to(int(token.addresses[0].rsplit(":", 1)[1]))
    there = replace(token, addresses=(f"127.0.0.1:{port}",))
    lab.join("there", "--clients", "2", token=str(there), module="tests.relayed", RELAY=str(relay.asked_at))
    lab.run.wait_for(lambda run: len(run.rows("rounds")) >= 3, within_s=90)


@pytest.mark.parametrize(("schedule", "keys"), [("sync", ()), ("deadline", ()), ("fedbuff", ("--insecure",))])
def test_a_network_that_is_cut_for_some_seconds_heals(
    schedule: str, keys: tuple[str, ...], lab: Machines, relay: Relay
) -> None:
    tables = goes_on(schedule, run__on_loss="fail", run__rounds=60)
    start(lab, relay, tables, *keys)
    assert relay.passed_on > 0
    time.sleep(random.Random(schedule).random() / 2)
    rounds = len(lab.run.rows("rounds"))
    relay.cut(CUT_S)
    assert len(lab.run.rows("rounds")) < 60, f"of {rounds} rounds before, it was cut in the middle of the run"
    finish(lab)
    assert digests(lab) == expected(tables)


def test_a_host_whose_connections_end_is_lost_and_named(lab: Machines, relay: Relay) -> None:
    start(lab, relay, goes_on(run__on_loss="fail", run__rounds=10_000))
    relay.end_connections()
    assert lab.run.finish(30) == FAILED
    assert re.search(
        r"pflsim: the run failed: (there: the connection to it has ended|c00[23]: cannot be reached)", lab.run.stderr
    )
    assert lab.run.nothing_left(within_s=12)
    assert "launcher: the connection to it has ended" in lab.hosts[1].said


@pytest.mark.parametrize("on_loss", ["fail", "continue"])
def test_if_only_that_to_the_server_ends_the_run_ends_too_soon_or_well_but_never_hangs(
    on_loss: str, lab: Machines, relay: Relay
) -> None:
    """What was under way is lost, and nothing is sent again: whom the server waits for is named."""
    tables = goes_on(run__on_loss=on_loss, run__rounds=60, run__patience_s=5.0)
    start(lab, relay, tables)
    (server,) = {
        one.laddr.port
        for one in psutil.Process(lab.run.pid_of("server")).net_connections("tcp")
        if one.status == psutil.CONN_LISTEN
    }
    relay.end_connections(server)
    code = lab.run.finish(60)
    assert lab.run.nothing_left(within_s=12)
    if code == FAILED:
        assert on_loss == "fail"
        assert re.search(r"waiting for c00[23]|c00[23]: cannot be reached", lab.run.stderr)
    elif not lab.run.rows("events", what="lost"):
        assert digests(lab) == expected(tables)


def test_or_the_run_goes_on_without_it(lab: Machines, relay: Relay) -> None:
    start(lab, relay, goes_on(run__rounds=60))
    relay.end_connections()
    completed_without(lab.run, "c002", "c003")
