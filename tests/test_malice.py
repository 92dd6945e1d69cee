"""A client with valid keys that means ill cannot crash a run, hang it, or change what becomes of the others."""

import json
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from launch.token import Token
from nodes.curve import Keys
from tests.launching import description
from tests.machines import Machines, machines, ports, run_token
from tests.malice import COUNT, FLOOD, LIES
from tests.strangers import send_messages, throw_bytes
from tests.test_failures import FAILED
from tests.test_lan import digests
from tests.test_peers import expected, peers

pytestmark = pytest.mark.timeout(180)

MANY = 300


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Machines]:
    """`lab.start(tables, hosts)` starts `pflsim run --listen`, `lab.join(name)` a `pflsim host`."""
    yield from machines(tmp_path)


def malice(how: str, **settings: Any) -> dict[str, Any]:
    return description(algorithm={"name": "tests.malice:Malice", "how": how}, **settings)


def slow(method: str, pause_s: float = 0.02) -> dict[str, Any]:
    """A run of many rounds, each of which takes a while."""
    algorithm = {"name": f"tests.accidents:{method}", "pause_s": pause_s}
    base = peers("sync") if method == "SlowPeer" else description()
    return description(base, algorithm=algorithm, run__rounds=MANY, run__eval_every=MANY)


def summary(lab: Machines) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((lab.run.out / "summary.json").read_text())
    return found


def start(lab: Machines, tables: dict[str, Any], *arguments: str) -> None:
    """The last client is alone on a host."""
    lab.start(tables, 2, *arguments)
    lab.join("honest", "--clients", "3")
    lab.join("other", "--clients", "1")


def the_others_are_not_disturbed(lab: Machines) -> None:
    """The run ends well, with the digests of a run in which nobody means ill."""
    assert lab.run.finish(120) == 0, lab.run.stderr
    assert lab.run.nothing_left()
    found = summary(lab)
    assert (found["digest"], found["trace_digest"]) == expected(malice("nothing"))
    assert found["rounds"] == 3
    assert found["accuracy"]["headline"] == "global"
    assert found["accuracy"]["clients"] == 4
    assert "lost" not in found


@pytest.mark.parametrize("keys", [(), pytest.param(("--insecure",), marks=pytest.mark.slow)], ids=["keys", "no keys"])
def test_whatever_a_client_sends_before_it_answers_is_dropped_and_counted(keys: tuple[str, ...], lab: Machines) -> None:
    start(lab, malice("messages"), *keys)
    the_others_are_not_disturbed(lab)
    dropped = lab.run.rows("dropped")
    assert len(dropped) == 3 * COUNT, Counter(row["detail"][:40] for row in dropped)
    assert {row["receiver"] for row in dropped} == {"server"}
    for words in (
        "'u' f4 [1] came, 'u' f4 [",
        "'v' u1 [3] came",
        "server does not take a STOP",
        "c000 speaks from where it did not join",
        "it belongs to another run",
        "a RESULT from 4611686018427387904 samples of",
        "of round 1000000000, of 1 to 3",
        "unknown kind 'LOST'",
        "a flight's rate and breakpoints",
        "a stamp is two times",
        "which is no time",
        "does not owe the",
        "the last words are no two digests",
        "which is no [correct, total, loss]",
        "['x'] are evaluated, ['global', 'finetuned'] are expected",
        "nothing is encoded there",
    ):
        assert any(words in row["detail"] for row in dropped), words


@pytest.mark.slow
def test_what_a_client_tells_the_record_of_others_is_dropped_and_counted(lab: Machines) -> None:
    start(lab, malice("facts"))
    the_others_are_not_disturbed(lab)
    dropped = lab.run.rows("dropped", receiver="recorder")
    assert len(dropped) == 3 * LIES, Counter(row["detail"] for row in dropped)
    assert lab.run.rows("rounds", round=99) == []


@pytest.mark.slow
def test_whoever_hands_in_anothers_state_or_a_wrong_one_is_refused_and_counted(lab: Machines) -> None:
    start(lab, malice("checkpoints", run__rounds=8, run__checkpoint_every=2))
    assert lab.run.finish(120) == 0, lab.run.stderr
    assert lab.run.nothing_left()
    assert digests(lab) == expected(malice("nothing", run__rounds=8))
    dropped = Counter(row["detail"] for row in lab.run.rows("dropped", receiver="recorder"))
    crossed = [f"c003.crossed after round {round} has not come" for round in range(1, 9)]
    assert dropped == Counter(crossed) + Counter(
        {
            "c003 hands in 'c001.state', which is not its own": 16,
            "c003 hands in '../../run.toml', which is not its own": 8,
            "c003.state after round 4 has another checksum than it is said to have": 1,
        }
    )


@pytest.mark.slow
def test_a_flood_is_dropped_and_counted_and_does_not_fill_the_record(lab: Machines) -> None:
    start(lab, malice("flood"))
    the_others_are_not_disturbed(lab)
    dropped = lab.run.rows("dropped", receiver="server")
    assert len(dropped) < 1100
    assert [row["detail"] for row in dropped if row["reason"] == "flood"] == [
        f"{3 * FLOOD} messages of one sender were dropped in all"
    ]


@pytest.mark.slow
@pytest.mark.parametrize("on_loss", ["fail", "continue"])
def test_who_sends_nothing_that_can_be_taken_counts_as_one_who_does_not_answer(on_loss: str, lab: Machines) -> None:
    start(lab, malice("wrong shapes only", run__patience_s=5.0, run__on_loss=on_loss))
    if on_loss == "fail":
        assert lab.run.finish(120) == FAILED
        assert "3/4 have sent their RESULT, waiting for c003" in lab.run.stderr
    else:
        assert lab.run.finish(120) == 0, lab.run.stderr
        assert list(summary(lab)["lost"]) == ["c003"]
    assert lab.run.nothing_left()
    (dropped,) = lab.run.rows("dropped")
    assert (dropped["sender"], dropped["reason"]) == ("c003", "malformed")


@pytest.mark.slow
@pytest.mark.parametrize("keys", [(), ("--insecure",)], ids=["keys", "no keys"])
@pytest.mark.parametrize("tables", [slow("Slow"), slow("SlowPeer")], ids=["server", "peers"])
def test_whatever_strangers_send_to_any_port_the_run_gives_its_bits(
    tables: dict[str, Any], keys: tuple[str, ...], lab: Machines
) -> None:
    """They know the id of the run and where everything is, and have no key; from the moment when the run has begun."""
    lab.start(tables, 2, *keys)
    run_id = Token.read(run_token(lab.run)).run_id
    lab.join("pc1")
    lab.join("pc2")
    lab.run.wait_for(lambda run: bool(run.rows("events", what="began")), within_s=90)
    open_ports, chance = ports(lab.run), random.Random(f"{keys}{tables['algorithm']}")
    assert len(open_ports) >= 3
    for _ in range(2):
        throw_bytes(open_ports, chance, 60)
        send_messages(open_ports, run_id, chance, 60)
    assert len(lab.run.rows("rounds")) < MANY, "they were there while it ran"
    assert lab.run.finish(120) == 0, lab.run.stderr
    assert [host.finish(20) for host in lab.hosts] == [0, 0]
    assert lab.run.nothing_left()
    assert digests(lab) == expected(slow(tables["algorithm"]["name"].split(":")[1], pause_s=0.0))
    assert bool(lab.run.rows("dropped")) == bool(keys), "with keys, nobody who has none is heard at all"
    assert lab.run.rows("events", what="refused") != []


@pytest.mark.slow
def test_whoever_has_the_token_and_says_nonsense_is_dropped_and_the_launcher_goes_on_waiting(lab: Machines) -> None:
    tables = description(run__rounds=1)
    lab.start(tables, 1)
    token = Token.read(run_token(lab.run))
    (port,) = {int(address.rsplit(":", 1)[1]) for address in token.addresses}
    keys = Keys.of(token.joining), token.launcher
    for seed in range(4):
        send_messages([port], token.run_id, random.Random(seed), 100, keys)
    lab.join("pc1")
    assert lab.run.finish(120) == 0, lab.run.stderr
    assert digests(lab) == expected(tables)
    refused = lab.run.rows("events", what="refused")
    assert any("from a host that has not joined" in row["detail"] for row in refused)
    assert any("no host says" in row["detail"] for row in refused)
