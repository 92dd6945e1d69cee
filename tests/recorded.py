"""Records of small runs for the tests, made by the sequential driver: what processes record, in a tenth of a second."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tomli_w

from nodes.roster import roster
from nodes.sequential import run_sequentially
from pflsim.record.database import Reader, Record
from pflsim.record.history import Period
from pflsim.record.report import summarise, write_summary
from pflsim.spec import validate
from pflsim.study import Study
from pflsim.timing.links import Links

SMALL: dict[str, Any] = {"run__clients": 6, "run__rounds": 4}

STRAGGLERS = {"kind": "bimodal", "flops_per_second": 4e6, "stragglers": 3, "slowdown": 10.0,
              "server_flops_per_second": "workstation"}  # fmt: skip

KINDS: dict[str, dict[str, Any]] = {
    "sync": {},
    "slow links": {"links": "4g", "data__samples": 400},
    "jitter and loss": {
        "devices": {"kind": "lognormal", "flops_per_second": 1e6, "spread": 1.0, "jitter": 0.3,
                    "server_flops_per_second": 1e6},
        "links": {"client": {"uplink_mbps": 1.0, "downlink_mbps": {"kind": "lognormal", "mbps": 2, "spread": 1.0}},
                  "server": {"uplink_mbps": 2.0, "downlink_mbps": 2.0}, "latency_ms": 5.0, "jitter_ms": 3.0,
                  "loss": 0.2, "retransmit_ms": 50.0, "slow_start": True},
    },
    "deadline": {"schedule": {"kind": "deadline", "deadline_s": 0.006, "cohort": 4, "minimum": 1, "late": "carry"},
                 "devices": {"kind": "bimodal", "flops_per_second": 4e6, "stragglers": 3, "slowdown": 10.0,
                             "server_flops_per_second": "workstation"}},
    "fresh losses": {"schedule": {"kind": "sync", "cohort": 2, "sampling": {"kind": "power-of-choice", "candidates": 4,
                                                                           "fresh": True}},
                     "availability": {"kind": "markov", "on_s": 0.05, "off_s": 0.02}, "run__rounds": 10},
    "fedasync": {"schedule": {"kind": "fedasync", "concurrency": 3}},
    "fedbuff": {"schedule": {"kind": "fedbuff", "concurrency": 4, "buffer": 2}},
    "availability": {"availability": {"kind": "markov", "on_s": 0.02, "off_s": 0.01}, "run__rounds": 10},
    "partial": {"schedule": {"kind": "deadline", "quantile": 0.5, "late": "partial"}, "devices": STRAGGLERS},
    "cancel": {"schedule": {"kind": "deadline", "quantile": 0.5, "over": 1.0, "late": "cancel"}, "devices": STRAGGLERS,
               "fault": [{"kind": "lose", "probability": 0.1},
                         {"kind": "reorder", "probability": 0.3, "delay_s": 0.01}],
               "links": "4g", "run__rounds": 10},
    "timeout": {"schedule": {"kind": "fedasync", "concurrency": 3, "timeout_s": 0.08}, "devices": STRAGGLERS,
                "fault": [{"kind": "lose", "probability": 0.1}, {"kind": "crash", "clients": [1], "at_s": 0.02,
                                                                 "until_s": 0.05, "keeps_state": False}],
                "availability": {"kind": "markov", "on_s": 0.2, "off_s": 0.1}, "run__rounds": 10},
    "faults": {"fault": [{"kind": "duplicate", "probability": 0.5}, {"kind": "slow-link", "factor": 3.0}]},
}  # fmt: skip

AMONG = SMALL | {"topology": {"name": "ring"}, "data__samples": 300, "devices": STRAGGLERS | {"stragglers": 1}}
"""Six peers on a ring, one of them ten times slower than the others."""

LEAVING = {"availability": {"kind": "markov", "on_s": 0.02, "off_s": 0.01}, "run__rounds": 8}

PEERS: dict[str, dict[str, Any]] = {
    "sync": {"algorithm": {"name": "dfedu"}},
    "slow links": {"algorithm": {"name": "dpsgd"},
                   "links": {"client": {"uplink_mbps": 0.5, "downlink_mbps": 0.4},
                             "server": {"uplink_mbps": 1.0, "downlink_mbps": 1.0}, "latency_ms": 3.0}},
    "deadline": {"algorithm": {"name": "dfedu"}, "schedule": {"kind": "neighbours", "deadline_s": 0.01}},
    "active": {"algorithm": {"name": "dfedu"}, "schedule": {"kind": "neighbours", "active": 0.5}},
    "asynchronous": {"algorithm": {"name": "dfedu"}, "schedule": {"kind": "asynchronous"}},
    "push": {"algorithm": {"name": "dpsgd"}, "schedule": {"kind": "push"}},
    "epidemic": {"algorithm": {"name": "dpsgd"}, "schedule": {"kind": "epidemic", "receivers": 2},
                 "topology": {"name": "full"}},
    "pairs": {"algorithm": {"name": "dpsgd"}, "schedule": {"kind": "pairs"}},
    "leaving": {"algorithm": {"name": "dfedu"}} | LEAVING,
    "leaving pairs": {"algorithm": {"name": "dpsgd"}, "schedule": {"kind": "pairs"}} | LEAVING,
    "faults": {"algorithm": {"name": "dfedu"}, "schedule": {"kind": "asynchronous"},
               "fault": [{"kind": "lose", "probability": 0.2}, {"kind": "duplicate", "probability": 0.2},
                         {"kind": "reorder", "probability": 0.3, "delay_s": 0.02}]},
    "stop by time": {"algorithm": {"name": "dfedu"}, "schedule": {"kind": "asynchronous"},
                     "run__stop": {"simulated_s": 0.05}, "run__rounds": 30},
    "changing graph": {"algorithm": {"name": "dfedu"}, "topology": {"name": "matching"}},
}  # fmt: skip


def record_of(path: Path, tables: Mapping[str, Any]) -> Reader:
    """A reader of what a run of `tables` records."""
    told = run_sequentially(Study(validate(tables), b"8 bytes."))
    with Record(path) as record:
        record.write(told.facts)
    return Reader(path)


def run_into(folder: Path, tables: dict[str, Any]) -> list[Period]:
    """Run `tables` one event at a time, leave in `folder` what a run leaves, and tell when its rounds were."""
    study = Study(validate(tables), b"8 bytes.")
    told = run_sequentially(study)
    folder.mkdir()
    (folder / "run.toml").write_text(tomli_w.dumps(study.plan()["effective"]))
    with Record(folder / "record.db") as record:
        record.write([("clients", *row) for row in roster(study)])
        record.write([*told.facts, ("events", "launcher", "done", "", 0, 0.0)])
    return [Period(*fact[1:4]) for fact in told.facts if fact[0] == "rounds"]


def links_of(tables: Mapping[str, Any]) -> Links:
    """The links of a run of `tables`."""
    study = Study(validate(tables), b"8 bytes.")
    return Links(study.description.links, ("server", *study.names), study.description.run.seed.train)


def finished_in(folder: Path, tables: dict[str, Any]) -> Path:
    """The folder of a whole run of `tables`, made one event at a time, with its summary."""
    study = Study(validate(tables), b"8 bytes.")
    periods = run_into(folder, tables)
    facts = study.plan()["facts"] | {"status": "done", "rounds": len(periods), "warnings": []}
    facts["time"] = {"simulated_s": max((period.end_ns for period in periods), default=0) / 1e9}
    with Reader(folder / "record.db") as reader:
        write_summary(folder / "summary.json", summarise(reader, facts))
    return folder
