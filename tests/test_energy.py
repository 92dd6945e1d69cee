"""Joules are watts times the simulated seconds of computing, sending and neither, worked out here by hand."""

from pathlib import Path
from typing import Any

import pytest

from pflsim.errors import DescriptionError
from pflsim.spec import validate
from pflsim.study import Study
from tests.launching import description, run_here

POWER = {"computing_w": 4.0, "sending_w": 1.5, "idle_w": 0.25}
SERVER_POWER = {"computing_w": 100.0, "sending_w": 50.0, "idle_w": 10.0}


def tables(**settings: Any) -> dict[str, Any]:
    """Two clients, two rounds, links whose times are easy to tell: 1 ms latency and no rate that counts."""
    links = {
        "client": {"uplink_mbps": float("inf"), "downlink_mbps": float("inf")},
        "server": {"uplink_mbps": float("inf"), "downlink_mbps": float("inf")},
        "latency_ms": 10.0,
    }
    devices = {"kind": "constant", "flops_per_second": 1e6, "server_flops_per_second": float("inf")}
    return description(run__clients=2, run__rounds=2, links=links, devices={**devices, **settings})


def test_a_client_spends_its_watts_on_computing_sending_and_waiting(tmp_path: Path) -> None:
    result = run_here(tables(power=POWER), tmp_path / "out")
    computing_ns = {
        name: sum(row["end_ns"] - row["start_ns"] for row in result.rows("spans", actor=name, what="compute"))
        for name in ("c000", "c001")
    }
    whole_ns = round(result.summary["time"]["simulated_s"] * 1e9)
    rows = {row["actor"]: row for row in result.rows("energy")}
    assert list(rows) == ["c000", "c001"]
    for name, computed_ns in computing_ns.items():
        sent_ns = (
            2 * 10_000_001
        )  # two answers, each 10 ms and the least time to put out under way, while it does nothing
        idle_ns = whole_ns - computed_ns - sent_ns
        assert rows[name]["computing_j"] == pytest.approx(4.0 * computed_ns / 1e9, rel=1e-12)
        assert rows[name]["sending_j"] == pytest.approx(1.5 * sent_ns / 1e9, rel=1e-9)
        assert rows[name]["idle_j"] == pytest.approx(0.25 * idle_ns / 1e9, rel=1e-9)
    energy = result.summary["energy"]
    assert energy["server_j"] is None
    assert energy["clients_j"] == pytest.approx(sum(sum(list(row.values())[1:]) for row in rows.values()), rel=1e-12)
    assert energy["total_j"] == energy["clients_j"]


def test_the_servers_energy_is_told_where_its_power_is_known(tmp_path: Path) -> None:
    result = run_here(tables(power=POWER, server_power=SERVER_POWER), tmp_path / "out")
    (server,) = result.rows("energy", actor="server")
    whole_s = result.summary["time"]["simulated_s"]
    sent_s = 2 * 0.010000001  # the models of a round leave together
    assert server["computing_j"] == 0.0
    assert server["sending_j"] == pytest.approx(50.0 * sent_s, rel=1e-9)
    assert server["idle_j"] == pytest.approx(10.0 * (whole_s - sent_s), rel=1e-9)


def test_who_is_away_draws_nothing_also_while_no_work_waits_for_it(tmp_path: Path) -> None:
    """The first WORK comes after 10 ms, so that nobody waits for c001 while it is away."""
    gone = [{"kind": "crash", "clients": ["c001"], "keeps_state": True, "at_s": 0.001, "until_s": 0.004}]
    there, away = (run_here(tables(power=POWER) | {"fault": fault}, tmp_path / str(len(fault))) for fault in ([], gone))
    found = [{row["actor"]: row for row in result.rows("energy")} for result in (there, away)]
    assert found[0]["c000"] == found[1]["c000"]
    assert found[0]["c001"]["computing_j"] == found[1]["c001"]["computing_j"]
    assert found[0]["c001"]["idle_j"] - found[1]["c001"]["idle_j"] == pytest.approx(0.25 * 0.003, rel=1e-9)


def test_energy_changes_no_bit_and_no_time(tmp_path: Path) -> None:
    plain, told = (run_here(tables(**power), tmp_path / str(len(power))) for power in ({}, {"power": POWER}))
    assert "energy" not in plain.summary
    for key in ("digest", "trace_digest"):
        assert plain.summary[key] == told.summary[key]


@pytest.mark.parametrize(
    ("power", "key", "said"),
    [
        ({"computing_w": 4.0, "sending_w": 1.0}, "devices.power.idle_w", "required"),
        ({**POWER, "idle_w": -1.0}, "devices.power.idle_w", "from 0"),
        ({**POWER, "idle": 1.0}, "devices.power.idle", "idle_w"),
        ("phone", "devices.power", "watts"),
    ],
)
def test_watts_that_cannot_be_are_refused(power: Any, key: str, said: str) -> None:
    with pytest.raises(DescriptionError, match=said) as refused:
        Study(validate(tables(power=power)), b"8 bytes.")
    assert refused.value.key == key


def test_energy_needs_the_spans() -> None:
    given = tables(power=POWER) | {"record": {"spans": False, "report": False}}
    with pytest.raises(DescriptionError, match=r"devices\.power"):
        Study(validate(given), b"8 bytes.")
