"""The facts of a run: what can be told about it, as the tables of its record.

A fact is a tuple `(table, *values)`, its values in the order of that table's columns. All times that end in
`_ns` are simulated nanoseconds since the run began. Actors are named "server", "c000", "c001", ...

`messages` is a view with one row per (sender, channel, sequence): what the sending end said in `sent` beside
what the receiving end said in `received`, whichever came first. A missing end is NULL; `pflsim.record.ledger` says
what that means.
"""

import sqlite3
from typing import Any

TABLES: dict[str, dict[str, str]] = {
    "clients": {  # written once, before anybody works
        "client": "INTEGER",
        "name": "TEXT",
        "training_samples": "INTEGER",
        "validation_samples": "INTEGER",
        "test_samples": "INTEGER",
        "labels_json": "TEXT",  # the labels that occur in its training samples, ascending
        "device_class": "TEXT",  # the kind of its device; where speeds are continuous: slow, middle or fast
        "flops_per_second": "REAL",  # sustained
        "label_counts_json": "TEXT",  # how many of its training samples have each of these labels, in their order
    },
    "rounds": {
        "round": "INTEGER",
        "start_ns": "INTEGER",
        "end_ns": "INTEGER",
        "wall_s": "REAL",  # measured on the host, beside the simulated times
        "cohort_json": "TEXT",  # the client ids that were asked
        "answers": "INTEGER",  # that were folded in, or buffered
        "rejected": "INTEGER",  # were not finite
        "gone": "INTEGER",  # came back without: they were away meanwhile
    },
    "energy": {  # written once, at the end, of those whose `devices.power` is known
        "actor": "TEXT",
        "computing_j": "REAL",
        "sending_j": "REAL",
        "idle_j": "REAL",
    },
    "steps": {  # of peers, each of which has rounds of its own; `rounds` has what all of them have done
        "round": "INTEGER",
        "client": "INTEGER",
        "start_ns": "INTEGER",
        "end_ns": "INTEGER",
    },
    "evaluations": {
        "round": "INTEGER",
        "now_ns": "INTEGER",
        "client": "INTEGER",
        "model": "TEXT",  # a client states its headline model first
        "split": "TEXT",  # test, or validation
        "correct": "INTEGER",
        "total": "INTEGER",
        "loss": "REAL",  # mean over the split
    },
    "sent": {
        "sender": "TEXT",
        "receiver": "TEXT",
        "kind": "TEXT",
        "channel": "TEXT",  # data (charged to the method), evaluation, or control
        "sequence": "INTEGER",  # counts per (sender, channel)
        "round": "INTEGER",
        "payload_bytes": "INTEGER",
        "header_bytes": "INTEGER",
        "control_bytes": "INTEGER",
        "departure_ns": "INTEGER",
    },
    "bursts": {  # messages of the method that left an actor together, two at least that carry tensors
        "sender": "TEXT",
        "round": "INTEGER",
        "departure_ns": "INTEGER",
        "messages": "INTEGER",
        "payload_bytes": "INTEGER",
        "distinct_payloads": "INTEGER",  # equal ones counted once: what a sender to many at a time would have sent
        "distinct_payload_bytes": "INTEGER",
    },
    "uncoded": {  # of a message with tensors that a codec made shorter: beside `sent`
        "sender": "TEXT",
        "receiver": "TEXT",
        "kind": "TEXT",
        "channel": "TEXT",
        "sequence": "INTEGER",
        "round": "INTEGER",
        "payload_bytes": "INTEGER",  # what it would have weighed without
        "departure_ns": "INTEGER",
    },
    "received": {
        "sender": "TEXT",
        "receiver": "TEXT",
        "kind": "TEXT",
        "channel": "TEXT",
        "sequence": "INTEGER",
        "payload_bytes": "INTEGER",
        "header_bytes": "INTEGER",
        "control_bytes": "INTEGER",
        "arrival_ns": "INTEGER",
    },
    "dropped": {
        "receiver": "TEXT",  # an actor, "c000/c001" where several share a socket, or "recorder"
        "reason": "TEXT",  # malformed or duplicate; detail says more
        "detail": "TEXT",
        "total_bytes": "INTEGER",  # what the socket gave
        "sender": "TEXT",  # these three: as far as they could be read
        "channel": "TEXT",
        "sequence": "INTEGER",
    },
    "spans": {
        "actor": "TEXT",
        "what": "TEXT",  # compute (a client), aggregate (the server), or wait
        "start_ns": "INTEGER",
        "end_ns": "INTEGER",
        "round": "INTEGER",
    },
    "measures": {
        "round": "INTEGER",
        "actor": "TEXT",
        "name": "TEXT",
        "value": "ANY",  # a number, or an array as `packed` makes it
    },
    "events": {
        "actor": "TEXT",
        "what": "TEXT",
        "detail": "TEXT",
        "simulated_ns": "INTEGER",
        "wall_s": "REAL",
    },
}

MESSAGES: dict[str, str] = {
    "sender": "TEXT",
    "receiver": "TEXT",
    "kind": "TEXT",
    "channel": "TEXT",
    "sequence": "INTEGER",
    "round": "INTEGER",
    "sent_payload_bytes": "INTEGER",
    "sent_header_bytes": "INTEGER",
    "sent_control_bytes": "INTEGER",
    "departure_ns": "INTEGER",
    "received_payload_bytes": "INTEGER",
    "received_header_bytes": "INTEGER",
    "received_control_bytes": "INTEGER",
    "arrival_ns": "INTEGER",
}

# What makes a message one message, at both ends.
IDENTITY = ("sender", "channel", "sequence")
ENDS = ("sent", "received")
SAID_ANEW = "kind IN ('BEGIN', 'WAITING', 'TELL', 'LICENCE', 'FINISHED')"
"""What peers and their coordinator say to each other again, otherwise, when a run is resumed."""
VERSION = 1

# Facts are recorded in the order in which processes happen to speak; rows are read in an order that repeats.
ORDER = {
    "clients": "client",
    "rounds": "round",
    "steps": "round, client",
    "energy": "rowid",
    "evaluations": "round, client, rowid",
    "messages": "sender, channel, sequence",
    "sent": "sender, channel, sequence",
    "bursts": "departure_ns, sender, rowid",
    "uncoded": "sender, channel, sequence",
    "received": "sender, channel, sequence",
    "dropped": "receiver, sender, channel, sequence, rowid",
    "spans": "start_ns, actor, rowid",
    "measures": "round, actor, name",
    "events": "rowid",
}


def columns_of(table: str) -> dict[str, str]:
    """The columns of a table, or of the view `messages`, with their types; ValueError if there is none."""
    if table == "messages":
        return MESSAGES
    if table not in TABLES:
        raise ValueError(f"no table is called {table!r}; known are messages, {', '.join(TABLES)}")
    return TABLES[table]


_KINDS: dict[str, tuple[type, ...]] = {
    "INTEGER": (int,),
    "REAL": (int, float),
    "TEXT": (str,),
    "ANY": (int, float, str, bytes),
}
_MOST = 2**63
OPTIONAL = {"dropped": ("sender", "channel", "sequence"), "evaluations": ("loss",), "measures": ("value",)}
"""What may be missing; a real number that is none is missing too."""


def flaw_of(fact: tuple[Any, ...]) -> str | None:
    """What is wrong with a fact that came from another process; None if a table takes it."""
    table, *values = fact or (None,)
    if not isinstance(table, str) or table not in TABLES:
        return f"there is no table {table!r:.40}"
    columns = TABLES[table]
    if len(values) != len(columns):
        return f"{table} has {len(columns)} columns, {len(values)} values came"
    for (name, kind), value in zip(columns.items(), values, strict=True):
        if value is None:
            if name not in OPTIONAL.get(table, ()):
                return f"{table}.{name} is missing"
        elif not isinstance(value, _KINDS[kind]) or (isinstance(value, int) and not -_MOST <= value < _MOST):
            return f"{table}.{name} cannot be {value!r:.40}"
    return None


def insertion(table: str) -> str:
    """The statement that writes one fact; of a message's end that is there already it writes nothing."""
    once = f" ON CONFLICT ({', '.join(IDENTITY)}) DO NOTHING" if table in ENDS else ""
    return f"INSERT INTO {table} VALUES ({', '.join('?' * len(TABLES[table]))}){once}"


def schema(*, numbered: bool = False) -> list[str]:
    """The statements that make the tables and the view; where rows shall be `numbered`, those of all tables are."""
    # STRICT refuses what sqlite3 would store without a word as a blob, such as a numpy integer.
    strict = ["STRICT"] if sqlite3.sqlite_version_info >= (3, 37) else []
    statements = []
    for table, columns in TABLES.items():
        optional = OPTIONAL.get(table, ())
        lines = [f"{name} {kind}{'' if name in optional else ' NOT NULL'}" for name, kind in columns.items()]
        options = list(strict)
        if table in ENDS:
            lines.append(f"PRIMARY KEY ({', '.join(IDENTITY)})")
            options += [] if numbered else ["WITHOUT ROWID"]
        statements.append(f"CREATE TABLE IF NOT EXISTS {table} ({', '.join(lines)}) {', '.join(options)}")
    return [*statements, f"CREATE VIEW IF NOT EXISTS messages AS {_messages_view()}"]


def _messages_view() -> str:
    # Two joins instead of a full outer join, which SQLite knows only from 3.39 on.
    sizes = ("payload_bytes", "header_bytes", "control_bytes")
    same = "r.sender = s.sender AND r.channel = s.channel AND r.sequence = s.sequence"
    sent = ", ".join(f"s.{size} AS sent_{size}" for size in sizes)
    received = ", ".join(f"r.{size} AS received_{size}" for size in sizes)
    names = ("sender", "receiver", "kind", "channel", "sequence")
    both = (
        f"SELECT {', '.join(f's.{name} AS {name}' for name in names)}, s.round AS round, {sent}, "
        f"s.departure_ns AS departure_ns, {received}, r.arrival_ns AS arrival_ns "
        f"FROM sent s LEFT JOIN received r ON {same}"
    )
    unsent = (
        f"SELECT {', '.join(f'r.{name}' for name in names)}, NULL, NULL, NULL, NULL, NULL, "
        f"{received}, r.arrival_ns FROM received r WHERE NOT EXISTS (SELECT 1 FROM sent s WHERE {same})"
    )
    return f"{both} UNION ALL {unsent}"
