"""Links that differ from client to client and from pair to pair, and what delays their messages further."""

import math
from pathlib import Path
from statistics import mean, median

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pflsim.errors import DescriptionError
from pflsim.timing.disturbance import slow_start_ns
from pflsim.timing.latency import KM_PER_MS_IN_FIBRE
from pflsim.timing.links import BYTES_PER_NS, FULL_SEGMENT_BYTES, PRESETS, Links, resolved

MS = 1_000_000
ACTORS = ["server", "c000", "c001", "c002"]
MANY = ["server", *(f"c{client:04d}" for client in range(2000))]


def links(actors: list[str] = ACTORS, seed: int = 1, client: dict[str, object] | None = None, **more: object) -> Links:
    rates: dict[str, object] = {"uplink_mbps": 10.0, "downlink_mbps": 50.0}
    server = {"uplink_mbps": 1000.0, "downlink_mbps": 1000.0}
    return Links({"client": rates | (client or {}), "server": server, "latency_ms": 5.0, **more}, actors, seed)


# rates


def test_uplinks_and_downlinks_are_spread_by_themselves_about_their_medians() -> None:
    spread = {"kind": "lognormal", "spread": 0.5}
    found = links(MANY, client={"uplink_mbps": spread | {"mbps": 8}, "downlink_mbps": spread | {"mbps": 40}})
    up = [found.uplink_rate(actor) / BYTES_PER_NS for actor in MANY[1:]]
    down = [found.downlink_rate(actor) / BYTES_PER_NS for actor in MANY[1:]]
    assert median(up) == pytest.approx(8, rel=0.04) and median(down) == pytest.approx(40, rel=0.04)
    assert sorted(up) != up and [rate / 8 for rate in up] != [rate / 40 for rate in down]
    assert found.uplink_rate("server") == 1000 * BYTES_PER_NS
    assert found.uplink("c0007").rate == found.uplink_rate("c0007")


def test_one_trace_has_both_rates_of_every_client(tmp_path: Path) -> None:
    file = tmp_path / "rates.csv"
    file.write_text("client,uplink_mbps,downlink_mbps\nc001,2,20\n0,1,10\n2,3,30\n")
    trace = {"kind": "trace", "file": str(file)}
    found = links(client={"uplink_mbps": trace, "downlink_mbps": trace})
    assert [found.uplink_rate(actor) / BYTES_PER_NS for actor in ACTORS[1:]] == pytest.approx([1, 2, 3])
    assert [found.downlink_rate(actor) / BYTES_PER_NS for actor in ACTORS[1:]] == pytest.approx([10, 20, 30])


def test_stragglers_may_have_slow_lines() -> None:
    found = links(client={"uplink_mbps": {"kind": "bimodal", "mbps": 10, "stragglers": 1, "slowdown": 4}})
    assert sorted(found.uplink_rate(actor) / BYTES_PER_NS for actor in ACTORS[1:]) == pytest.approx([2.5, 10, 10])


# latency


def test_a_matrix_says_the_latency_of_each_pair_and_direction(tmp_path: Path) -> None:
    file = tmp_path / "latency.csv"
    file.write_text("sender,server,c000,c001,c002\nserver,,1,2,3\nc000,1.5,,4,5\nc001,2,4,0,6\nc002,3,5,6,\n")
    found = links(latency_ms={"kind": "matrix", "file": str(file)})
    assert found.latency_ns("server", "c000") == 1_000_000
    assert found.latency_ns("c000", "server") == 1_500_000
    assert found.latency_ns("c001", "c002") == found.latency_ns("c002", "c001") == 6_000_000


def test_distances_are_walked_at_the_speed_of_light_in_fibre(tmp_path: Path) -> None:
    file = tmp_path / "places.csv"
    file.write_text("actor,x_km,y_km\nserver,0,0\nc000,300,400\nc001,-300,-400\nc002,0,0\n")
    found = links(latency_ms={"kind": "distances", "file": str(file), "detour": 2, "base_ms": 1})
    assert abs(KM_PER_MS_IN_FIBRE - 204.218) < 0.001
    assert found.latency_ns("server", "c000") == round((1 + 1000 / KM_PER_MS_IN_FIBRE) * MS) == 5_896_721
    assert found.latency_ns("c000", "c001") == round((1 + 2000 / KM_PER_MS_IN_FIBRE) * MS)
    assert found.latency_ns("server", "c002") == MS


def test_drawn_places_are_uniform_in_a_disc_about_the_server() -> None:
    found = links(MANY, latency_ms={"kind": "distances", "radius_km": 1000})
    away_km = [found.latency_ns("server", actor) / MS * KM_PER_MS_IN_FIBRE for actor in MANY[1:]]
    assert max(away_km) <= 1000.001
    assert mean(distance**2 for distance in away_km) == pytest.approx(500_000, rel=0.04)
    assert found.latency_ns("c0001", "c0002") == found.latency_ns("c0002", "c0001")


# jitter and loss


def test_what_befalls_a_message_depends_on_the_seed_its_ends_and_its_number_alone() -> None:
    disturbed = {"jitter_ms": 2.0, "loss": 0.3, "retransmit_ms": 200.0}
    found = links(**disturbed)
    once = [found.extra_latency_ns("c000", "server", number) for number in range(50)]
    again = links(**disturbed)
    assert [again.extra_latency_ns("c000", "server", number) for number in reversed(range(50))] == once[::-1]
    others = [found.extra_latency_ns("c001", "server", 1), found.extra_latency_ns("server", "c000", 1)]
    assert len({once[1], *others, links(seed=2, **disturbed).extra_latency_ns("c000", "server", 1)}) == 4


def test_jitter_is_exponential_with_the_given_mean() -> None:
    found = links(jitter_ms=2.0)
    drawn = [found.extra_latency_ns("c000", "server", number) / MS for number in range(4000)]
    assert mean(drawn) == pytest.approx(2.0, rel=0.06)
    assert mean(delay > 4 for delay in drawn) == pytest.approx(math.exp(-2), abs=0.02)


def test_each_loss_costs_one_time_out_and_one_segment_and_their_number_is_geometric() -> None:
    found = links(loss=0.25, retransmit_ms=200)
    delays = [found.extra_latency_ns("c000", "server", number) for number in range(4000)]
    assert {delay % (200 * MS) for delay in delays} == {0}
    losses = [delay // (200 * MS) for delay in delays]
    assert mean(losses) == pytest.approx(1 / 3, abs=0.04)
    assert mean(count == 0 for count in losses) == pytest.approx(0.75, abs=0.03)
    unlucky = losses.index(2)
    assert found.transfer("c000", "server", 10**6, unlucky).size_bytes == 10**6 + 2 * FULL_SEGMENT_BYTES == 1_003_076
    assert found.transfer("c000", "server", 100, unlucky).size_bytes == 300, "a short message is all that is sent again"


def test_a_transfer_with_its_number_has_what_delays_it() -> None:
    found = links(loss=0.5, retransmit_ms=200, slow_start=True)
    number = next(one for one in range(100) if found.delay("c000", "server", one).retransmissions == 1)
    plain = found.transfer("c000", "server", 10**6)
    delayed = found.transfer("c000", "server", 10**6, number)
    slow_ns = found.slow_start_ns("c000", "server", 10**6)
    assert plain == ("server", 10**6, 1000 * BYTES_PER_NS, 5 * MS)
    assert delayed == ("server", 10**6 + FULL_SEGMENT_BYTES, 1000 * BYTES_PER_NS, 205 * MS + slow_ns)


@pytest.mark.parametrize("name", sorted(set(PRESETS) - {"wan"}))
def test_a_preset_delays_nothing_further(name: str) -> None:
    found = Links(name, ACTORS, 3)
    assert found.transfer("c000", "server", 10**6, 17) == found.transfer("c000", "server", 10**6)


# slow start


def test_a_message_within_the_first_window_does_not_wait() -> None:
    assert slow_start_ns(15_380, 0.0125, 80 * MS, FULL_SEGMENT_BYTES) == 0


def test_a_message_of_two_windows_waits_once_for_an_acknowledgement() -> None:
    assert slow_start_ns(15_381, 0.0125, 80 * MS, FULL_SEGMENT_BYTES) == 80 * MS - 15_380 * 80


def test_a_megabyte_across_the_wan_waits_six_times() -> None:
    """Windows of 15380 x 1, 2, 4, 8, 16 and 32 bytes leave the line empty for 80 ms less what they take."""
    found = Links("wan", ACTORS)
    assert found.slow_start_ns("c000", "server", 10**6) == 6 * 80 * MS - 63 * 15_380 * 80 == 402_484_800


def test_a_line_that_the_first_window_fills_never_waits() -> None:
    assert slow_start_ns(10**9, 15_380 / (80 * MS), 80 * MS, FULL_SEGMENT_BYTES) == 0
    assert slow_start_ns(10**9, 0.0125, 0, FULL_SEGMENT_BYTES) == 0


def test_slow_start_goes_by_the_slower_end_and_by_both_ways() -> None:
    found = links(slow_start=True)
    assert found.slow_start_ns("c000", "server", 16_000) == 0, "12.5 KB fill a round trip of 10 ms at 10 Mbit/s"
    assert found.slow_start_ns("server", "c000", 16_000) == 10 * MS - 15_380 * 160


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 10**8), st.integers(0, 10**7), st.floats(1e-4, 10), st.integers(0, 10**9))
def test_slow_start_costs_more_for_more_and_never_more_than_its_rounds(
    size_bytes: int, more_bytes: int, rate: float, round_trip_ns: int
) -> None:
    waited = slow_start_ns(size_bytes, rate, round_trip_ns, FULL_SEGMENT_BYTES)
    assert waited <= slow_start_ns(size_bytes + more_bytes, rate, round_trip_ns, FULL_SEGMENT_BYTES)
    assert waited <= round_trip_ns * max(0, math.ceil(math.log2(size_bytes / 15_380 + 1)))


# the description


def test_a_full_table_of_everything_resolves_to_itself() -> None:
    rates = {"uplink_mbps": {"kind": "uniform", "mbps": 10, "spread": 0.5}}
    full = links(client=rates, jitter_ms=1, loss=0.1, retransmit_ms=200, slow_start=True).settings
    assert resolved(full) == full
    assert "jitter_ms" not in links().settings, "what is not set is not there"


@pytest.mark.parametrize(
    ("changes", "key", "says"),
    [
        ({"jitter_ms": -1}, "links.jitter_ms", "from 0"),
        ({"loss": 1.0}, "links.loss", "from 0 to 0.9"),
        ({"loss": 0.1}, "links.retransmit_ms", "is required with loss"),
        ({"loss": 0.1, "retransmit_ms": math.nan}, "links.retransmit_ms", "from 0"),
        ({"slow_start": "maybe"}, "links.slow_start", "valid boolean"),
        ({"jiter_ms": 1}, "links.jiter_ms", "did you mean 'jitter_ms'"),
        ({"latency_ms": {"file": "a.csv"}}, "links.latency_ms.kind", "is required"),
        ({"latency_ms": {"kind": "matrx"}}, "links.latency_ms.kind", "did you mean 'matrix'"),
        ({"latency_ms": {"kind": "matrix", "file": "nowhere.csv"}}, "links.latency_ms.file", "cannot be read"),
        (
            {"latency_ms": {"kind": "distances"}},
            "links.latency_ms.radius_km, links.latency_ms.file",
            "one of the two",
        ),
        ({"latency_ms": {"kind": "distances", "radius_km": -1}}, "links.latency_ms.radius_km", "from 0"),
        (
            {"latency_ms": {"kind": "distances", "radius_km": 1, "detour": 0.5}},
            "links.latency_ms.detour",
            "from 1",
        ),
        ({"client": {"uplink_mbps": {"mbps": 3}}}, "links.client.uplink_mbps.kind", "is required"),
        ({"client": {"uplink_mbps": {"kind": "uniform", "spread": 0}}}, "links.client.uplink_mbps.mbps", "is required"),
        (
            {"client": {"downlink_mbps": {"kind": "uniform", "spread": 2, "mbps": 3}}},
            "links.client.downlink_mbps.spread",
            "below 1",
        ),
        ({"server": {"uplink_mbps": {"kind": "constant"}, "downlink_mbps": 1}}, "links.server.uplink_mbps", "a number"),
    ],
)
def test_a_wrong_description_of_links_is_refused(changes: dict[str, object], key: str, says: str) -> None:
    with pytest.raises(DescriptionError) as refused:
        links(**changes)  # type: ignore[arg-type]
    assert refused.value.key == key
    assert says in refused.value.expected


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("sender,server,c000,c001\n", "no row for server, c000"),
        ("sender,server,c000,c001,c002\nserver,0,1,2,\n", "no row for c000, c001, c002"),
        (
            "sender,server,c000,c001,c002\nserver,0,1,2,\nc000,1,0,1,1\nc001,1,1,0,1\nc002,1,1,1,0\n",
            "line 2: has no c002",
        ),
        (
            "sender,server,c000,c001,c002\nserver,0,1,2,3\nc000,1,0,1,-1\nc001,1,1,0,1\nc002,1,1,1,0\n",
            "line 3: c002 = -1",
        ),
    ],
)
def test_a_wrong_matrix_is_refused_with_its_line(tmp_path: Path, text: str, says: str) -> None:
    file = tmp_path / "latency.csv"
    file.write_text(text)
    with pytest.raises(DescriptionError) as refused:
        links(latency_ms={"kind": "matrix", "file": str(file)})
    assert refused.value.key == "links.latency_ms.file"
    assert says in refused.value.expected
