"""How states come to the launcher's disk from hosts that share none with it, and back; and what is refused there."""

from hashlib import sha256
from pathlib import Path
from typing import Any, cast

import pytest
import torch

from launch.checkpoints import MANIFEST
from launch.handover import HandedOver, Handover
from launch.incoming import Incoming
from launch.ownership import Ownership
from launch.reception import RemoteHost
from nodes import kept_files
from nodes.kept_files import PIECE, Folder, HandedIn, place_of
from nodes.standstill import CHECKPOINT, UNDER_WAY, Standstill
from pflsim import kept
from pflsim.errors import RunFailed
from tests.test_kept import told

STATE = {"x": torch.arange(5000.0), "visits": 3}


class Told(list[tuple[Any, ...]]):
    """A recorder that keeps all that it is told."""

    def tell(self, *fact: Any) -> None:
        self.append(fact)

    def flush(self) -> None:
        pass


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("nodes.kept_files", "launch.handover"):
        monkeypatch.setattr(f"{module}.PIECE_BYTES", 1000)


def handed_in(place: Path) -> tuple[Told, str]:
    """The pieces of a state, and its digest."""
    facts = Told()
    with HandedIn(place, facts).writing(4, "c001.state") as file:
        digest = kept.write(file, STATE)
    assert not list(place.iterdir()), "it is nowhere but on its way"
    return facts, digest


def test_a_state_that_is_handed_in_a_piece_at_a_time_is_that_of_a_folder_bit_for_bit(tmp_path: Path) -> None:
    facts, digest = handed_in(tmp_path)
    assert [fact[:3] for fact in facts] == [(PIECE, 4, "c001.state")] * len(facts)
    assert len(facts) > 20 and all(0 < len(piece) <= kept_files.PIECE_BYTES for *_, piece in facts)
    incoming = Incoming(tmp_path / "there")
    assert [incoming.take(round, name, piece) for _, round, name, piece in facts] == [""] * len(facts)
    assert not place_of(tmp_path / "there", 4, "c001.state").exists()
    assert incoming.accept(4, {"c001.state": digest}) == []
    with Folder(tmp_path / "here").writing(4, "c001.state") as file:
        assert kept.write(file, STATE) == digest
    places = [place_of(tmp_path / which, 4, "c001.state") for which in ("here", "there")]
    assert places[0].read_bytes() == places[1].read_bytes()
    with Folder(tmp_path / "there").reading(4, "c001.state") as file:
        assert torch.equal(kept.read(file, ())["x"], STATE["x"])


def test_what_is_not_what_it_is_said_to_be_is_told_and_has_no_name(tmp_path: Path) -> None:
    incoming, digest = Incoming(tmp_path), sha256(b"right").hexdigest()
    for name, piece in (("a.state", b"wrong"), ("b.state", b"ri"), ("b.state", b"ght"), ("d.state", b"right")):
        assert incoming.take(4, name, piece) == ""
    place_of(tmp_path, 4, "d.state.unfinished").unlink()
    assert incoming.accept(4, dict.fromkeys(("a.state", "b.state", "c.state", "d.state"), digest)) == [
        "a.state after round 4 has another checksum than it is said to have",
        "c.state after round 4 has not come",
        "d.state after round 4 has another checksum than it is said to have",
    ]
    assert [one.name for one in (tmp_path / "000004").iterdir() if one.suffix == ".state"] == ["b.state"]


def test_a_checkpoint_that_is_whole_stays_as_it_is(tmp_path: Path) -> None:
    incoming, place = Incoming(tmp_path), place_of(tmp_path, 4, "a.state")
    place.parent.mkdir()
    place.write_bytes(b"right")
    place.with_name(MANIFEST).touch()
    assert (
        incoming.take(4, "a.state", b"wrong") == "a piece of a.state comes when the checkpoint after round 4 is whole"
    )
    assert incoming.accept(4, {"a.state": ""}) == ["a.state after round 4 comes when that checkpoint is whole"]
    assert place.read_bytes() == b"right"


def test_everybody_hands_in_its_own_state_and_no_other() -> None:
    who = Ownership({"c000-c001": ("c000", "c001"), "c002": ("c002",)}, "server", {})
    for fact in (
        (PIECE, 4, "c001.state", b"x"),
        (CHECKPOINT, 4, {"c000.state": "x", "c001.state": "y"}),
        (UNDER_WAY, 4, {"c001.crossed": "x"}),
    ):
        assert who.flaw_of("c000-c001", fact) == ""
        assert "which is not its own" in who.flaw_of("c002", fact)
    no_part = [
        (PIECE, 4, "c002.state"),
        (PIECE, 4, "c002.state", "x"),
        (PIECE, 4, "c002.state", b"x", 1),
        (PIECE, 0, "c002.state", b"x"),
        (PIECE, 1 << 31, "c002.state", b"x"),
        (PIECE, True, "c002.state", b"x"),
        (PIECE, 4, {"c002.state": "x"}, b"x"),
        (PIECE,),
        (CHECKPOINT, 4, {"c002.state": b"x"}),
        (CHECKPOINT, 4, {2: "x"}),
        (CHECKPOINT, 4, "c002.state"),
        (CHECKPOINT, "4", {}),
        (UNDER_WAY, -4, {}),
    ]
    assert {who.flaw_of("c002", fact) for fact in no_part} == {"c002 tells what is no part of a checkpoint"}
    for name in ("../c002.state", "c002.state/", "c002.state.unfinished", "checkpoint.json", "2.state", "server.state"):
        assert "which is not its own" in who.flaw_of("c002", (PIECE, 4, name, b"x")), name


def test_who_names_another_round_has_not_stood_with_the_others_and_the_end_of_a_run_waits_for_nobody() -> None:
    standstill = Standstill(("a", "b"))
    apart = told(standstill, ("a", (CHECKPOINT, 5, {})), ("a", (1,)), ("b", (CHECKPOINT, 4, {})), ("b", (2,)))
    assert apart == [(1,), (2,)]
    finished = ("events", "server", "finished", "{}", 0, 0.0)
    late = [("a", (CHECKPOINT, 10, {})), ("a", (3,)), ("a", (CHECKPOINT, 15, {})), ("a", (4,)), ("a", finished)]
    assert told(standstill, *late) == [(3,), (4,), finished]
    assert told(standstill, ("b", (CHECKPOINT, 10, {})), ("b", (5,))) == [(5,)], "too late to be a checkpoint"


class Far:
    """A host that keeps what is said to it."""

    def __init__(self, name: str) -> None:
        self.name, self.said = name, list[dict[str, Any]]()

    def say(self, what: str, **values: Any) -> None:
        self.said.append({"what": what, **values})


def test_each_host_gets_what_is_its_own_and_the_next_piece_when_it_has_taken_one(tmp_path: Path) -> None:
    content = {"c000.state": bytes(2500), "c001.state": b"x" * 999, "c002.state": b"y"}
    for name, one in content.items():
        place_of(tmp_path / "kept", 4, name).parent.mkdir(parents=True, exist_ok=True)
        place_of(tmp_path / "kept", 4, name).write_bytes(one)
    far, further = Far("pc1"), Far("pc2")
    names = {cast(RemoteHost, far): ["c000.state", "c001.state"], cast(RemoteHost, further): []}
    handover = Handover(tmp_path / "kept", 4, names)
    (tmp_path / "logs" / "resumed-from" / "000004").mkdir(parents=True)
    (tmp_path / "logs" / "resumed-from" / "000004" / "c000.state").write_bytes(b"of a host that was killed")
    there = HandedOver(tmp_path / "logs")
    for number in range(4):
        assert not handover.is_done and len(far.said) == number + 1
        there.take(far.said[-1])
        handover.hear(cast(RemoteHost, far), {"what": "took"})
    assert handover.is_done and not further.said
    handover.hear(cast(RemoteHost, far), {"what": "took"})
    assert {one.name: one.read_bytes() for one in (there.folder / "000004").iterdir()} == {
        name: content[name] for name in ("c000.state", "c001.state")
    }
    there.forget()
    assert not there.folder.exists()
    with pytest.raises(RunFailed, match="pc1: the connection"):
        handover.hear(cast(RemoteHost, far), {"what": "lost", "reason": "the connection to it has ended"})
