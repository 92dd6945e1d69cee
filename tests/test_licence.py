"""Who may go on when peers wait for each other: the arbiter by itself, and what a peer reports to it."""

from typing import Any

import pytest

from pflsim.messages.licence import FAR_NS, Arbiter, Reports, Say
from pflsim.timing.downlink import Downlink
from pflsim.timing.fair_share import Flight

DELTA_NS = 5


def report(next_ns: int, *, wants: bool = False, sent: Any = None, come: Any = None) -> dict[str, Any]:
    return {"next_ns": next_ns, "wants": wants, "sent": sent or {}, "come": come or {}}


def test_the_earliest_of_all_gets_a_licence_up_to_what_the_others_may_do() -> None:
    arbiter = Arbiter(["a", "b"], DELTA_NS)
    assert arbiter.take("b", report(100)) == []
    assert arbiter.take("a", report(10, wants=True)) == [Say("a", "LICENCE", 10 + DELTA_NS + DELTA_NS)]


def test_who_holds_somebody_up_is_asked_to_tell_once() -> None:
    arbiter = Arbiter(["a", "b"], DELTA_NS)
    assert arbiter.take("a", report(50, wants=True)) == [Say("b", "TELL", 50)]
    assert arbiter.take("b", report(20)) == []
    assert arbiter.take("b", report(45)) == [Say("a", "LICENCE", 50)]


def test_of_two_that_wait_the_earlier_goes_first_and_is_asked_to_tell_when_it_could_wake_the_other() -> None:
    arbiter = Arbiter(["a", "b"], DELTA_NS)
    arbiter.take("a", report(10, wants=True))
    said = arbiter.take("b", report(40, wants=True))
    assert said == [Say("a", "LICENCE", 20), Say("a", "TELL", 40)]
    assert arbiter.take("a", report(FAR_NS)) == [Say("b", "LICENCE", 50)]


def test_a_message_under_way_may_wake_its_receiver_and_nobody_is_licensed_beyond_what_follows() -> None:
    arbiter = Arbiter(["a", "b", "c"], DELTA_NS)
    arbiter.take("a", report(FAR_NS, sent={"b": (1, 30)}))
    arbiter.take("b", report(FAR_NS))
    assert arbiter.take("c", report(60, wants=True)) == [Say("b", "TELL", 60)]
    assert arbiter.take("b", report(FAR_NS, come={"a": (1, 30)})) == [Say("c", "LICENCE", 60 + 2 * DELTA_NS)]


def test_who_is_licensed_is_told_nothing_beyond_a_message_that_is_on_its_way_to_it() -> None:
    arbiter = Arbiter(["a", "b"], DELTA_NS)
    arbiter.take("a", report(FAR_NS, sent={"b": (2, 30)}))
    assert arbiter.take("b", report(33, wants=True, come={"a": (1, 30)})) == [Say("b", "LICENCE", 30 + DELTA_NS)]


def test_a_report_that_makes_no_sense_names_nobody_that_does_not_exist() -> None:
    with pytest.raises(KeyError):
        Arbiter(["a"], 1).take("a", report(1, sent={"stranger": (1, 1)}))


def test_a_peer_reports_when_it_wants_something_when_it_was_asked_and_when_it_went_on_by_itself() -> None:
    reports = Reports(DELTA_NS)
    assert reports.due(10, wants=False) is None
    assert reports.due(10, wants=True) == report(10, wants=True)
    assert reports.due(10, wants=True) is None
    assert reports.due(30, wants=False) == report(30), "it went on, and the arbiter must not think that it waits"
    assert reports.due(30, wants=False) is None
    reports.asked_until_ns = 50
    assert reports.due(40, wants=False) == report(40)
    assert reports.due(70, wants=False) == report(70)
    assert reports.due(80, wants=False) is None, "it was not asked about that time"


def test_a_peer_goes_on_wanting_what_it_wanted_until_it_has_it() -> None:
    reports = Reports(DELTA_NS)
    reports.asked_until_ns = 50
    reports.due(10, wants=False)
    assert not reports.want
    reports.due(10, wants=True)
    assert reports.want
    reports.was_licensed(5)
    assert reports.want, "that answers an older report"
    reports.was_licensed(10)
    assert not reports.want


def test_a_peer_that_was_asked_acknowledges_what_may_have_woken_it() -> None:
    reports = Reports(DELTA_NS)
    reports.asked_until_ns = 50
    reports.due(FAR_NS, wants=False)
    reports.sent("b", 12, 2)
    reports.came("b", 20)
    reports.came("b", 60)
    assert reports.due(FAR_NS, wants=False) == report(FAR_NS, sent={"b": (2, 12)}, come={"b": (2, 60)})
    reports.came("b", 70)
    assert reports.due(FAR_NS, wants=False) is None, "the arbiter knows that what comes left after 60"


def test_a_flight_behind_its_senders_own_comes_in_as_if_it_had_been_known_from_the_start() -> None:
    first, second = Flight(0, 0, 2.0, 100, ((50.0, 100.0),)), Flight(50, 0, 2.0, 80, ((40.0, 80.0),))
    rival = Flight(0, 0, 0.5, 30, ((60.0, 30.0),))
    flights = {("a", 1): first, ("b", 1): rival, ("a", 2): second}

    def arrivals(*late: tuple[str, int]) -> list[tuple[int, tuple[str, int]]]:
        downlink, found = Downlink(0.8), []
        for key, flight in flights.items():
            if key not in late:
                downlink.add(key, flight)
        while downlink.next() is not None:
            found.append(downlink.take())
            if late and found[-1][1][0] == "b":
                assert second.first_byte_ns < downlink.taken_ns
                for key in late:
                    downlink.add(key, flights[key], in_turn=True)
                late = ()
        return found

    known = arrivals()
    assert [key for _, key in known] == [("b", 1), ("a", 1), ("a", 2)]
    assert arrivals(("a", 2)) == known


def test_who_has_left_holds_nobody_up_who_has_heard_of_that_and_until_then_no_licence_reaches_beyond_it() -> None:
    arbiter = Arbiter(["a", "b", "c"], DELTA_NS)
    arbiter.take("c", report(10, sent={"b": (1, 8)}))
    arbiter.take("b", report(FAR_NS))
    assert arbiter.take("a", report(10, wants=True)) == [Say("a", "LICENCE", 15)]
    assert arbiter.leave("c") == 15, "the furthest anybody may be"
    assert arbiter.take("a", report(30, wants=True)) == [Say("b", "TELL", 30)]
    assert arbiter.heard("a", "c") == []
    assert arbiter.take("b", report(FAR_NS)) == [], "what c had sent to b may still come"
    assert arbiter.heard("b", "c") == [Say("a", "LICENCE", 30 + 2 * DELTA_NS)]
