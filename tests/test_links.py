"""Links: presets and sizes; what a transfer takes, alone and among others, in numbers worked out by hand.

100 Mbit/s are 12.5 MB/s, so 1 MB takes 80 ms; 10 Mbit/s take 800 ms for it.
"""

import math

import pytest

from pflsim.errors import BadMessage, DescriptionError
from pflsim.timing.downlink import Downlink
from pflsim.timing.fair_share import Flight, Transfer, fair_level
from pflsim.timing.links import BYTES_PER_NS, PRESETS, Links, resolved, wire_bytes
from pflsim.timing.uplink import Uplink

MB = 1_000_000
MS = 1_000_000


def mbps(rate: float) -> float:
    return rate * BYTES_PER_NS


def table(client_up: float, client_down: float, server: float, latency_ms: float = 0.0) -> dict[str, object]:
    return {
        "client": {"uplink_mbps": client_up, "downlink_mbps": client_down},
        "server": {"uplink_mbps": server, "downlink_mbps": server},
        "latency_ms": latency_ms,
    }


def clients(count: int) -> list[str]:
    return [f"c{client:03d}" for client in range(count)]


def upload(rate: float, size_bytes: int, start_ns: int = 0, latency_ns: int = 0) -> Flight:
    """A flight that is alone on its sender's uplink of `rate` Mbit/s."""
    transfer = Transfer("server", size_bytes, math.inf, latency_ns)
    return Uplink(mbps(rate)).stamp(start_ns, [transfer])[0]


def taken(downlink: Downlink) -> list[tuple[int, tuple[str, int]]]:
    arrivals = []
    while downlink.next() is not None:
        arrivals.append(downlink.take())
    return arrivals


def arrivals_of(rate: float, flights: dict[str, Flight]) -> dict[str, int]:
    downlink = Downlink(mbps(rate))
    for sender, flight in flights.items():
        downlink.add((sender, 1), flight)
    return {key[0]: arrival_ns for arrival_ns, key in taken(downlink)}


# what a fair share is


def test_who_cannot_use_a_fair_share_leaves_the_rest_to_the_others() -> None:
    assert fair_level(10.0, [(1.0, 1), (9.0, 2)]) == 4.5
    assert fair_level(10.0, [(9.0, 2), (1.0, 1)]) == 4.5


def test_demands_that_fit_are_all_met() -> None:
    assert fair_level(10.0, [(2.0, 5)]) == math.inf
    assert fair_level(math.inf, [(math.inf, 5)]) == math.inf


# one message


def test_one_transfer_takes_its_latency_and_its_size_over_the_slower_end() -> None:
    links = Links(table(10, 50, 100, latency_ms=5), ["server", "c000"])
    up = links.uplink("c000").stamp(7, [links.transfer("c000", "server", MB)])[0]
    down = links.uplink("server").stamp(7, [links.transfer("server", "c000", MB)])[0]
    links.downlink("server").add(("c000", 1), up)
    links.downlink("c000").add(("server", 1), down)
    assert links.downlink("server").take() == (7 + 5 * MS + 800 * MS, ("c000", 1))
    assert links.downlink("c000").take() == (7 + 5 * MS + 160 * MS, ("server", 1))


def test_a_transfer_alone_is_one_straight_line() -> None:
    assert upload(10, MB, start_ns=7, latency_ns=3) == (7, 3, mbps(10), MB, ((800.0 * MS, float(MB)),))


def test_a_begun_nanosecond_of_transfer_counts() -> None:
    assert arrivals_of(1000, {"c000": upload(1000, 1)}) == {"c000": 8}
    assert arrivals_of(3, {"c000": upload(3, 1)}) == {"c000": 2667}


def test_an_ideal_message_takes_one_nanosecond_whatever_its_size() -> None:
    links = Links("ideal", ["server", *clients(2)])
    transfers = [links.transfer("server", client, 10**12) for client in clients(2)]
    for flight, client in zip(links.uplink("server").stamp(5, transfers), clients(2), strict=True):
        links.downlink(client).add(("server", 1), flight)
        assert links.downlink(client).take() == (6, ("server", 1))


def test_an_infinite_downlink_takes_what_the_sender_puts_out() -> None:
    assert arrivals_of(math.inf, {"c000": upload(10, MB, 0, 5 * MS), "c001": upload(100, MB)}) == {
        "c000": 805 * MS,
        "c001": 80 * MS,
    }


def test_an_infinite_uplink_is_held_up_by_its_receivers_only() -> None:
    transfers = [Transfer("c000", MB, mbps(10), 0), Transfer("c001", MB, math.inf, 0)]
    slow, fast = Uplink(math.inf).stamp(0, transfers)
    assert slow.put_out == ((800.0 * MS, float(MB)),)
    assert fast.put_out == ((0.0, float(MB)),)


def test_a_year_of_simulated_time_costs_no_nanosecond_of_exactness() -> None:
    year_ns = 365 * 86400 * 10**9 + 1
    assert arrivals_of(100, {"c000": upload(10, MB, year_ns)}) == {"c000": year_ns + 800 * MS}


# many at a downlink


def test_forty_uploads_into_one_server_take_the_total_over_the_servers_rate() -> None:
    flights = {client: upload(20, MB, latency_ns=2 * MS) for client in clients(40)}
    assert set(arrivals_of(100, flights).values()) == {2 * MS + 40 * 80 * MS}


def test_forty_uploads_of_different_sizes_lose_not_one_nanosecond_of_the_servers_rate() -> None:
    sizes = {client: MB + 12_347 * index for index, client in enumerate(clients(40))}
    arrivals = arrivals_of(100, {client: upload(100, size) for client, size in sizes.items()})
    assert max(arrivals.values()) == sum(sizes.values()) * 80
    assert sorted(arrivals, key=lambda client: arrivals[client]) == clients(40)


def test_a_slow_sender_does_not_hold_up_a_fast_one() -> None:
    # 1 Mbit/s is left alone, the other gets 99 of the 100: 1 MB in 8 / 99 s, and the slow one needs 8 s
    assert arrivals_of(100, {"c000": upload(1, MB), "c001": upload(100, MB)}) == {
        "c000": 8000 * MS,
        "c001": math.ceil(8 * 10**9 / 99),
    }


def test_a_late_flow_takes_half_from_then_on() -> None:
    # c000 has had 0.5 MB after 40 ms; then both have 50 Mbit/s: c001 is done after 40 ms more, c000 20 later
    flights = {"c000": upload(100, MB), "c001": upload(100, MB // 4, start_ns=40 * MS)}
    assert arrivals_of(100, flights) == {"c000": 100 * MS, "c001": 80 * MS}


def test_a_backlog_is_caught_up_at_the_senders_rate_and_not_faster() -> None:
    # both put out 50 and get 30: c001 is in after 80 ms (its sender was done after 48); c000 has a backlog of
    # 0.2 MB then, which stays until its sender is done at 160 ms and takes 32 ms more
    flights = {"c000": upload(50, MB), "c001": upload(50, 300_000)}
    assert arrivals_of(60, flights) == {"c000": 192 * MS, "c001": 80 * MS}


def test_a_backlog_of_a_sender_that_shared_its_uplink_is_caught_up_faster_than_it_was_put_out() -> None:
    # c000's uplink of 50 sends to two: 25 each for 320 ms. c001 and c002 (50 each, 0.3 MB) are there too; all
    # get 20 of the 60. At 120 ms they are in; c000's backlog is 5 Mbit/s x 120 ms = 75 kB, shrinks by 50 - 25
    # Mbit/s and is gone after 24 ms more: from then on c000 gets what it puts out, to the end at 320 ms
    transfers = [Transfer("server", MB, mbps(60), 0), Transfer("c009", MB, mbps(60), 0)]
    shared = Uplink(mbps(50)).stamp(0, transfers)[0]
    flights = {"c000": shared, "c001": upload(50, 300_000), "c002": upload(50, 300_000)}
    assert arrivals_of(60, flights) == {"c000": 320 * MS, "c001": 120 * MS, "c002": 120 * MS}
    # with 0.9 MB of c003 too, in after 320 ms, the backlog is still there when c000 has put out all: it got
    # 60/4 = 15 until 160 ms, then 30 until 320 ms (a backlog of 200 kB, then of 100 kB), then 50 for 16 ms
    flights["c003"] = upload(50, 900_000)
    assert arrivals_of(60, flights) == {
        "c001": 160 * MS,
        "c002": 160 * MS,
        "c003": 320 * MS,
        "c000": 336 * MS,
    }


def test_messages_of_one_sender_come_in_one_after_another_even_from_a_backlog() -> None:
    # c000 puts out 1 MB until 80 ms and 1 kB right after it; c001's 1 MB halves the server's rate. The small
    # message must not overtake: it follows when the large one is in, at 160 ms
    uplink = Uplink(mbps(100))
    large = uplink.stamp(0, [Transfer("server", MB, mbps(100), 0)])[0]
    small = uplink.stamp(0, [Transfer("server", 1000, mbps(100), 0)])[0]
    downlink = Downlink(mbps(100))
    downlink.add(("c001", 1), upload(100, MB))
    downlink.add(("c000", 2), small)
    downlink.add(("c000", 1), large)
    arrivals = [(160 * MS, ("c000", 1)), (160 * MS, ("c001", 1)), (160 * MS + 80_000, ("c000", 2))]
    assert taken(downlink) == arrivals


def test_equal_arrivals_are_taken_in_the_order_of_their_keys() -> None:
    downlink = Downlink(mbps(100))
    for key in [("c002", 1), ("c000", 4), ("c001", 9)]:
        downlink.add(key, upload(10, MB))
    assert [key for _, key in taken(downlink)] == [("c000", 4), ("c001", 9), ("c002", 1)]


def test_a_flight_added_later_changes_the_arrivals_that_have_not_been_taken() -> None:
    downlink = Downlink(mbps(100))
    downlink.add(("c000", 1), upload(100, MB))
    assert downlink.next() == (80 * MS, ("c000", 1))
    downlink.add(("c001", 1), upload(100, MB // 4, start_ns=40 * MS))
    assert downlink.next() == (80 * MS, ("c001", 1))
    assert taken(downlink) == [(80 * MS, ("c001", 1)), (100 * MS, ("c000", 1))]
    assert downlink.next() is None


def test_an_arrival_is_told_only_if_it_is_before_the_horizon() -> None:
    downlink = Downlink(mbps(100))
    assert downlink.next(10**18) is None
    downlink.add(("c000", 1), upload(100, MB))
    assert downlink.next(80 * MS) is None
    assert downlink.next(80 * MS + 1) == (80 * MS, ("c000", 1))
    downlink.add(("c001", 1), upload(100, MB // 4, start_ns=1 * MS))
    assert downlink.next(20 * MS) is None
    assert downlink.next() == (41 * MS, ("c001", 1))


def test_nothing_that_an_infinite_downlink_was_asked_for_makes_it_lose_a_message() -> None:
    downlink = Downlink(math.inf)
    assert downlink.next() is None
    downlink.add(("c000", 1), upload(100, MB))
    assert downlink.take() == (80 * MS, ("c000", 1))
    assert downlink.next() is None


def test_nothing_can_be_added_before_an_arrival_that_was_taken() -> None:
    downlink = Downlink(mbps(100))
    downlink.add(("c000", 1), upload(100, MB))
    downlink.take()
    with pytest.raises(ValueError, match="before what was taken at 80000000 ns"):
        downlink.add(("c001", 1), upload(100, MB, start_ns=80 * MS - 1))
    downlink.add(("c001", 1), upload(100, MB, start_ns=80 * MS))
    assert downlink.take() == (160 * MS, ("c001", 1))
    with pytest.raises(IndexError, match="nothing is coming in"):
        downlink.take()


# many at an uplink


def test_equal_sends_of_one_instant_share_the_uplink() -> None:
    transfers = [Transfer(client, MB, mbps(100), 0) for client in clients(40)]
    for flight in Uplink(mbps(100)).stamp(0, transfers):
        assert flight.put_out == ((40 * 80.0 * MS, float(MB)),)


def test_one_slow_receiver_does_not_hold_up_the_others() -> None:
    transfers = [Transfer("c000", MB, mbps(1), 0), Transfer("c001", MB, mbps(100), 0)]
    slow, fast = Uplink(mbps(100)).stamp(0, transfers)
    assert slow.put_out == ((8000.0 * MS, float(MB)),)
    assert fast.put_out[-1][0] == pytest.approx(8e9 / 99)


def test_when_one_send_is_over_the_others_of_its_instant_get_faster() -> None:
    # half each until the small one is out after 2 x 20 ms, then 0.75 MB alone in 60 ms
    transfers = [Transfer("c000", MB, mbps(100), 0), Transfer("c001", MB // 4, mbps(100), 0)]
    large, small = Uplink(mbps(100)).stamp(0, transfers)
    assert small.put_out == ((40.0 * MS, 250_000.0),)
    assert large.put_out == ((40.0 * MS, 250_000.0), (100.0 * MS, 1_000_000.0))


def test_later_sends_get_what_the_stamped_ones_leave() -> None:
    # c000 takes 60 of 100 for 160 ms (1.2 MB); c001, sent at 60 ms, has 40 until then (0.5 MB), then 100
    uplink = Uplink(mbps(100))
    first = uplink.stamp(0, [Transfer("c000", 1_200_000, mbps(60), 0)])[0]
    second = uplink.stamp(60 * MS, [Transfer("c001", MB, mbps(100), 0)])[0]
    assert first.put_out == ((160.0 * MS, 1_200_000.0),)
    assert second.departure_ns == 60 * MS
    (turn_ns, turn_bytes), end = second.put_out
    assert turn_ns == 100.0 * MS
    assert turn_bytes == pytest.approx(500_000.0)
    assert end == (140.0 * MS, 1_000_000.0)


def test_a_send_that_finds_the_uplink_full_departs_when_there_is_room() -> None:
    uplink = Uplink(mbps(100))
    uplink.stamp(0, [Transfer("c000", MB, mbps(100), 0)])
    flight = uplink.stamp(10 * MS, [Transfer("c001", MB, mbps(100), 0)])[0]
    assert flight.departure_ns == 80 * MS
    assert flight.put_out == ((80.0 * MS, float(MB)),)


def test_a_departure_between_two_nanoseconds_is_told_exactly() -> None:
    uplink = Uplink(mbps(3))  # 1 byte takes 2666.67 ns
    uplink.stamp(0, [Transfer("c000", 1, mbps(3), 0)])
    flight = uplink.stamp(0, [Transfer("c001", 1, mbps(3), 0)])[0]
    assert flight.departure_ns == 2666
    (begin, nothing), (end, everything) = flight.put_out
    assert [begin, end] == pytest.approx([2 / 3, 2 / 3 + 8000 / 3])
    assert (nothing, everything) == (0.0, 1.0)


def test_transfers_of_one_pair_leave_one_after_another() -> None:
    to_slow = Transfer("c000", MB, mbps(50), 0)
    uplink = Uplink(mbps(100))
    first, second = uplink.stamp(0, [to_slow, to_slow])
    third = uplink.stamp(100 * MS, [to_slow])[0]
    assert [flight.departure_ns for flight in (first, second, third)] == [0, 160 * MS, 320 * MS]
    assert {flight.put_out for flight in (first, second, third)} == {((160.0 * MS, float(MB)),)}


def test_an_uplink_refuses_to_go_back_in_time() -> None:
    uplink = Uplink(mbps(100))
    uplink.stamp(5, [Transfer("c000", MB, mbps(100), 0)])
    with pytest.raises(ValueError, match="cannot stamp at 4 ns"):
        uplink.stamp(4, [Transfer("c000", MB, mbps(100), 0)])


# what travels with a message


def test_a_flight_survives_being_a_list() -> None:
    uplink = Uplink(mbps(3))
    transfers = [Transfer("c000", 5, mbps(3), 9), Transfer("c001", 1, math.inf, 9)]
    for flight in [*uplink.stamp(1, transfers), *Uplink(math.inf).stamp(1, transfers)]:
        numbers = flight.as_list()
        assert Flight.from_list(numbers) == flight
        assert all(type(number) in (int, float) for number in numbers)


@pytest.mark.parametrize(
    "numbers",
    [
        None,
        [],
        [0, 0, 1.0, 5],
        [0, 0, 1.0, 5, 1.0],
        [0, 0, 1.0, 5, 1.0, 5.0, 2.0],
        [-1, 0, 1.0, 5, 1.0, 5.0],
        [0, 2**70, 1.0, 5, 1.0, 5.0],
        [0, 0, 0.0, 5, 1.0, 5.0],
        [0, 0, 1e-300, 5, 1.0, 5.0],
        [0, 0, math.nan, 5, 1.0, 5.0],
        [0, 0, 1.0, 0, 1.0, 0.0],
        [0, 0, 1.0, 5, 1.0, 4.0],
        [0, 0, 1.0, 5, 1.0, 6.0, 2.0, 5.0],
        [0, 0, 1.0, 5, 2.0, 3.0, 1.0, 5.0],
        [0, 0, 1.0, 5, math.inf, 5.0],
        [0, 0, 1.0, 5, math.nan, 5.0],
        [0, 0, 1.0, 5, 1.0, math.nan],
        [0, 0, 1.0, 5, "1", 5.0],
        [0, True, 1.0, 5, 1.0, 5.0],
        [0.0, 0, 1.0, 5, 1.0, 5.0],
    ],
)
def test_a_list_that_is_no_flight_is_a_bad_message(numbers: list[float]) -> None:
    with pytest.raises(BadMessage):
        Flight.from_list(numbers)


def test_the_bytes_on_the_wire_are_payload_frame_headers_and_segments() -> None:
    assert wire_bytes([]) == 0
    assert wire_bytes([255]) == 257 + 90
    assert wire_bytes([256]) == 265 + 90
    assert wire_bytes([1439]) == 1448 + 90
    assert wire_bytes([1440]) == 1449 + 2 * 90
    assert wire_bytes([100, MB]) == 102 + MB + 9 + 691 * 90  # 1000111 / 1448 = 690.7 segments


# the description


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_every_preset_is_a_full_table(name: str) -> None:
    assert resolved(name) == resolved(PRESETS[name])
    links = Links(name, ["server", "c000"])
    assert links.latency_ns("server", "c000") == round(PRESETS[name]["latency_ms"] * MS)
    assert links.uplink_rate("c000") == PRESETS[name]["client"]["uplink_mbps"] * 1.25e-4


def test_an_actor_has_one_uplink_and_one_downlink() -> None:
    links = Links("lan", ["server", "c000"])
    assert links.uplink("c000") is links.uplink("c000")
    assert links.downlink("c000") is links.downlink("c000")
    assert links.uplink("server") is not links.uplink("c000")


def test_an_actor_that_nobody_named_has_no_link() -> None:
    links = Links("lan", ["server", "c000"])
    with pytest.raises(KeyError, match="c001"):
        links.uplink("c001")
    with pytest.raises(KeyError, match="c001"):
        links.latency_ns("server", "c001")


def without(name: str) -> dict[str, object]:
    return {key: value for key, value in table(1, 1, 1).items() if key != name}


@pytest.mark.parametrize(
    ("setting", "key", "says"),
    [
        ("wi-fi", "links", "did you mean 'wifi'"),
        (100, "links", "must be a table"),
        (table(0, 1, 1), "links.client.uplink_mbps", "above 0"),
        (table(1, -1, 1), "links.client.downlink_mbps", "above 0"),
        (table(1, 1, math.nan), "links.server.downlink_mbps", "above 0"),
        (table(1, 1, 1, -1), "links.latency_ms", "from 0"),
        (table(1, 1, 1, math.inf), "links.latency_ms", "finite"),
        (table(True, 1, 1), "links.client.uplink_mbps", "must be a number"),
        (without("latency_ms"), "links.latency_ms", "is required"),
        (without("server"), "links.server", "is required"),
        ({**table(1, 1, 1), "latency": 3}, "links.latency", "did you mean 'latency_ms'"),
        ({**table(1, 1, 1), "client": {"uplink_mbps": 1}}, "links.client.downlink_mbps", "is required"),
        ({**table(1, 1, 1), "client": "wifi"}, "links.client", "must be a table"),
    ],
)
def test_a_wrong_description_is_refused_with_its_key(setting: object, key: str, says: str) -> None:
    with pytest.raises(DescriptionError) as refused:
        Links(setting, ["server", "c000"])
    assert refused.value.key == key
    assert says in refused.value.expected
