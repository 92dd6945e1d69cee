"""Devices: FLOPs become nanoseconds, and the right number of clients are slow."""

import math

import pytest

from pflsim.errors import DescriptionError
from pflsim.timing.devices import PRESETS, Device, Devices, resolved

ACTORS = ["server", *(f"c{client:03d}" for client in range(40))]


def bimodal(**changes: object) -> dict[str, object]:
    table = {
        "kind": "bimodal",
        "flops_per_second": 2e9,
        "stragglers": 4,
        "slowdown": 10,
        "server_flops_per_second": 4e9,
    }
    return {name: value for name, value in {**table, **changes}.items() if value is not None}


def slow(devices: Devices) -> list[str]:
    return [actor for actor in ACTORS[1:] if devices.seconds_ns(actor, 2e9) > 1_000_000_000]


def test_two_gigaflop_take_one_second_at_two_gigaflop_a_second() -> None:
    assert Device(2e9).seconds_ns(2e9) == 1_000_000_000


def test_a_begun_nanosecond_counts_and_no_work_takes_no_time() -> None:
    device = Device(2e9)
    assert [device.seconds_ns(flops) for flops in (0, 1, 2, 3, 4, 5)] == [0, 1, 1, 2, 2, 3]


def test_rounding_up_adds_nothing_to_a_whole_number_of_nanoseconds() -> None:
    assert Device(3e9).seconds_ns(3 * 10**15 + 3) == 10**15 + 1


def test_an_infinitely_fast_device_takes_no_time() -> None:
    assert Device(math.inf).seconds_ns(1e18) == 0


@pytest.mark.parametrize("flops", [-1.0, math.nan, math.inf])
def test_work_that_cannot_be_done_is_an_error(flops: float) -> None:
    with pytest.raises(ValueError, match="cannot be computed"):
        Device(1e9).seconds_ns(flops)


def test_four_of_forty_clients_are_exactly_ten_times_slower() -> None:
    devices = Devices(bimodal(), ACTORS, seed=1)
    times = [devices.seconds_ns(actor, 2e9) for actor in ACTORS[1:]]
    assert sorted(times) == [10**9] * 36 + [10**10] * 4
    assert devices.seconds_ns("server", 2e9) == 500_000_000


def test_a_share_of_one_tenth_means_four_of_forty() -> None:
    assert slow(Devices(bimodal(stragglers=0.1), ACTORS, 1)) == slow(Devices(bimodal(), ACTORS, 1))


def test_one_is_a_count_and_one_point_zero_is_everybody() -> None:
    assert len(slow(Devices(bimodal(stragglers=1), ACTORS, 1))) == 1
    assert len(slow(Devices(bimodal(stragglers=1.0), ACTORS, 1))) == 40


def test_who_is_slow_depends_on_the_seed_alone() -> None:
    drawn = [tuple(slow(Devices(bimodal(), ACTORS, seed))) for seed in (1, 1, 2, 3)]
    assert drawn[0] == drawn[1]
    assert len(set(drawn)) == 3


def test_constant_clients_are_all_alike() -> None:
    setting = {"kind": "constant", "flops_per_second": 1e9, "server_flops_per_second": 1e9}
    assert {Devices(setting, ACTORS, 7).seconds_ns(actor, 1e9) for actor in ACTORS} == {10**9}


def test_a_preset_names_the_clients_device_or_any_speed() -> None:
    devices = Devices("phone", ACTORS, 7)
    assert devices.device("c007") == Device(PRESETS["phone"])
    assert devices.device("server") == Device(PRESETS["workstation"])
    slowest = Devices(bimodal(flops_per_second="raspberry-pi"), ACTORS, 7)
    assert min(slowest.device(actor).flops_per_second for actor in ACTORS) == PRESETS["raspberry-pi"] / 10


def test_a_preset_is_resolved_to_the_table_that_it_stands_for() -> None:
    full = resolved("phone")
    assert full == {
        "kind": "constant",
        "flops_per_second": "phone",
        "server_flops_per_second": "workstation",
    }
    assert resolved(full) == full


@pytest.mark.parametrize(
    ("setting", "key", "says"),
    [
        ("fone", "devices", "did you mean 'phone'"),
        (3, "devices", "must be a table"),
        (bimodal(kind="bimodel"), "devices.kind", "did you mean 'bimodal'"),
        (bimodal(kind=None), "devices.kind", "is required"),
        (bimodal(server_flops_per_second=None), "devices.server_flops_per_second", "is required"),
        (bimodal(server_flops_per_second=0), "devices.server_flops_per_second", "above 0"),
        (bimodal(flops_per_second=None), "devices.flops_per_second", "is required"),
        (bimodal(flops_per_second=-1.0), "devices.flops_per_second", "above 0"),
        (bimodal(flops_per_second=math.nan), "devices.flops_per_second", "above 0"),
        (bimodal(flops_per_second="toaster"), "devices.flops_per_second", "known are"),
        (bimodal(slowdown=0.5), "devices.slowdown", "from 1"),
        (bimodal(stragglers=41), "devices.stragglers", "a count up to 40"),
        (bimodal(stragglers=-1), "devices.stragglers", "a count up to 40"),
        (bimodal(stragglers=1.5), "devices.stragglers", "a share up to 1.0"),
        (bimodal(stragglers="many"), "devices.stragglers", "valid"),
        (bimodal(stragler=4), "devices.stragler", "did you mean 'stragglers'"),
    ],
)
def test_a_wrong_description_is_refused_with_its_key(setting: object, key: str, says: str) -> None:
    with pytest.raises(DescriptionError) as refused:
        Devices(setting, ACTORS, 1)
    assert refused.value.key == key
    assert says in refused.value.expected
