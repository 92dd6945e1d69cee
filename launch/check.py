"""`pflsim check`: validates a description as far as can be without starting a client, and prints the plan."""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import tomli_w
from rich.markup import escape
from rich.table import Table

from launch.placement import FORKED_BYTES, SPAWNED_BYTES, assignments, start_method
from launch.show import Screen
from launch.tables import graph_in_words
from pflsim.record.report import three_digits
from pflsim.spec import Description, validate

if TYPE_CHECKING:
    from pflsim.coding.direction import Direction
    from pflsim.federation import Tensors
    from pflsim.study import Study


def check_all(tables: Mapping[str, Any]) -> None:
    """Print what would run, for the description's own method and for each beside it. Raises DescriptionError."""
    description = validate(tables)
    console = Screen()
    methods = [*description.beside, description.algorithm]
    plans = [_plan(description.model_copy(update={"algorithm": method, "beside": ()})) for method in methods]
    for plan in plans:
        console.print(plan)
        console.print()
    from pflsim.effective import effective

    console.print("effective settings", style="bold")
    settings = {key: value for key, value in effective(description).items() if value not in ({}, [])}
    console.print(tomli_w.dumps(settings), markup=False, soft_wrap=True)


def _plan(description: Description) -> Table:
    from pflsim.study import Study

    study = Study(description, b"check")
    plan = study.plan()
    facts = plan["facts"]
    clients = len(assignments(description))
    memory_gb = memory_bytes(description, study) / 1e9
    table = Table(title=facts["algorithm"], title_justify="left", title_style="bold", box=None, show_header=False)
    table.add_row("data", f"{facts['dataset']}: {facts['partition']['report']}")
    if study.federation.topology is not None:
        table.add_row("graph", graph_in_words(study.federation.topology.facts()))
    table.add_row("model", f"{facts['model']}, {facts['parameters']:,} parameters")
    others = f"{clients} of {'peers' if study.is_for_peers else 'clients'} ({start_method(description)})"
    table.add_row("processes", f"{clients + 2}: host, {study.hub}, {others}")
    table.add_row("memory", f"about {memory_gb:.1f} GB")
    for number, line in enumerate(_models_among_peers(study) if study.is_for_peers else _both_ways(study, plan)):
        table.add_row("" if number else "per round", line)
    for warning in plan["warnings"]:
        table.add_row("warning", escape(warning))
    return table


def _both_ways(study: "Study", plan: Mapping[str, Any]) -> list[str]:
    cohort = _working(study, plan["cohort"])
    asked = len(study.cohorts.asked_first(0, study.federation.clients) or ())
    first = f"{asked} clients asked for a loss, {_megabytes(plan['down_bytes'], asked)} down"
    return [
        *([first] if asked else []),
        f"{cohort} clients, {_megabytes(plan['down_bytes'], cohort)} down",
        f"{cohort} clients, {_megabytes(sum(study.frame_bytes('up', _first_answer(study))), cohort)} up",
    ]


def _models_among_peers(study: "Study") -> list[str]:
    """What all peers send in their first rounds."""
    peers = range(len(study.names))
    sent = [study.models_sent(peer, 0) for peer in peers]
    model_bytes = sum(study.frame_bytes("peer", study.method.peer_shows(study.method.client_init(study.client(0)))))
    each = f"{min(sent)}" if min(sent) == max(sent) else f"{min(sent)} to {max(sent)}"
    return [f"{sum(sent)} models, {each} of each peer, {_megabytes(model_bytes, sum(sent))} between peers"]


def _working(study: "Study", asked: int) -> int:
    """How many clients work in a round: those that the schedule asks, unless the method lets others work."""
    if not hasattr(study.method, "participants"):
        return asked
    return len(study.participants(study.method.server_init(study.federation), study.round(0)))


def _megabytes(payload_bytes: int, cohort: int) -> str:
    return f"{payload_bytes:,} bytes each = {three_digits(payload_bytes * cohort / 1e6)} MB"


def _first_answer(study: "Study") -> "Tensors":
    """What the first client of the first round would send up; it takes one local step, as the size needs no more."""
    this = study.round(0)
    client = study.participants(study.method.server_init(study.federation), this)[0]
    one_step = replace(study.training, local_steps=1, local_epochs=None)
    task = replace(study.task(client, 0, 0), training=one_step)
    down = study.method.server_down(study.method.server_init(study.federation), client, this)
    up: Tensors = study.method.client_step(study.method.client_init(study.client(client)), down, task)[1]
    return up


def memory_bytes(description: Description, study: "Study") -> int:
    """The data once, and what each process needs: its own pages, and about six vectors per client that it runs.

    A peer has two more per neighbour: the newest model of each, and one that is early. Codecs keep what they refer to.
    """
    processes = len(assignments(description)) + 2
    own = FORKED_BYTES if start_method(description) == "fork" else SPAWNED_BYTES + study.data.x.nbytes
    largest = max(network.layout.dimension for network in study.networks)
    kept = 12 * len(study.names)
    if study.is_for_peers:
        kept += 2 * sum(len(study.linked(peer)) for peer in range(len(study.names)))
        kept += (
            2 * _is_set(study.codecs.peer, "delta") * sum(len(study.linked(peer)) for peer in range(len(study.names)))
        )
    kept += len(study.names) * (_is_set(study.codecs.up, "error_feedback") + 3 * _is_set(study.codecs.down, "delta"))
    vectors = 4 * largest * kept
    return int(SPAWNED_BYTES + study.data.x.nbytes + processes * own + vectors)


def _is_set(direction: "Direction | None", what: str) -> int:
    return int(direction is not None and getattr(direction, what))
