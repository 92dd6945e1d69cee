"""How peers and their coordinator choose after which round all are written down, when the host's time says that."""

import pytest

from pflsim.errors import BadMessage
from pflsim.messages.common_round import FAR, Chooser, Chosen

PEERS = ("c000", "c001", "c002")


@pytest.fixture
def host_s(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What the host's clock says is its last number."""
    now_s = [100.0]
    monkeypatch.setattr("pflsim.timing.clock.time.monotonic", lambda: now_s[-1])
    return now_s


def test_the_round_is_chosen_at_which_the_furthest_is() -> None:
    chooser = Chooser(PEERS)
    assert chooser.take("c001", "DUE", 0) == ("WHERE", 0)
    assert chooser.take("c000", "HERE", 4) is None
    assert chooser.take("c001", "HERE", 9) is None
    assert chooser.take("c002", "HERE", 2) == ("CUT", 10)


def test_who_says_later_that_the_same_one_is_due_says_nothing_new() -> None:
    chooser = Chooser(PEERS)
    chooser.take("c001", "DUE", 0)
    assert chooser.take("c000", "DUE", 0) is None
    for peer in PEERS:
        chooser.take(peer, "HERE", 4)
    assert chooser.take("c002", "DUE", 0) is None
    assert chooser.take("c002", "DUE", 5) == ("WHERE", 0)


def test_who_was_not_asked_or_answers_twice_is_not_heard() -> None:
    chooser = Chooser(PEERS)
    with pytest.raises(BadMessage, match="c000 says that it has ended 3 rounds, and was not asked"):
        chooser.take("c000", "HERE", 3)
    chooser.take("c001", "DUE", 0)
    chooser.take("c000", "HERE", 3)
    with pytest.raises(BadMessage, match="c000 says that it has ended 7 rounds, and was not asked"):
        chooser.take("c000", "HERE", 7)


def test_it_is_due_after_so_much_time_since_the_last_was_chosen_and_said_once(host_s: list[float]) -> None:
    chosen = Chosen(every_s=60.0, ended=0)
    host_s.append(159.9)
    assert chosen.between(1) is None
    host_s.append(160.0)
    assert chosen.between(2) == ("DUE", 0)
    assert chosen.between(3) is None
    chosen.told(5)
    host_s.append(219.9)
    assert chosen.between(6) is None
    host_s.append(220.0)
    assert chosen.between(7) == ("DUE", 5)


def test_who_is_asked_is_held_until_it_is_told(host_s: list[float]) -> None:
    chosen = Chosen(every_s=60.0, ended=2)
    assert chosen.asked(has_finished=False) == ("HERE", 2)
    assert chosen.is_held
    chosen.told(4)
    assert not chosen.is_held
    assert [round for round in range(9) if chosen.is_after(round)] == [4]


def test_nobody_gets_to_a_round_that_is_chosen_when_somebody_has_finished(host_s: list[float]) -> None:
    chosen, chooser = Chosen(every_s=60.0, ended=7), Chooser(PEERS[:1])
    chooser.take("c000", "DUE", 0)
    assert chosen.asked(has_finished=True) == ("HERE", FAR)
    assert chooser.take("c000", *chosen.asked(has_finished=True)) == ("CUT", FAR + 1)
