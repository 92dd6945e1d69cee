"""`pflsim check`: validates a description as far as can be without starting a client, and prints the plan."""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import tomli_w
from rich.markup import escape
from rich.table import Table

from launch import screen
from launch.placement import assignments, start_method
from pflsim.record.report import three_digits
from pflsim.spec import Description, validate

if TYPE_CHECKING:
    from pflsim.federation import Tensors
    from pflsim.study import Study

FORKED_BYTES, SPAWNED_BYTES = 15_000_000, 150_000_000
"""Memory that a process adds, measured: forked from a warm host, and from a fresh interpreter."""


def check_all(tables: Mapping[str, Any]) -> None:
    """Print what would run, for the description's own method and for each beside it. Raises DescriptionError."""
    description = validate(tables)
    console = screen.console()
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
    facts, cohort = plan["facts"], _working(study, plan["cohort"])
    clients = len(assignments(description))
    memory_gb = _memory_bytes(description, study) / 1e9
    up_bytes = sum(tensor.numel() * tensor.element_size() for tensor in _first_answer(study).values())
    table = Table(title=facts["algorithm"], title_justify="left", title_style="bold", box=None, show_header=False)
    table.add_row("data", f"{facts['dataset']}: {facts['partition']['report']}")
    table.add_row("model", f"{facts['model']}, {facts['parameters']:,} parameters")
    table.add_row("processes", f"{clients + 2}: host, server, {clients} of clients ({start_method(description)})")
    table.add_row("memory", f"about {memory_gb:.1f} GB")
    table.add_row("per round", f"{cohort} clients, {_megabytes(plan['down_bytes'], cohort)} down")
    table.add_row("", f"{cohort} clients, {_megabytes(up_bytes, cohort)} up")
    for warning in plan["warnings"]:
        table.add_row("warning", escape(warning))
    return table


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


def _memory_bytes(description: Description, study: "Study") -> int:
    """The data once, and what each process needs: its own pages, and about six vectors per client that it runs."""
    processes = len(assignments(description)) + 2
    own = FORKED_BYTES if start_method(description) == "fork" else SPAWNED_BYTES + study.data.x.nbytes
    vectors = 6 * 4 * study.network.layout.dimension * (len(study.names) + len(study.names))
    return int(SPAWNED_BYTES + study.data.x.nbytes + processes * own + vectors)
