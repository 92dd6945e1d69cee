"""How speeds are spread over clients, go with their data, come from files, and change from visit to visit."""

import math
from itertools import pairwise
from pathlib import Path
from statistics import mean, median

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pflsim.errors import DescriptionError
from pflsim.timing.calibration import measured_speed
from pflsim.timing.devices import Devices

FEW = [f"c{client:03d}" for client in range(10)]
MANY = [f"c{client:04d}" for client in range(4000)]


def devices(actors: list[str] = FEW, seed: int = 1, **settings: object) -> Devices:
    sizes, labels = settings.pop("sizes", None), settings.pop("labels", None)
    table = {"kind": "lognormal", "flops_per_second": 1e9, "spread": 0.5, "server_flops_per_second": 1e11}
    table = {name: value for name, value in {**table, **settings}.items() if value is not None}
    return Devices(table, actors, seed, sizes=sizes, labels=labels)  # type: ignore[arg-type]


def speeds(found: Devices, actors: list[str]) -> list[float]:
    return [found.device(actor).flops_per_second for actor in actors]


def ranks(values: list[float]) -> np.ndarray:
    return np.argsort(np.argsort(values))


# the families


def test_the_median_of_lognormal_speeds_and_the_spread_of_their_logarithms_are_as_given() -> None:
    drawn = speeds(devices(MANY, spread=0.5), MANY)
    assert median(drawn) == pytest.approx(1e9, rel=0.03)
    assert np.std(np.log(drawn)) == pytest.approx(0.5, rel=0.04)


def test_uniform_speeds_have_the_mean_and_the_ends_that_are_given() -> None:
    drawn = speeds(devices(MANY, kind="uniform", spread=0.25), MANY)
    assert mean(drawn) == pytest.approx(1e9, rel=0.01)
    assert 0.75e9 <= min(drawn) < 0.751e9 and 1.249e9 < max(drawn) <= 1.25e9


def test_exponential_devices_take_exponential_times_with_the_mean_of_the_given_speed() -> None:
    times = [1e9 / speed for speed in speeds(devices(MANY, kind="exponential", spread=None), MANY)]
    assert mean(times) == pytest.approx(1.0, rel=0.05)
    assert np.std(times) == pytest.approx(1.0, rel=0.07)


def test_pareto_times_have_the_given_median_and_tail() -> None:
    times = np.array([1e9 / speed for speed in speeds(devices(MANY, kind="pareto", spread=None, shape=2), MANY)])
    assert np.median(times) == pytest.approx(1.0, rel=0.03)
    least = 2**-0.5
    assert times.min() >= least
    assert np.mean(times > 4 * least) == pytest.approx(1 / 16, rel=0.15)


def test_classes_have_exactly_the_counts_that_are_given() -> None:
    classes = [
        {"name": "old", "count": 3, "flops_per_second": "raspberry-pi"},
        {"name": "new", "count": 7, "flops_per_second": 4e9},
    ]
    found = devices(kind="classes", flops_per_second=None, spread=None, classes=classes)
    assert sorted(speeds(found, FEW)) == [4e9] * 7 + [5e9] * 3
    assert {(found.speed_class(actor), found.device(actor).flops_per_second) for actor in FEW} == {
        ("old", 5e9),
        ("new", 4e9),
    }


def test_what_rounding_the_shares_down_leaves_goes_to_the_largest_remainders() -> None:
    classes = [{"name": str(speed), "share": 1 / 3, "flops_per_second": speed} for speed in (1, 2, 3)]
    found = devices(kind="classes", flops_per_second=None, spread=None, classes=classes)
    assert sorted(speeds(found, FEW)) == [1] * 4 + [2] * 3 + [3] * 3


def test_a_family_without_classes_is_summed_up_by_thirds() -> None:
    actors = FEW[:9]
    found = devices(actors)
    by_speed = sorted(actors, key=lambda actor: found.device(actor).flops_per_second)
    assert [found.speed_class(actor) for actor in by_speed] == ["slow"] * 3 + ["middle"] * 3 + ["fast"] * 3
    assert found.speed_class("server") == "server"


def test_stragglers_are_slow_and_equal_devices_have_no_class_apart() -> None:
    found = devices(kind="bimodal", spread=None, stragglers=1, slowdown=2)
    assert sorted(found.speed_class(actor) for actor in FEW) == ["fast"] * 9 + ["slow"]
    assert {devices(kind="constant", spread=None).speed_class(actor) for actor in FEW} == {"all"}


@pytest.mark.parametrize("kind", ["uniform", "lognormal", "exponential", "pareto", "bimodal"])
def test_speeds_depend_on_the_seed_alone(kind: str) -> None:
    own = {
        "uniform": {"spread": 0.5},
        "lognormal": {"spread": 1.0},
        "pareto": {"shape": 1.1, "spread": None},
        "bimodal": {"spread": None, "stragglers": 0.5, "slowdown": 3},
    }.get(kind, {"spread": None})
    drawn = [speeds(devices(kind=kind, seed=seed, **own), FEW) for seed in (1, 1, 2)]  # type: ignore[arg-type]
    assert drawn[0] == drawn[1] != drawn[2]


# traces and calibration


def test_a_trace_says_who_is_how_fast_by_name_or_by_number(tmp_path: Path) -> None:
    file = tmp_path / "speeds.csv"
    file.write_text("flops_per_second, client, class\n2e9,c001,new\n\n1e9,0,old\n3e9,c999,new\n")
    found = devices(FEW[:2], kind="trace", flops_per_second=None, spread=None, file=str(file))
    assert speeds(found, FEW[:2]) == [1e9, 2e9]
    assert [found.speed_class(actor) for actor in FEW[:2]] == ["old", "new"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "line 1: has no column 'client'"),
        ("client,speed\n0,1\n", "line 1: has no column 'flops_per_second', only client, speed"),
        ("client,flops_per_second\n0,1e9\n1,fast\n", "line 3: flops_per_second = 'fast' must be a number"),
        ("client,flops_per_second\n0,1e9\n\n1,0\n", "line 4: flops_per_second = 0 must be a finite number above 0"),
        ("client,flops_per_second\n0,1e9\n1\n", "line 3: has no flops_per_second"),
        ("client,flops_per_second\n0,1e9\nc000,1e9\n", "line 3: client c000 is on line 2 already"),
        ("client,flops_per_second\n0,1e9\n", "has no row for c001"),
    ],
)
def test_a_wrong_trace_is_refused_with_its_line(tmp_path: Path, text: str, says: str) -> None:
    file = tmp_path / "speeds.csv"
    file.write_text(text)
    with pytest.raises(DescriptionError) as refused:
        devices(FEW[:2], kind="trace", flops_per_second=None, spread=None, file=str(file))
    assert refused.value.key == "devices.file" and says in refused.value.expected


def test_a_calibrated_file_gives_the_speeds_that_the_table_does_not(tmp_path: Path) -> None:
    file = tmp_path / "host.toml"
    file.write_text('flops_per_second = 3e10\nhost = "desk"\n')
    found = Devices({"file": str(file)}, FEW, 1)
    assert speeds(found, [*FEW, "server"]) == [3e10] * 11
    slow = Devices({"file": str(file), "kind": "bimodal", "stragglers": 1, "slowdown": 10}, FEW, 1)
    assert sorted(speeds(slow, FEW)) == [3e9] + [3e10] * 9
    file.unlink()
    assert speeds(Devices(slow.settings, FEW, 1), FEW) == speeds(slow, FEW), "the full table holds without the file"


@pytest.mark.parametrize("text", ["flops_per_second = -1", "flops = 1", "what?", "flops_per_second = true"])
def test_a_file_that_states_no_speed_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "host.toml"
    file.write_text(text)
    with pytest.raises(DescriptionError, match=r"devices\.file"):
        Devices({"file": str(file)}, FEW, 1)
    with pytest.raises(DescriptionError, match="pflsim calibrate"):
        Devices({"file": str(tmp_path / "nowhere.toml")}, FEW, 1)


def test_a_measured_speed_goes_by_the_median_step() -> None:
    assert measured_speed(2e9, [0.5, 90.0, 0.5]) == 4e9
    for times in ([], [0.0], [math.inf]):
        with pytest.raises(ValueError, match="above 0"):
            measured_speed(2e9, times)


# jitter


def test_the_work_of_a_visit_takes_the_same_time_however_often_it_is_asked_for() -> None:
    found = devices(jitter=0.3)
    once = [found.work_ns("c003", 1e9, visit) for visit in range(5)]
    assert [devices(jitter=0.3).work_ns("c003", 1e9, visit) for visit in reversed(range(5))] == once[::-1]
    assert len(set(once)) == 5
    assert found.work_ns("c004", 1e9, 0) / found.seconds_ns("c004", 1e9) != once[0] / found.seconds_ns("c003", 1e9)


@pytest.mark.parametrize(("jitter", "deviation"), [(0.3, math.sqrt(math.exp(0.09) - 1)), ("exponential", 1.0)])
def test_jitter_keeps_the_mean_time(jitter: object, deviation: float) -> None:
    found = devices(kind="constant", spread=None, jitter=jitter)
    times = [found.work_ns("c000", 1e9, visit) / 1e9 for visit in range(4000)]
    assert mean(times) == pytest.approx(1.0, abs=4 * deviation / math.sqrt(4000))
    assert np.std(times) == pytest.approx(deviation, rel=0.1)


def test_without_jitter_and_at_the_server_every_visit_is_alike() -> None:
    assert devices().work_ns("c001", 1e9, 7) == devices().seconds_ns("c001", 1e9)
    assert devices(jitter=1).work_ns("server", 1e9, 7) == 10_000_000


# speed and data


def test_at_strength_one_the_largest_client_is_the_fastest_and_at_minus_one_the_slowest() -> None:
    sizes = [50, 20, 90, 10, 70, 30, 80, 60, 40, 100]
    for strength in (1, -1):
        found = devices(correlate="size", strength=strength, sizes=sizes)
        assert (ranks(speeds(found, FEW)) == ranks([strength * size for size in sizes])).all()
        assert sorted(speeds(found, FEW)) == sorted(speeds(devices(), FEW)), "the same speeds, dealt otherwise"
        assert found.speed_class("c009" if strength == 1 else "c003") == "fast"


@pytest.mark.parametrize("strength", [-0.7, 0.0, 0.4, 0.9])
def test_the_rank_correlation_of_speed_and_size_is_about_the_strength(strength: float) -> None:
    sizes = list(range(len(MANY)))
    found = devices(MANY, correlate="size", strength=strength, sizes=sizes)
    achieved = np.corrcoef(sizes, ranks(speeds(found, MANY)))[0, 1]
    assert achieved == pytest.approx(strength, abs=0.05)


def test_at_strength_one_clients_with_the_same_label_have_neighbouring_speeds() -> None:
    labels = [client % 3 for client in range(10)]
    by_seed = set()
    for seed in range(8):
        found = devices(seed=seed, correlate="label", strength=1, labels=labels)
        in_order = [labels[client] for client in np.argsort(speeds(found, FEW))]
        changes = sum(a != b for a, b in pairwise(in_order))
        assert changes == 2
        by_seed.add(tuple(in_order))
    assert len(by_seed) > 1, "which label is slow is drawn"


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.integers(0, 5), min_size=1, max_size=30),
    st.floats(0, 1),
    st.sampled_from(["size", "label"]),
    st.integers(0, 1000),
)
def test_correlation_only_deals_the_speeds_anew(traits: list[int], strength: float, by: str, seed: int) -> None:
    actors = [f"c{client:03d}" for client in range(len(traits))]
    plain = devices(actors, seed)
    dealt = devices(actors, seed, correlate=by, strength=strength, sizes=traits, labels=traits)
    assert sorted(speeds(dealt, actors)) == sorted(speeds(plain, actors))
    class_of = {plain.device(actor).flops_per_second: plain.speed_class(actor) for actor in actors}
    assert all(class_of[dealt.device(actor).flops_per_second] == dealt.speed_class(actor) for actor in actors)


def one_class(**changes: object) -> dict[str, object]:
    table = {"name": "a", "share": 1.0, "flops_per_second": 1} | changes
    own = {name: value for name, value in table.items() if value is not None}
    return {"kind": "classes", "flops_per_second": None, "spread": None, "classes": [own]}


@pytest.mark.parametrize(
    ("changes", "key", "says"),
    [
        ({"spread": -0.1}, "devices.spread", "from 0"),
        ({"spread": math.nan}, "devices.spread", "from 0"),
        ({"spread": None}, "devices.spread", "is required"),
        ({"kind": "uniform", "spread": 1.0}, "devices.spread", "below 1"),
        ({"kind": "pareto", "spread": None, "shape": 0}, "devices.shape", "from 0.1"),
        ({"flops_per_secnd": 1}, "devices.flops_per_secnd", "did you mean 'flops_per_second'"),
        ({"kind": "exponential"}, "devices.spread", "unknown key; known are flops_per_second"),
        ({"jitter": -1}, "devices.jitter", "from 0"),
        ({"jitter": "normal"}, "devices.jitter", "exponential"),
        ({"correlate": "size"}, "devices.strength", "need a strength"),
        ({"strength": 0.5}, "devices.strength", "takes none"),
        ({"correlate": "size", "strength": 1.5}, "devices.strength", "from -1 to 1"),
        ({"correlate": "label", "strength": -0.5}, "devices.strength", "from 0 to 1"),
        ({"correlate": "label", "strength": 0.5}, "devices.correlate", "have no label"),
        ({"correlate": "sizes", "strength": 0.5}, "devices.correlate", "'size'"),
        ({"kind": "trace", "spread": None}, "devices.flops_per_second", "unknown key; known are file"),
        (one_class() | {"classes": []}, "devices.classes", "at least one"),
        (one_class(name=None), "devices.classes.0.name", "is required"),
        (one_class(share=0.5), "devices.classes", "add up to 1"),
        (one_class(share=None), "devices.classes.0.count, devices.classes.0.share", "one of the two"),
        (one_class(share=None, count=3), "devices.classes", "add up to 3, not to 10"),
        (one_class(flops_per_second=0), "devices.classes.0.flops_per_second", "above 0"),
        (one_class(flops_per_second=None), "devices.classes.0.flops_per_second", "is required"),
        (one_class(size=3), "devices.classes.0.size", "unknown key"),
    ],
)
def test_a_wrong_description_of_devices_is_refused(changes: dict[str, object], key: str, says: str) -> None:
    with pytest.raises(DescriptionError) as refused:
        devices(**changes)  # type: ignore[arg-type]
    assert refused.value.key == key
    assert says in refused.value.expected
