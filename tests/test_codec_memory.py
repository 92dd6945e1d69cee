"""What both ends of a codec remember when work is cancelled, lost, rejected or forgotten, or is never received."""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pytest
import torch

import nodes.client
from nodes.coding import Told, has_come_down, sent_down, take_down
from nodes.sequential import run_sequentially
from pflsim.algorithms.fedavg import FedAvg
from pflsim.digest import digest_of
from pflsim.messages.wire import Message
from pflsim.spec import override_value, validate
from pflsim.study import Study
from tests.launching import description
from tests.test_chaos import FAULTS, LINKS, RUN, tables_of

UP = {"up": {"name": "top-k", "share": 0.1, "error_feedback": True, "delta": True}}
Carried = dict[int, list[tuple[int, bytes]]]


def carried_over(monkeypatch: pytest.MonkeyPatch, tables: dict[str, Any]) -> Carried:
    """By client, for each piece of work that it began: how often it had worked, and the residuals it began with."""
    work, found = nodes.client._work, Carried()

    def watched(port: Any, study: Any, number: int, state: Any, message: Any) -> None:
        found.setdefault(number, []).append((state.visits, digest_of(state.residuals)))
        work(port, study, number, state, message)

    monkeypatch.setattr(nodes.client, "_work", watched)
    run_sequentially(Study(validate(tables | {"codec": UP}), RUN))
    return found


def longer(tables: dict[str, Any]) -> dict[str, Any]:
    return override_value(tables, "run.rounds", 12)


def assert_undone(found: Carried) -> None:
    """Work that left no visit has left no residual either; and there was such work, after work that had left one."""
    again = 0
    for begun in found.values():
        assert len({visits for visits, _ in begun}) == len(set(begun))
        again += sum(one == other and one[0] > 0 for one, other in pairwise(begun))
    assert again


def test_work_that_is_cancelled_leaves_no_residual(monkeypatch: pytest.MonkeyPatch) -> None:
    tables = longer(tables_of("cancel", links=LINKS["lossy"]))
    assert_undone(carried_over(monkeypatch, tables))


def test_work_whose_answer_is_lost_with_its_sender_leaves_no_residual(monkeypatch: pytest.MonkeyPatch) -> None:
    slow = {"client": {"uplink_mbps": 0.02, "downlink_mbps": 50.0}, "latency_ms": 1.0}
    links = slow | {"server": {"uplink_mbps": 50.0, "downlink_mbps": 50.0}}
    leaving = {"kind": "bernoulli", "probability": 0.7, "period_s": 0.15}
    assert_undone(carried_over(monkeypatch, longer(tables_of("sync", links=links, availability=leaving))))


@dataclass(frozen=True)
class HalfBroken(FedAvg):
    """Client 1 sends something that is not finite in round 2, beside what is."""

    def client_step(self, you: Any, down: Any, task: Any) -> Any:
        you, up = super().client_step(you, down, task)
        broken = task.client == 1 and task.round == 1
        return you, up | {"also": torch.full((3,), float("inf") if broken else 0.0)}


def test_an_upload_that_is_rejected_leaves_no_residual(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[int, list[bytes]] = {}
    send = nodes.client.sent_up

    def watched(study: Any, number: int, attempt: int, residuals: Any, up: Any, down: Any) -> Any:
        seen.setdefault(number, []).append(digest_of(residuals))
        return send(study, number, attempt, residuals, up, down)

    monkeypatch.setattr(nodes.client, "sent_up", watched)
    broken = {"name": "tests.test_codec_memory:HalfBroken"}
    told = run_sequentially(Study(validate(description(algorithm=broken, codec=UP, run__rounds=4)), RUN))
    assert [fact[1] for fact in told.facts if fact[0] == "events" and fact[2] == "rejected"] == ["c001"]
    assert seen[1][1] == seen[1][2] != seen[1][3] and seen[1][0] != seen[1][1]
    assert len(set(seen[0])) == 4


def test_who_forgets_its_state_forgets_what_it_had_to_carry_over(monkeypatch: pytest.MonkeyPatch) -> None:
    nothing, seen = digest_of({}), dict[int, list[bytes]]()
    send = nodes.client.sent_up

    def watched(study: Any, number: int, attempt: int, residuals: Any, up: Any, down: Any) -> Any:
        seen.setdefault(number, []).append(digest_of(residuals))
        return send(study, number, attempt, residuals, up, down)

    monkeypatch.setattr(nodes.client, "sent_up", watched)
    crash = [FAULTS["crash"][0] | {"at_s": 0.3, "until_s": 0.4}]
    run_sequentially(Study(validate(tables_of("fedasync", links="4g", codec=UP, fault=crash)), RUN))
    assert {number: begun.count(nothing) for number, begun in seen.items()} == {0: 1, 1: 2, 2: 1, 3: 2, 4: 1}


# what goes down


DOWN = {"down": {"name": "int4", "delta": True}}


class Pair:
    """A server and one client that exchange work, some of which is never received or never answered."""

    def __init__(self) -> None:
        self.study = Study(validate(description(codec=DOWN)), RUN)
        self.told, self.received, self.work_id = Told(), dict[int, dict[str, torch.Tensor]](), 0

    def exchange(self, x: torch.Tensor, *, arrives: bool = True, is_answered: bool = True) -> int:
        """One piece of work; the base of what was sent, 0 for none. Both ends must have the same."""
        self.work_id += 1
        sent = sent_down(self.study, self.told, 0, {"x": x}, (0, 0), self.work_id)
        if arrives:
            came = {"x": sent.tensors["x"]}
            if "x" in sent.coded and self.study.codecs.down is not None:
                came["x"] = self.study.codecs.down.unpacked(sent.coded["x"], came["x"])
            message = Message("WORK", "server", "c000", work_id=self.work_id, tensors=came, coded=dict(sent.coded))
            take_down(self.study, "c000", self.received, message)
            assert torch.equal(message.tensors["x"], sent.seen["x"])
            assert len(self.received) <= 2
            if is_answered:
                has_come_down(self.study, self.told, 0, self.work_id, sent.seen)
        return sent.coded["x"].base if "x" in sent.coded else 0


def model(seed: int) -> torch.Tensor:
    return torch.randn(84, generator=torch.Generator().manual_seed(seed))


def test_a_difference_is_one_to_the_last_work_that_was_answered() -> None:
    pair = Pair()
    assert pair.exchange(model(1)) == 0
    assert [pair.exchange(model(2)), pair.exchange(model(3))] == [1, 2]
    assert pair.exchange(model(4), is_answered=False) == 3
    assert pair.exchange(model(5), arrives=False) == 3
    assert pair.exchange(model(6), is_answered=False) == 3
    assert pair.exchange(model(7)) == 3
    assert pair.exchange(model(8)) == 7


def test_as_long_as_nothing_is_answered_everything_travels_whole() -> None:
    pair = Pair()
    assert [pair.exchange(model(seed), is_answered=False) for seed in (1, 2)] == [0, 0]
    assert pair.exchange(model(3), arrives=False) == 0
    assert [pair.exchange(model(4)), pair.exchange(model(5))] == [0, 4]


def test_after_a_model_that_cannot_be_encoded_nothing_refers_to_what_was_before_it() -> None:
    pair = Pair()
    assert [pair.exchange(model(1)), pair.exchange(model(2))] == [0, 1]
    assert pair.exchange(model(3) * 1e30, is_answered=False) == 0
    assert [pair.exchange(model(4)), pair.exchange(model(5))] == [0, 4]
