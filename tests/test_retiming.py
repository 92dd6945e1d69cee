"""`pflsim retime`: the run's own settings give its own times, others those of a real run with them, to the ns."""

from pathlib import Path
from typing import Any

import pytest

from launch.retime import retime, retimed_rounds
from pflsim.errors import DescriptionError
from pflsim.spec import override
from tests.launching import description
from tests.recorded import KINDS, SMALL, run_into

RUNS: dict[str, dict[str, Any]] = {
    "fedavg": {},
    "slow links": KINDS["slow links"],
    "jitter and loss": KINDS["jitter and loss"],
    "several tensors": {"algorithm": {"name": "scaffold"}},
    "a cohort": {"schedule": {"kind": "sync", "sampling": "uniform", "cohort": 2}},
    "losses are reported": {
        "schedule": {"kind": "sync", "sampling": {"kind": "power-of-choice", "candidates": 4}, "cohort": 2}
    },
    "losses are asked for": {
        "schedule": {
            "kind": "sync",
            "sampling": {"kind": "power-of-choice", "candidates": 4, "fresh": True},
            "cohort": 2,
        }
    },
    "nothing travels": {"algorithm": {"name": "local"}},
    "a server that works": {"algorithm": {"name": "fedu"}, "topology": {"name": "similar"}},
}

OTHER = (
    'links={client={uplink_mbps=0.5,downlink_mbps={kind="lognormal",mbps=3,spread=1.0}},'
    "server={uplink_mbps=1.0,downlink_mbps=2.0},latency_ms=7.0,jitter_ms=2.0,loss=0.1,retransmit_ms=30.0}",
    'devices={kind="pareto",shape=1.5,flops_per_second=2e6,jitter=0.2,server_flops_per_second=1e6}',
)


@pytest.mark.parametrize("name", RUNS)
def test_own_settings_give_own_times_and_others_those_of_a_real_run_to_the_ns(name: str, tmp_path: Path) -> None:
    tables = description(**(SMALL | RUNS[name]))
    own = run_into(tmp_path / "own", tables)
    for assignment in OTHER:
        tables = override(tables, assignment)
    other = run_into(tmp_path / "other", tables)
    recorded, same = retimed_rounds(tmp_path / "own", ())
    assert recorded == same == own and len(own) == 4
    assert retimed_rounds(tmp_path / "own", OTHER) == (own, other)
    assert other != own


def test_that_nothing_differs_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_into(tmp_path / "run", description())
    retime(tmp_path / "run", ["links=wifi"])
    assert "no round takes another time, to the nanosecond: links=wifi" in capsys.readouterr().out
    retime(tmp_path / "run", ["links=4g"])
    assert "no round takes another time" not in capsys.readouterr().out


REFUSED = {
    "fedasync": (KINDS["fedasync"], "schedule.kind = 'fedasync': cannot be retimed: which answer comes first"),
    "deadline": (KINDS["deadline"], "schedule.kind = 'deadline'"),
    "availability": (KINDS["availability"], "availability = 'markov': cannot be retimed: who is there"),
    "faults": (KINDS["faults"], r"fault = \['duplicate', 'slow-link'\]: cannot be retimed"),
    "tiers": (
        {"schedule": {"kind": "sync", "sampling": {"kind": "tiers", "tiers": 2}, "cohort": 2}},
        "schedule.sampling = .*speed decides who works",
    ),
    "until": ({"run__stop__simulated_s": 0.05}, "run.stop.simulated_s = 0.05: cannot be retimed: time decides"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_where_time_could_change_the_result_it_is_refused_with_the_reason(name: str, tmp_path: Path) -> None:
    settings, reason = REFUSED[name]
    run_into(tmp_path / "run", description(**(SMALL | settings)))
    with pytest.raises(DescriptionError, match=reason):
        retimed_rounds(tmp_path / "run", ())


def test_nothing_but_devices_and_links_can_be_changed(tmp_path: Path) -> None:
    run_into(tmp_path / "run", description())
    with pytest.raises(DescriptionError, match="only devices and links"):
        retimed_rounds(tmp_path / "run", ("training.step_size=0.5",))


def test_a_record_that_its_own_settings_do_not_give_is_refused(tmp_path: Path) -> None:
    run_into(tmp_path / "run", description())
    text = (tmp_path / "run" / "run.toml").read_text()
    (tmp_path / "run" / "run.toml").write_text(text.replace("slowdown = 10.0", "slowdown = 20.0"))
    with pytest.raises(DescriptionError, match="its own settings do not give its own times"):
        retimed_rounds(tmp_path / "run", ())
