"""Links: what must hold for any traffic, and the same traffic worked out again in slower and plainer ways."""

import math
from collections.abc import Iterable
from fractions import Fraction
from itertools import pairwise
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from pflsim.timing.downlink import Downlink, Key
from pflsim.timing.fair_share import Flight, Transfer, fair_level
from pflsim.timing.links import BYTES_PER_NS
from pflsim.timing.uplink import Uplink

Send = tuple[int, list[Transfer]]  # (instant, what is sent then)

rates_mbps = st.sampled_from([1.0, 3.0, 7.0, 10.0, 25.0, 50.0, 100.0, 1000.0, math.inf])
sizes = st.one_of(st.integers(1, 200), st.integers(1, 100_000), st.sampled_from([1000, 50_000]))
latencies_ns = st.sampled_from([0, 1, 1000, 2_000_000])


def rate_of(mbps: float) -> float:
    return mbps * BYTES_PER_NS


@st.composite
def sends_of_one_actor(draw: st.DrawFn) -> list[Send]:
    downlinks = {receiver: rate_of(draw(rates_mbps)) for receiver in ("server", "c000", "c001")}
    latency_ns = draw(latencies_ns)
    sends, now_ns = [], draw(st.integers(0, 10**12))
    for _ in range(draw(st.integers(1, 4))):
        now_ns += draw(st.sampled_from([0, 1, 17, 10_000, 3_000_000, 10**9]))
        receivers = draw(st.lists(st.sampled_from(sorted(downlinks)), min_size=1, max_size=4))
        sends.append((now_ns, [Transfer(to, draw(sizes), downlinks[to], latency_ns) for to in receivers]))
    return sends


@st.composite
def flights_to_one_actor(draw: st.DrawFn) -> dict[Key, Flight]:
    """Flights to "server" of up to six senders, each on an uplink that others share, most within a second."""
    flights: dict[Key, Flight] = {}
    for sender in range(draw(st.integers(1, 6))):
        uplink, now_ns = Uplink(rate_of(draw(rates_mbps))), draw(st.sampled_from([0, 0, 1000, 5_000_000]))
        latency_ns = draw(latencies_ns)
        for _ in range(draw(st.integers(1, 3))):
            transfers = [Transfer("server", draw(sizes), rate_of(100), latency_ns)]
            if draw(st.booleans()):
                transfers.append(Transfer("c999", draw(sizes), rate_of(draw(rates_mbps)), latency_ns))
            stamped = uplink.stamp(now_ns, transfers)[0]
            flights[f"c{sender:03d}", len(flights)] = stamped
            now_ns += draw(st.sampled_from([0, 1, 1000, 3_000_000]))
    return flights


def taken(downlink: Downlink) -> list[tuple[int, Key]]:
    arrivals = []
    while downlink.next() is not None:
        arrivals.append(downlink.take())
    return arrivals


def arrivals_of(rate: float, flights: Iterable[tuple[Key, Flight]]) -> list[tuple[int, Key]]:
    downlink = Downlink(rate)
    for key, flight in flights:
        downlink.add(key, flight)
    return taken(downlink)


# the sender's side


def pieces(flight: Flight) -> list[tuple[float, float, float]]:
    """(from, until, rate) of the flight's curve, in ns and bytes/ns; its jumps are left out."""
    found, begin, before = [], 0.0, 0.0
    for end, after in flight.put_out:
        if end > begin:
            rate = (after - before) / (end - begin)
            found.append((flight.departure_ns + begin, flight.departure_ns + end, rate))
        begin, before = end, after
    return found


@settings(max_examples=150, deadline=None)
@given(sends_of_one_actor(), rates_mbps)
def test_no_uplink_and_no_receiver_is_ever_exceeded_and_nothing_is_left_unused(
    sends: list[Send], uplink_mbps: float
) -> None:
    uplink = Uplink(rate_of(uplink_mbps))
    stamped = [
        (now_ns, transfer, flight)
        for now_ns, transfers in sends
        for transfer, flight in zip(transfers, uplink.stamp(now_ns, transfers), strict=True)
    ]
    curves = [(now_ns, transfer, flight, pieces(flight)) for now_ns, transfer, flight in stamped]
    borders = sorted({border for *_, curve in curves for piece in curve for border in piece[:2]})
    for begin, end in pairwise(borders):
        if end - begin < 100:  # within so short a time, and so late, a rate is not told exactly by two floats
            continue
        middle = (begin + end) / 2
        rates = [sum(rate for t0, t1, rate in curve if t0 <= middle < t1) for *_, curve in curves]
        full = sum(rates) >= uplink.rate * (1 - 1e-4)
        assert sum(rates) <= uplink.rate * (1 + 1e-4)
        for (now_ns, transfer, flight, _), rate in zip(curves, rates, strict=True):
            cap = min(uplink.rate, transfer.downlink)
            assert rate <= cap * (1 + 1e-4)
            done = flight.departure_ns + flight.put_out[-1][0] <= begin
            pair_waits = any(
                other.receiver == transfer.receiver and other_rate > 0 and other_flight is not flight
                for (_, other, other_flight, _), other_rate in zip(curves, rates, strict=True)
            )
            assert now_ns > begin or done or pair_waits or full or rate >= cap * (1 - 1e-4)


@settings(max_examples=100, deadline=None)
@given(sends_of_one_actor(), rates_mbps)
def test_the_transfers_of_a_pair_leave_in_order_and_do_not_overlap(sends: list[Send], uplink_mbps: float) -> None:
    uplink = Uplink(rate_of(uplink_mbps))
    last: dict[str, float] = {}
    for now_ns, transfers in sends:
        for transfer, flight in zip(transfers, uplink.stamp(now_ns, transfers), strict=True):
            assert flight.departure_ns >= now_ns
            first_offset = flight.put_out[0][0] if flight.put_out[0][1] == 0.0 else 0.0
            assert flight.departure_ns + first_offset >= last.get(transfer.receiver, 0.0) - 0.01
            last[transfer.receiver] = flight.departure_ns + flight.put_out[-1][0]
            assert flight.put_out[-1][1] == transfer.size_bytes
            assert Flight.from_list(flight.as_list()) == flight


@settings(max_examples=50, deadline=None)
@given(sends_of_one_actor(), rates_mbps, st.randoms(use_true_random=False))
def test_the_order_of_sends_to_different_receivers_changes_no_bit(sends: list[Send], mbps: float, rnd: Random) -> None:
    now_ns, transfers = sends[0]
    different = list({transfer.receiver: transfer for transfer in transfers}.values())
    shuffled = rnd.sample(different, len(different))
    straight = dict(zip(different, Uplink(rate_of(mbps)).stamp(now_ns, different), strict=True))
    assert dict(zip(shuffled, Uplink(rate_of(mbps)).stamp(now_ns, shuffled), strict=True)) == straight


# the receiver's side


def put_out_by(flight: Flight, time: Fraction) -> tuple[Fraction, Fraction, Fraction | None]:
    """(bytes put out by `time`, the rate from then on, when that changes) as seen at the receiver."""
    begin, before = Fraction(flight.first_byte_ns), Fraction(0)
    if time < begin:
        return Fraction(0), Fraction(0), begin
    for offset, after_float in flight.put_out:
        end, after = flight.first_byte_ns + Fraction(offset), Fraction(after_float)
        if time < end:
            rate = (after - before) / (end - begin)
            return before + rate * (time - begin), rate, end
        begin, before = end, after
    return before, Fraction(0), None


def exact_level(capacity: Fraction, demands: list[Fraction]) -> Fraction | None:
    for index, demand in enumerate(sorted(demands)):
        if demand * (len(demands) - index) > capacity:
            return capacity / (len(demands) - index)
        capacity -= demand
    return None


def exact_arrivals(rate: float, flights: dict[Key, Flight]) -> dict[Key, Fraction]:
    """Every flow looked at, at every event, in fractions: what `Downlink` does without its short cuts."""
    time, got = Fraction(0), dict.fromkeys(flights, Fraction(0))
    arrived: dict[Key, Fraction] = {}
    most = Fraction(10**30)  # stands for infinity
    while len(arrived) < len(flights):
        first = {key[0]: key for key in sorted(flights, reverse=True) if key not in arrived}
        events, flows = [], {}
        for key in first.values():
            total, slope, change = put_out_by(flights[key], time)
            if change is not None:
                events.append(change)
            if time >= flights[key].first_byte_ns:
                cap = Fraction(flights[key].cap) if flights[key].cap < math.inf else most
                backlog = total - got[key]
                flows[key] = (backlog, slope, cap if backlog > 0 else min(cap, slope))
        level = exact_level(Fraction(rate), [demand for _, _, demand in flows.values()])
        speeds = {k: demand if level is None else min(demand, level) for k, (_, _, demand) in flows.items()}
        for key, (backlog, slope, _) in flows.items():
            if speeds[key] > slope:
                events.append(time + backlog / (speeds[key] - slope))
        later = min(events)
        for key, speed in speeds.items():
            got[key] += speed * (later - time)
            if got[key] >= flights[key].size_bytes:
                arrived[key] = later
        time = later
    return arrived


@settings(max_examples=150, deadline=None)
@given(flights_to_one_actor(), st.sampled_from([1.0, 7.0, 50.0, 100.0]))
def test_a_downlink_agrees_with_exact_arithmetic_to_the_nanosecond(flights: dict[Key, Flight], mbps: float) -> None:
    exact = exact_arrivals(rate_of(mbps), flights)
    for arrival_ns, key in arrivals_of(rate_of(mbps), flights.items()):
        # crumbs of a float can be put out a 2^-20 of a ns late, and a border then falls on the other side
        expected = max(math.ceil(exact[key] - Fraction(1, 200)), flights[key].first_byte_ns + 1)
        assert abs(arrival_ns - expected) <= 1


@settings(max_examples=100, deadline=None)
@given(
    flights_to_one_actor(),
    st.sampled_from([1.0, 7.0, 50.0, 100.0, math.inf]),
    st.randoms(use_true_random=False),
)
def test_neither_the_order_nor_the_moment_of_adding_changes_an_arrival(
    flights: dict[Key, Flight], mbps: float, rnd: Random
) -> None:
    known_at_once = arrivals_of(rate_of(mbps), flights.items())
    assert arrivals_of(rate_of(mbps), rnd.sample(sorted(flights.items()), len(flights))) == known_at_once
    downlink = Downlink(rate_of(mbps))
    just_in_time: list[tuple[int, Key]] = []
    unknown = rnd.sample(sorted(flights.items()), len(flights))
    while len(just_in_time) < len(flights):
        horizon_ns = min((flight.first_byte_ns + 1 for _, flight in unknown), default=math.inf)
        certain = downlink.next(horizon_ns)
        if rnd.random() < 0.3:  # to ask without a horizon is more work, and no other answer
            coming = downlink.next()
            assert certain == (coming if coming is not None and coming[0] < horizon_ns else None)
        if certain is not None and rnd.random() < 0.9:
            just_in_time.append(downlink.take())
        elif unknown:
            downlink.add(*unknown.pop())
    assert just_in_time == known_at_once


@settings(max_examples=100, deadline=None)
@given(flights_to_one_actor(), st.sampled_from([1.0, 7.0, 50.0, 100.0, math.inf]))
def test_nobody_is_faster_than_its_ends_and_a_downlink_never_gives_more_than_it_has(
    flights: dict[Key, Flight], mbps: float
) -> None:
    rate = rate_of(mbps)
    arrivals = arrivals_of(rate, flights.items())
    begun_ns = min(flight.first_byte_ns for flight in flights.values())
    total = 0
    last: dict[str, Key] = {}
    for arrival_ns, key in arrivals:
        flight = flights[key]
        assert arrival_ns > flight.first_byte_ns
        assert arrival_ns >= math.ceil(flight.first_byte_ns + flight.put_out[-1][0] - 0.01)
        assert (arrival_ns - flight.first_byte_ns) * min(rate, flight.cap) >= flight.size_bytes * (1 - 1e-9)
        total += flight.size_bytes
        assert total <= rate * (arrival_ns - begun_ns) * (1 + 1e-9) or rate == math.inf
        assert key > last.get(key[0], ("", 0))  # the order of a pair is kept
        last[key[0]] = key
    assert sorted(key for _, key in arrivals) == sorted(flights)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(1, 10**6), min_size=1, max_size=30), st.sampled_from([3.0, 50.0, 100.0]))
def test_a_downlink_with_enough_to_do_never_idles(sizes_bytes: list[int], mbps: float) -> None:
    flights = {
        (f"c{client:03d}", 1): Uplink(rate_of(100)).stamp(0, [Transfer("server", size, math.inf, 0)])[0]
        for client, size in enumerate(sizes_bytes)
    }
    last_ns = arrivals_of(rate_of(mbps), flights.items())[-1][0]
    exact_ns = Fraction(sum(sizes_bytes) * 8000) / Fraction(mbps)
    assert last_ns == math.ceil(exact_ns)


def test_small_steps_of_time_come_to_the_same_arrivals() -> None:
    sizes_bytes = [40_000, 25_000, 90_000, 60_000, 10_000]
    uplinks = [20.0, 50.0, 50.0, 5.0, 100.0]
    flights: dict[Key, Flight] = {}
    for client, (size, mbps) in enumerate(zip(sizes_bytes, uplinks, strict=True)):
        aside = Transfer("c999", size // 2, rate_of(10), 2_000_000)
        stamped = Uplink(rate_of(mbps)).stamp(
            client * 3_000_000, [Transfer("server", size, rate_of(60), 2_000_000), aside]
        )
        flights[f"c{client:03d}", 1] = stamped[0]
    step_ns = 10_000
    got = dict.fromkeys(flights, 0.0)
    rough: dict[Key, int] = {}
    time_ns = 0
    while len(rough) < len(flights):
        out = {key: float(put_out_by(flights[key], Fraction(time_ns + step_ns))[0]) for key in flights}
        wants = {key: min(flights[key].cap, (out[key] - got[key]) / step_ns) for key in flights}
        level = fair_level(rate_of(60), [(want, 1) for want in wants.values()])
        time_ns += step_ns
        for key, want in wants.items():
            got[key] += min(want, level) * step_ns
            if got[key] >= flights[key].size_bytes - 1e-6:
                rough.setdefault(key, time_ns)
    for arrival_ns, key in arrivals_of(rate_of(60), flights.items()):
        assert abs(arrival_ns - rough[key]) <= 3 * step_ns
