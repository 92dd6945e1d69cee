"""The bench that runs for long: what it says of processes' memory and files, and that it sees those of a real run."""

from pathlib import Path

import pytest

from launch.bench import soak
from tests.launching import description


def grows(mb_per_hour: float, files: int) -> list[soak.Sample]:
    return [(10.0 * k, int(2e7 + mb_per_hour * 1e6 / 360 * k), files) for k in range(9)]


def test_growth_is_told_by_sort_of_process_without_its_beginning_and_its_end() -> None:
    samples = {"c000": grows(0.0, 5), "c001": grows(36.0, 6), "server": grows(-3.6, 40)}
    samples["c000"][0] = (0.0, 10**9, 90)
    samples["c000"][-1] = (80.0, 1, 0)
    clients, server = soak.told(samples)
    told = "a client 20.7 MB at the end, +36.00 MB/h at most, +18.00 in the middle; open files 5 to 6"
    assert clients.split() == told.split()
    assert "-3.60 MB/h at most" in server and server.endswith("open files 40 to 40")
    assert soak.megabytes_per_hour(grows(1.0, 1)[:2]) is None


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_every_process_of_a_run_is_seen_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(soak, "EVERY_S", 0.2)
    tables = description(run__rounds=400, run__checkpoint_every=50, run__transport="tcp")
    samples, summary = soak.soak(tables, tmp_path)
    assert summary["rounds"] == 400
    assert {"launcher", "host", "server", "c000", "c001", "c002", "c003"} <= samples.keys()
    assert all(size > 0 for one in samples.values() for _, size, _ in one)
