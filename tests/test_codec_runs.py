"""Runs whose messages are encoded: the frames' lengths, who sees what, what is remembered, the same bits everywhere."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch

from launch.retime import retimed_rounds
from nodes.sequential import FactList, run_sequentially
from pflsim.algorithms.fedavg import FedAvg
from pflsim.codecs.int8 import EightBits
from pflsim.digest import digest_of
from pflsim.record.database import Reader, Record
from pflsim.record.ledger import compression
from pflsim.spec import validate
from pflsim.study import Study
from pflsim.timing.links import wire_bytes
from tests.launching import description, run_here
from tests.test_chaos import AVAILABILITY, ENGINES, FAULTS, LOSING, RUN, shuffled, tables_of
from tests.test_coding import CARRIED_OVER
from tests.test_peers_chaos import ENGINES as PEER_ENGINES
from tests.test_peers_chaos import tables_of as peer_tables

SERVERS: dict[str, dict[str, Any]] = {
    "fedavg": {"algorithm": {"name": "fedavg"}},
    "scaffold": {"algorithm": {"name": "scaffold"}},
    "ifca": {"algorithm": {"name": "ifca", "K": 2}},
    "fedasync": {"algorithm": {"name": "fedavg"}, "schedule": ENGINES["fedasync"]},
}
CODECS = ("none", *CARRIED_OVER)
SPARSE = ("sign", "top-k", "random-k", "low-rank")
"""Those by which a model itself may not travel."""


def way(name: str, *, goes_up: bool) -> dict[str, Any]:
    """A codec with all that may come with it in one direction."""
    over = {"error_feedback": True} if goes_up and name != "none" else {}
    return {"name": name, "delta": name != "none", **CARRIED_OVER.get(name, {}), **over}


def codec_of(name: str) -> dict[str, Any]:
    """Both directions; whatever may be, is on."""
    return {"up": way(name, goes_up=True), "down": way(name, goes_up=False)}


def assert_same(tables: dict[str, Any]) -> FactList:
    """That a shuffled order gives what the sequential driver gives; the facts of the latter."""
    told = run_sequentially(Study(validate(tables), RUN))
    found = shuffled(tables, 1)
    for said in ("digest", "trace_digest", "simulated_s", "rounds"):
        assert found[said] == told.finished()[said], said
    return told


def payloads(told: FactList, kind: str) -> list[int]:
    return [fact[7] for fact in told.facts if fact[0] == "sent" and fact[3] == kind]


@pytest.mark.parametrize("method", SERVERS)
@pytest.mark.parametrize("name", CODECS)
def test_with_a_server_frames_have_the_stated_length_and_the_order_of_messages_does_not_matter(
    name: str, method: str
) -> None:
    tables = description(run__clients=4, codec=codec_of(name), **SERVERS[method])
    told, study = assert_same(tables), Study(validate(tables), RUN)
    down, up = study._first_down(), study.first_up()
    lengths = {"WORK": sum(study.frame_bytes("down", down)), "RESULT": sum(study.frame_bytes("up", up))}
    raw = {"WORK": sum(4 * x.numel() for x in down.values()), "RESULT": sum(x.nbytes for x in up.values())}
    assert set(payloads(told, "RESULT")) == {lengths["RESULT"]}
    works = payloads(told, "WORK")
    first = 4 if tables["codec"]["down"]["delta"] else 0  # each client's first work travels as it is
    assert Counter(works) == Counter({raw["WORK"]: first}) + Counter({lengths["WORK"]: len(works) - first})
    assert (lengths["RESULT"] < raw["RESULT"] and lengths["WORK"] < raw["WORK"]) == (name != "none")


@pytest.mark.parametrize(
    ("name", "delta"), [(name, delta) for name in CODECS for delta in (False, True) if delta or name not in SPARSE]
)
def test_so_it_is_without_one(name: str, delta: bool) -> None:
    settings = {"name": name, **CARRIED_OVER.get(name, {}), "delta": delta}
    tables = peer_tables("sync", codec={"peer": settings})
    told, study = assert_same(tables), Study(validate(tables), RUN)
    shown = study.first_shown()
    (length,), raw = study.frame_bytes("peer", shown), 4 * shown["w"].numel()
    pushed = payloads(told, "PUSH")
    first = 6 * 2 if delta else 0
    assert Counter(pushed) == Counter({raw: first}) + Counter({length: len(pushed) - first})


SERVER_CODECS: dict[str, dict[str, Any]] = {
    "carried over": {
        "up": {"name": "top-k", "share": 0.05, "error_feedback": True, "delta": True, "zstd": True},
        "down": {"name": "int4", "delta": True},
    },
    "at random": {"up": {"name": "qsgd", "zstd": True}, "down": "int8"},
}


@pytest.mark.parametrize("codec", SERVER_CODECS)
@pytest.mark.parametrize("engine", ENGINES)
def test_whatever_goes_wrong_both_ends_agree_and_the_order_of_messages_does_not_matter(engine: str, codec: str) -> None:
    """Clients crash (and remember), leave at any time, and messages come twice: what is undone leaves no residual."""
    for fault in ("crash in rounds", "duplicate", "partition"):
        settings = {"availability": AVAILABILITY["markov"], "fault": FAULTS[fault]}
        assert_same(tables_of(engine, links="4g", codec=SERVER_CODECS[codec], **settings))


@pytest.mark.parametrize("codec", SERVER_CODECS)
@pytest.mark.parametrize("fault", LOSING)
@pytest.mark.parametrize("engine", ["cancel", "timeout", "fresh until"])
def test_so_it_is_when_messages_never_arrive(engine: str, fault: str, codec: str) -> None:
    assert_same(tables_of(engine, links="wifi", codec=SERVER_CODECS[codec], fault=LOSING[fault]))


def test_so_it_is_when_a_client_forgets_what_it_has_to_carry_over() -> None:
    codec = {"up": SERVER_CODECS["carried over"]["up"]}
    assert_same(tables_of("fedasync", links="4g", codec=codec, fault=FAULTS["crash"]))


@pytest.mark.parametrize("codec", [{"name": "int4", "delta": True, "zstd": True}, {"name": "qsgd"}], ids=str)
@pytest.mark.parametrize("engine", PEER_ENGINES)
def test_so_it_is_in_every_schedule_of_peers(engine: str, codec: dict[str, Any]) -> None:
    for topology in ("ring", "changing"):
        tables = peer_tables(engine, topology=topology, algorithm="dpsgd", links="wifi", codec={"peer": codec})
        assert_same(tables | {"availability": AVAILABILITY["markov"]})


# who sees what


class Watched:
    """What a client was given, and what the server folds in as what it had been given, by client and round."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.given: list[tuple[int, bytes]] = []
        self.answered: list[tuple[int, bytes]] = []
        self.models: list[torch.Tensor] = []
        step, fold = FedAvg.client_step, FedAvg.server_step

        def client_step(method: Any, you: Any, down: Any, task: Any) -> Any:
            self.given.append((task.client, digest_of(down)))
            return step(method, you, down, task)

        def server_step(method: Any, all: Any, answers: Any, round: Any) -> Any:
            self.models.append(all["x"])
            self.answered += [(answer.client, digest_of(answer.down)) for answer in answers]
            return fold(method, all, answers, round)

        monkeypatch.setattr(FedAvg, "client_step", client_step)
        monkeypatch.setattr(FedAvg, "server_step", server_step)


@pytest.mark.parametrize("delta", [False, True])
def test_the_server_remembers_as_sent_what_the_client_really_has(monkeypatch: pytest.MonkeyPatch, delta: bool) -> None:
    study = Study(validate(description(run__eval_every=0, codec={"down": {"name": "int4", "delta": delta}})), RUN)
    watched = Watched(monkeypatch)
    run_sequentially(study)
    assert sorted(watched.given) == sorted(watched.answered) and len(watched.given) == 12
    sent_whole = {digest_of({"x": model}) for model in watched.models}
    seen = [digest for _, digest in watched.given]
    assert sum(digest in sent_whole for digest in seen) == (4 if delta else 0), "only the first travels as it is"


def test_what_is_the_same_for_all_is_encoded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    encode, encoded = EightBits.encode, []

    def counted(codec: Any, v: Any, rng: Any, shapes: Any) -> Any:
        encoded.append(len(v))
        return encode(codec, v, rng, shapes)

    study = Study(validate(description(run__eval_every=0, codec={"down": "int8"})), RUN)
    monkeypatch.setattr(EightBits, "encode", counted)
    run_sequentially(study)
    assert len(encoded) == 3, "once a round, for four clients"


def test_what_is_evaluated_is_what_a_client_would_receive(monkeypatch: pytest.MonkeyPatch) -> None:
    models: list[torch.Tensor] = []

    def client_model(method: Any, you: Any, down: Any, task: Any) -> Any:
        models.append(down["x"])
        return {"global": down["x"]}

    monkeypatch.setattr(FedAvg, "client_model", client_model)
    run_sequentially(Study(validate(description(codec={"down": "bf16"})), RUN))
    assert len(models) == 12 and all(torch.equal(model, model.bfloat16().float()) for model in models)


def test_evaluation_changes_nothing() -> None:
    codec = {"down": {"name": "int4", "delta": True}, "up": "int8"}
    often, never = (
        run_sequentially(Study(validate(description(codec=codec, run__eval_every=every)), RUN)).finished()
        for every in (1, 0)
    )
    assert often["digest"] == never["digest"] and often["trace_digest"] == never["trace_digest"]


def test_an_upload_that_is_not_finite_is_rejected_as_ever() -> None:
    codec = {"up": {"name": "top-k", "share": 0.1, "error_feedback": True, "delta": True}, "down": "int8"}
    tables = description(training={"step_size": 1e9, "weight_decay": 1e9, "local_steps": 5}, codec=codec)
    told = assert_same(tables)
    assert [fact for fact in told.facts if fact[0] == "events" and fact[2] == "rejected"]


def test_none_is_as_if_there_were_no_codec() -> None:
    for engine in ("sync", "cancel", "fedasync"):
        plain = tables_of(engine)
        without, with_none = (
            run_sequentially(Study(validate(tables), RUN))
            for tables in (plain, plain | {"codec": {"up": "none", "down": {"name": "none"}}})
        )
        facts = [[fact for fact in told.facts if fact[0] in ("sent", "received")] for told in (without, with_none)]
        assert facts[0] == facts[1]
        assert without.finished()["digest"] == with_none.finished()["digest"]


@pytest.mark.parametrize("codec", ["none", "fp16", "sign"])
def test_a_transfer_takes_what_the_frame_needs(codec: str) -> None:
    slow = {"client": {"uplink_mbps": 0.01, "downlink_mbps": 10.0}, "latency_ms": 1.0}
    links = slow | {"server": {"uplink_mbps": 10.0, "downlink_mbps": 10.0}}
    told = run_sequentially(Study(validate(description(links=links, codec={"up": codec}, run__rounds=1)), RUN))
    sent = {fact[1]: fact[7:] for fact in told.facts if fact[0] == "sent" and fact[3] == "RESULT"}
    came = {fact[1]: fact[9] for fact in told.facts if fact[0] == "received" and fact[3] == "RESULT"}
    assert {payload for payload, *_ in sent.values()} == {{"none": 336, "fp16": 168, "sign": 15}[codec]}
    for name, (payload, header, _, left_ns) in sent.items():
        took_ns = 8 * wire_bytes([header, payload]) / 0.01e6 * 1e9 + 1e6
        assert came[name] - left_ns == pytest.approx(took_ns, rel=1e-9)


# the record, and real processes


def test_the_record_tells_what_the_payload_would_have_been(tmp_path: Path) -> None:
    tables = description(codec={"up": {"name": "sign", "delta": True}, "down": {"name": "int8", "delta": True}})
    told = run_sequentially(Study(validate(tables), RUN))
    with Record(tmp_path / "record.db") as record:
        record.write(told.facts)
    with Reader(tmp_path / "record.db") as reader:
        found = compression(reader)
    d, up, down = 84, 4 + 11, 4 + 84
    assert found["up"] == {"payload_bytes": 12 * up, "raw_bytes": 12 * 4 * d, "ratio": 4 * d / up}
    assert found["down"]["payload_bytes"] == 4 * 4 * d + 8 * down and found["down"]["raw_bytes"] == 12 * 4 * d


@pytest.mark.parametrize(
    ("settings", "clients_per_process"),
    [
        ({"codec": {"up": way("top-k", goes_up=True), "down": way("int4", goes_up=False)}}, 1),
        ({"codec": SERVER_CODECS["at random"], "schedule": {"kind": "fedasync", "concurrency": 3}}, 2),
        ({"codec": {"peer": {"name": "int4", "delta": True, "zstd": True}}, "algorithm": {"name": "dfedu"}}, 2),
    ],
    ids=["sync", "fedasync", "peers"],
)
def test_real_processes_give_the_sequential_drivers_bits_however_clients_are_placed(
    tmp_path: Path, settings: dict[str, Any], clients_per_process: int
) -> None:
    tables = description(run__clients_per_process=clients_per_process, topology={"name": "ring"}) | settings
    expected = run_sequentially(Study(validate(tables), RUN)).finished()
    summary = run_here(tables, tmp_path / "out").summary
    assert (summary["digest"], summary["trace_digest"]) == (expected["digest"], expected["trace_digest"])
    assert summary["traffic"]["ends_agree"] and not summary["warnings"]
    assert summary["compression"] and all(one["ratio"] > 1 for one in summary["compression"].values())
    if tables["codec"].get("down") and "schedule" not in settings:
        recorded, retimed = retimed_rounds(tmp_path / "out", ["links.latency_ms=100"])
        assert [one.end_ns < other.end_ns for one, other in zip(recorded, retimed, strict=True)] == [True] * 3
