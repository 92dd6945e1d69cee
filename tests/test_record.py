"""The record: what is written, what is read, what outlives a crash, and what the ledger makes of it."""

import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pflsim.record.database import Reader, Record, packed
from pflsim.record.ledger import Amount, balance


def sent(sender: str, receiver: str, sequence: int, *, kind: str = "WORK", channel: str = "data") -> tuple[Any, ...]:
    """A message of 400 + 60 + 5 bytes in round 1 that departs at its number, in seconds."""
    return ("sent", sender, receiver, kind, channel, sequence, 1, 400, 60, 5, sequence * 10**9)


def received(
    sender: str, receiver: str, sequence: int, *, kind: str = "WORK", channel: str = "data"
) -> tuple[Any, ...]:
    """The other end of `sent`, half a second later."""
    return ("received", sender, receiver, kind, channel, sequence, 400, 60, 5, sequence * 10**9 + 5 * 10**8)


def test_every_table_gives_back_what_was_written(tmp_path: Path) -> None:
    facts = [
        ("rounds", 1, 0, 7 * 10**9, 0.25, "[0, 1]", 2, 0, 0),
        ("evaluations", 1, 7 * 10**9, 0, "personalised", "test", 9, 10, 0.5),
        ("dropped", "server", "malformed", "frame 1 is short", 17, None, None, None),
        ("spans", "c000", "compute", 0, 3, 1),
        ("measures", 1, "server", "spread", 0.125),
        ("events", "c001", "died", "signal 9", 4, 0.5),
    ]
    with Record(tmp_path / "record.db") as record:
        record.write(facts)
    with Reader(tmp_path / "record.db") as reader:
        for table, *values in facts:
            assert [list(row.values()) for row in reader.rows(table)] == [values]


def test_the_two_ends_of_a_message_meet_in_one_row_whichever_comes_first(tmp_path: Path) -> None:
    with Record(tmp_path / "record.db") as record:
        record.write([received("server", "c000", 0), sent("server", "c001", 1)])
        record.write([received("server", "c001", 1), sent("server", "c000", 0)])
    with Reader(tmp_path / "record.db") as reader:
        first, second = reader.rows("messages")
    assert (first["receiver"], first["departure_ns"], first["arrival_ns"]) == ("c000", 0, 500_000_000)
    assert (second["receiver"], second["departure_ns"], second["arrival_ns"]) == (
        "c001",
        10**9,
        1_500_000_000,
    )
    assert first["sent_payload_bytes"] == first["received_payload_bytes"] == 400
    assert (first["kind"], first["channel"], first["round"]) == ("WORK", "data", 1)


@pytest.mark.parametrize("batches", [1, 2], ids=["in one batch", "in two batches"])
def test_a_message_received_twice_is_a_duplicate(tmp_path: Path, batches: int) -> None:
    facts = [sent("server", "c000", 0), received("server", "c000", 0), received("server", "c000", 0)]
    with Record(tmp_path / "record.db") as record:
        for batch in [facts] if batches == 1 else [facts[:2], facts[2:]]:
            record.write(batch)
    with Reader(tmp_path / "record.db") as reader:
        assert len(reader.rows("messages")) == 1
        (dropped,) = reader.rows("dropped")
    assert (dropped["reason"], dropped["sender"], dropped["sequence"]) == ("duplicate", "server", 0)
    assert dropped["total_bytes"] == 465


def test_a_message_sent_twice_is_our_error_and_the_rest_of_the_batch_is_kept(tmp_path: Path) -> None:
    with Record(tmp_path / "record.db") as record:
        record.write([sent("server", "c000", 0)])
        with pytest.raises(AssertionError, match="server says twice that it sent WORK, number 0 on data"):
            record.write([sent("server", "c000", 0), sent("server", "c000", 1)])
    with Reader(tmp_path / "record.db") as reader:
        assert [row["sequence"] for row in reader.rows("messages")] == [0, 1]


def test_a_malformed_fact_leaves_nothing_of_its_batch(tmp_path: Path) -> None:
    with Record(tmp_path / "record.db") as record:
        with pytest.raises(sqlite3.Error):
            record.write([("measures", 1, "server", "a", 1.0), ("measures", 1, "server", "too short")])
        with pytest.raises(ValueError, match=r"no table is called .'mesures'.; known are clients, rounds, "):
            record.write([("mesures", 1, "server", "a", 1.0)])
        record.write([])
    with Reader(tmp_path / "record.db") as reader:
        assert reader.rows("measures") == []


@pytest.mark.skipif(sqlite3.sqlite_version_info < (3, 37), reason="this SQLite has no strict tables")
def test_a_numpy_integer_is_refused_instead_of_stored_as_a_blob(tmp_path: Path) -> None:
    with Record(tmp_path / "record.db") as record, pytest.raises(sqlite3.Error):
        record.write([("spans", "c000", "compute", np.int64(1), 2, 1)])


def test_another_runs_record_is_refused_unless_it_is_resumed(tmp_path: Path) -> None:
    path = tmp_path / "record.db"
    with Record(path) as record:
        record.write([sent("server", "c000", 0)])
    with pytest.raises(FileExistsError, match="is the record of another run"):
        Record(path)
    with Record(path, resume=True) as record:
        record.write([sent("server", "c000", 1)])
    with Reader(path) as reader:
        assert len(reader.rows("messages")) == 2


def test_arrays_are_typed_and_say_what_is_missing(tmp_path: Path) -> None:
    with Record(tmp_path / "record.db") as record:
        record.write([sent("server", "c000", 0), ("evaluations", 1, 2, 3, "m", "test", 4, 5, float("nan"))])
    with Reader(tmp_path / "record.db") as reader:
        messages, evaluations = reader.arrays("messages"), reader.arrays("evaluations")
        empty = reader.arrays("spans")
    assert messages["departure_ns"].dtype == messages["arrival_ns"].dtype == np.int64
    assert messages["arrival_ns"].tolist() == [-1]
    assert evaluations["now_ns"].dtype == np.int64 and evaluations["model"].tolist() == ["m"]
    assert np.isnan(evaluations["loss"]).tolist() == [True]
    assert empty["start_ns"].shape == (0,) and empty["start_ns"].dtype == np.int64


def test_times_of_a_century_keep_every_nanosecond(tmp_path: Path) -> None:
    century_ns = 100 * 365 * 24 * 3600 * 10**9 + 1
    with Record(tmp_path / "record.db") as record:
        record.write([("spans", "c000", "wait", century_ns, century_ns + 1, 1)])
    with Reader(tmp_path / "record.db") as reader:
        assert reader.arrays("spans")["start_ns"].tolist() == [century_ns]


def test_an_array_is_measured_and_read_back(tmp_path: Path) -> None:
    clusters = np.arange(6, dtype=np.float32).reshape(2, 3)
    with Record(tmp_path / "record.db") as record:
        record.write([("measures", 2, "server", "clusters", packed(clusters)), ("measures", 2, "server", "k", 3)])
    with Reader(tmp_path / "record.db") as reader:
        rows, arrays = reader.rows("measures"), reader.arrays("measures")
    assert rows[0]["value"].dtype == np.float32 and np.array_equal(rows[0]["value"], clusters)
    assert np.array_equal(arrays["value"][0], clusters)
    assert rows[1]["value"] == 3


def test_rows_are_chosen_by_columns_and_unknown_names_are_refused(tmp_path: Path) -> None:
    with Record(tmp_path / "record.db") as record:
        record.write([sent("server", "c000", 0), sent("server", "c001", 1), received("server", "c001", 1)])
    with Reader(tmp_path / "record.db") as reader:
        assert [row["sequence"] for row in reader.rows("messages", receiver="c001")] == [1]
        assert [row["sequence"] for row in reader.rows("messages", arrival_ns=None)] == [0]
        with pytest.raises(ValueError, match=r"messages has no column .'to'.; it has sender, "):
            reader.rows("messages", to="c001")
        with pytest.raises(ValueError, match="no table is called 'nothing'; known are messages, "):
            reader.rows("nothing")


def test_a_reader_without_a_record_says_where_it_looked(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"there is no record at .*record\.db"):
        Reader(tmp_path / "record.db")


def test_a_reader_follows_the_writer_and_does_not_stop_it_from_closing(tmp_path: Path) -> None:
    record = Record(tmp_path / "record.db")
    with Reader(tmp_path / "record.db") as reader:
        for number in range(3):
            record.write([sent("server", "c000", number)])
            assert len(reader.rows("messages")) == number + 1
        record.close()
        assert len(reader.rows("messages")) == 3
    with Reader(tmp_path / "record.db") as reader:
        assert len(reader.rows("messages")) == 3


def test_a_closed_record_is_one_file(tmp_path: Path) -> None:
    with Record(tmp_path / "record.db") as record:
        record.write([sent("server", "c000", 0)])
    assert [path.name for path in tmp_path.iterdir()] == ["record.db"]


_WRITER = """
import sys
from pflsim.record.database import Record

record = Record(sys.argv[1])
for number in range(1_000_000):
    record.write([("spans", "c000", "compute", 10 * number + k, 10 * number + k + 1, 1) for k in range(10)])
    print(number + 1, flush=True)
"""


def test_what_was_committed_outlives_a_sigkill_of_the_writer(tmp_path: Path) -> None:
    root = str(Path(__file__).parents[1])
    with subprocess.Popen(
        [sys.executable, "-c", _WRITER, str(tmp_path / "record.db")],
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": root},
    ) as writer:
        assert writer.stdout is not None
        for _ in range(50):
            writer.stdout.readline()
        with Reader(tmp_path / "record.db") as reader:  # while the run goes on
            assert len(reader.rows("spans")) >= 500
        os.kill(writer.pid, signal.SIGKILL)
        said = 50 + len(writer.stdout.readlines())
    with Reader(tmp_path / "record.db") as reader:
        starts = reader.arrays("spans")["start_ns"]
    assert len(starts) >= 10 * said
    assert len(starts) % 10 == 0, "a batch is there as a whole or not at all"
    assert np.array_equal(starts, np.arange(len(starts)))


def test_importing_the_record_imports_nothing_heavy() -> None:
    check = "import sys, pflsim.record.database; print({'numpy', 'rich', 'matplotlib', 'torch'} & set(sys.modules))"
    root = str(Path(__file__).parents[1])
    output = subprocess.run(
        [sys.executable, "-c", check],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"PYTHONPATH": root},
    ).stdout
    assert output.strip() == "set()"


# The ledger


def test_a_ledger_agrees_when_every_message_arrives_whole(tmp_path: Path) -> None:
    with Record(tmp_path / "record.db") as record:
        record.write([sent("server", "c000", 0), received("server", "c000", 0)])
        record.write([sent("c000", "server", 0, kind="RESULT"), received("c000", "server", 0, kind="RESULT")])
        record.write([sent("c000", "c001", 1, kind="MODEL"), received("c000", "c001", 1, kind="MODEL")])
    with Reader(tmp_path / "record.db") as reader:
        ledger = balance(reader)
    assert ledger.agrees and ledger.named() == []
    assert {account.direction: account.sent for account in ledger.accounts} == {
        way: Amount(messages=1, payload_bytes=400, header_bytes=60, control_bytes=5) for way in ("up", "down", "peer")
    }


def test_the_ledger_names_a_lost_a_duplicated_and_a_truncated_message(tmp_path: Path) -> None:
    with Record(tmp_path / "record.db") as record:
        record.write([sent("server", f"c00{number}", number) for number in range(4)])
        record.write([received("server", f"c00{number}", number) for number in (0, 2)])
        record.write(
            [
                ("dropped", "c002", "duplicate", "WORK again", 465, "server", "data", 2),
                ("dropped", "c003", "malformed", "frame 1 has 17 of 400 bytes", 82, "server", "data", 3),
            ]
        )
    with Reader(tmp_path / "record.db") as reader:
        ledger = balance(reader)
    assert ledger.named() == [
        "never arrived: WORK server → c001, round 1, number 1 on channel data, 0 of 465 bytes arrived",
        "malformed (frame 1 has 17 of 400 bytes): WORK server → c003, round 1, number 3 on channel data, "
        "82 of 465 bytes arrived",
        "duplicate (WORK again): server → c002, number 2 on channel data, 465 bytes",
    ]
    one = Amount(messages=1, payload_bytes=400, header_bytes=60, control_bytes=5)
    assert {account.receiver: account.lost for account in ledger.accounts} == {
        "c000": {},
        "c001": {"never arrived": one},
        "c002": {},
        "c003": {"malformed": one},
    }
    assert ledger.agrees, "sent = received + lost"
    traffic = ledger.traffic()
    assert (traffic["messages"], traffic["lost_messages"], traffic["duplicate_messages"]) == (4, 2, 1)
    assert traffic["payload_bytes_down"] == 1600, "what was lost was put on the wire all the same"


def test_a_message_dropped_twice_is_lost_once(tmp_path: Path) -> None:
    drop = ("dropped", "c000", "malformed", "", 82, "server", "data", 0)
    with Record(tmp_path / "record.db") as record:
        record.write([sent("server", "c000", 0), drop, drop])
    with Reader(tmp_path / "record.db") as reader:
        ledger = balance(reader)
    assert len(ledger.losses) == 1 and len(ledger.extra_arrivals) == 1 and ledger.agrees


def test_a_strangers_message_belongs_to_no_account(tmp_path: Path) -> None:
    with Record(tmp_path / "record.db") as record:
        record.write([("dropped", "server", "unknown sender", "run id 7", 99, None, None, None)])
    with Reader(tmp_path / "record.db") as reader:
        ledger = balance(reader)
    assert ledger.accounts == () and ledger.agrees
    assert ledger.named() == ["unknown sender (run id 7): unknown → server, 99 bytes"]


def test_ends_that_count_differently_do_not_agree_even_if_the_sums_do(tmp_path: Path) -> None:
    more, less = list(received("server", "c000", 0)), list(received("server", "c000", 1))
    more[6], less[6] = 401, 399
    with Record(tmp_path / "record.db") as record:
        record.write([sent("server", "c000", 0), sent("server", "c000", 1), tuple(more), tuple(less)])
    with Reader(tmp_path / "record.db") as reader:
        ledger = balance(reader)
    assert all(account.agrees for account in ledger.accounts)
    assert not ledger.agrees
    assert len(ledger.disagreements) == 2
    assert ledger.disagreements[0].startswith("the two ends differ: WORK server → c000, number 0 on channel data")


def test_a_message_that_nobody_sent_is_a_disagreement(tmp_path: Path) -> None:
    with Record(tmp_path / "record.db") as record:
        record.write([received("c009", "server", 4, kind="RESULT")])
    with Reader(tmp_path / "record.db") as reader:
        ledger = balance(reader)
    assert not ledger.agrees
    assert ledger.named() == ["received but never recorded as sent: RESULT c009 → server, number 4 on channel data"]


def test_every_byte_sent_is_in_exactly_one_total(tmp_path: Path) -> None:
    with Record(tmp_path / "record.db") as record:
        record.write([sent("server", "c000", n, channel=channel) for n in range(3) for channel in ("data", "control")])
        record.write([sent("c000", "server", n, channel="evaluation") for n in range(2)])
    with Reader(tmp_path / "record.db") as reader:
        traffic = balance(reader).traffic()
    assert traffic["payload_bytes_down"] == 1200 and traffic["payload_bytes_up"] == 0
    assert traffic["header_bytes"] == 180
    assert traffic["evaluation_bytes"] == 920
    assert traffic["control_bytes"] == 3 * 465 + 5 * 5
    assert sum(count for name, count in traffic.items() if "bytes" in name) == 8 * 465
