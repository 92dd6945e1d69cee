"""Runs over real networks of this machine's own: they give the bits of one machine, whatever befalls the packets."""

import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from launch.fidelity.__main__ import Compared, compare, table
from launch.fidelity.bed import Bed, Line, why_not
from launch.fidelity.cases import CASES
from launch.fidelity.relay import Disturbance
from launch.fidelity.runs import BedRun
from pflsim.record.result import Result
from tests.launching import description
from tests.test_peers import expected

REASON = why_not()
needs_bed = pytest.mark.skipif(bool(REASON), reason=f"no test bed: {REASON}")
pytestmark = pytest.mark.timeout(300)

FAST = Line(1000.0, 1000.0)
SENT_BYTES = 400_000

_TAKE = """
import hashlib, socket
with socket.create_server(("", 7000)) as server:
    peer, _ = server.accept()
    found = hashlib.sha256()
    while part := peer.recv(1 << 16):
        found.update(part)
    peer.sendall(found.hexdigest().encode())
"""
_SEND = f"""
import hashlib, os, socket, sys, time
for attempt in range(100):
    try:
        peer = socket.create_connection((sys.argv[1], 7000))
        break
    except ConnectionRefusedError:
        time.sleep(0.1)
began, sent = time.monotonic(), os.urandom({SENT_BYTES})
peer.sendall(sent)
peer.shutdown(socket.SHUT_WR)
assert peer.recv(100).decode() == hashlib.sha256(sent).hexdigest()
print(time.monotonic() - began)
"""


def transfer_s(lines: Mapping[str, Line], disturbance: Disturbance | None = None) -> float:
    """How long it takes to send so many bytes from one machine to another over TCP, and to hear that they are right."""
    with Bed(lines, disturbance) as bed:
        bed.start("server", [sys.executable, "-c", _TAKE])
        sends = bed.start("one", [sys.executable, "-c", _SEND, bed.addresses["server"]], stdout=subprocess.PIPE)
        said, _ = sends.communicate(timeout=60)
        assert sends.returncode == 0
        assert bed.counted_bytes("one")[0] > SENT_BYTES
    return float(said)


@needs_bed
def test_a_switch_has_lines_that_carry_what_they_are_said_to() -> None:
    wire_s = SENT_BYTES * 1538 / 1448 * 8 / 8e6
    assert transfer_s({"server": FAST, "one": Line(8.0, 1000.0)}) >= 0.97 * wire_s
    assert transfer_s({"server": Line(1000.0, 8.0), "one": FAST}) >= 0.97 * wire_s


@needs_bed
def test_a_relay_delays_loses_and_reorders_packets_and_tcp_mends_that() -> None:
    there_and_back_s = 0.1
    assert transfer_s({"server": FAST, "one": FAST}, Disturbance(0.05, loss=0.02, reordered=0.1)) >= there_and_back_s


@needs_bed
def test_a_bed_leaves_nothing_behind() -> None:
    with Bed({"server": FAST, "one": FAST}) as bed:
        sleeps = bed.start("one", ["sleep", "100"])
        assert f"pfl{os.getpid()}" in subprocess.run(["ip", "netns"], capture_output=True, text=True).stdout
    assert sleeps.poll() is not None
    assert f"pfl{os.getpid()}" not in subprocess.run(["ip", "netns"], capture_output=True, text=True).stdout


def digests(result: Result) -> tuple[str, str]:
    return result.summary["digest"], result.summary["trace_digest"]


@needs_bed
@pytest.mark.slow
def test_three_hosts_with_ten_clients_each_give_the_digests_of_one_machine(tmp_path: Path) -> None:
    tables = description(run__clients=30)
    machines = ["m0", "m1", "m2"]
    with Bed(dict.fromkeys(["server", *machines], FAST)) as bed:
        result = BedRun(bed, machines, tables, tmp_path).finish()
    assert result.summary["hosts"] == dict.fromkeys(machines, 10)
    assert digests(result) == expected(tables)


@needs_bed
@pytest.mark.slow
def test_lost_and_reordered_packets_change_nothing(tmp_path: Path) -> None:
    tables = description(run__rounds=10)
    lines = dict.fromkeys(["server", "m0", "m1"], FAST)
    with Bed(lines, Disturbance(0.01, loss=0.01, reordered=0.05)) as bed:
        result = BedRun(bed, ["m0", "m1"], tables, tmp_path).finish()
        assert bed.relay is not None
        assert bed.relay.lost > 0 and bed.relay.held_back > 0
    assert digests(result) == expected(tables)


@needs_bed
@pytest.mark.slow
def test_a_cable_that_is_pulled_for_a_while_changes_nothing(tmp_path: Path) -> None:
    tables = description(run__rounds=400)
    lines = dict.fromkeys(["server", "m0", "m1"], FAST)
    with Bed(lines) as bed:
        run = BedRun(bed, ["m0", "m1"], tables, tmp_path)
        while "round" not in run.words("server"):
            assert run.launcher.poll() is None, run.words("server")
            time.sleep(0.05)
        bed.plug("m0", is_in=False)
        time.sleep(3)
        assert run.launcher.poll() is None, "it ended before the cable was pulled: more rounds are needed"
        bed.plug("m0", is_in=True)
        result = run.finish()
    assert digests(result) == expected(tables)


@needs_bed
@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_a_real_network_is_as_slow_as_predicted_and_carries_what_the_record_says(case: Any, tmp_path: Path) -> None:
    """By how much it is slower than predicted depends on how busy this machine is: `make fidelity` measures it."""
    found = compare(case, 5, tmp_path)
    assert found.off >= -0.05
    if case.hidden > 100:
        assert -0.02 <= found.bytes_off <= 0.05, "with few rounds, opening connections counts"


def test_the_table_says_what_is_off_and_where_there_were_too_few_bytes() -> None:
    found = table([Compared("one", 1.0, 1.04, 4_000_000, 4_100_000), Compared("two", 1.0, 1.1, 1_000, 2_000)])
    assert list(found.columns[3].cells) == ["[green]+4.0%[/]", "[red]+10.0%[/]"]
    assert list(found.columns[6].cells) == ["[red]+2.5%[/]", "too few"]
