"""The folder that a run left, opened for those who explain, verify or retime it."""

import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path

import numpy as np

from pflsim import catalogue
from pflsim.errors import DescriptionError, TooEarly
from pflsim.outside import title
from pflsim.record import timeline
from pflsim.record.absence import absences
from pflsim.record.classes import classes_of
from pflsim.record.critical_path import CriticalPath, critical_paths
from pflsim.record.database import Reader
from pflsim.record.history import SERVER, History
from pflsim.record.participation import save_participation_plot
from pflsim.record.snapshot import ending
from pflsim.record.timeline import Window, window_of
from pflsim.record.trace import write_trace
from pflsim.record.waiting import step_paths
from pflsim.spec import Description, client_names, read, validate
from pflsim.timing.clock import NANOSECONDS
from pflsim.timing.devices import Devices
from pflsim.timing.links import Links
from pflsim.topology import Topology

FIRST_ROUNDS = 3
"""So many does the timeline show if nobody says more."""
LAST_S = 1e9
DONE = "done"


class FinishedRun:
    """A run's folder, opened: its description and its record."""

    def __init__(self, directory: Path) -> None:
        """Raises DescriptionError for a folder in which no run has left what this needs."""
        for name in ("run.toml", "record.db"):
            if not (directory / name).exists():
                known = "this run ended before it began" if (directory / "logs").is_dir() else "is it that of a run?"
                raise DescriptionError("DIR", str(directory), f"has no {name}; {known}")
        self.directory = directory
        self.description: Description = validate(read(directory / "run.toml"))
        run = self.description.run
        self.names = client_names(run.clients)
        self.links = Links(self.description.links, (SERVER, *self.names), run.seed.train)
        self.reader = Reader(directory / "record.db")

    @cached_property
    def history(self) -> History:
        """Who did what when."""
        return History.read(self.reader)

    @cached_property
    def away(self) -> dict[str, list[tuple[int, int]]]:
        """When each client was away by its description; nothing if that needs a file which is gone."""
        asked = self.description
        try:
            return absences(asked.availability, asked.fault, self.names, asked.run.seed.train, self.history.end_ns)
        except DescriptionError:
            return {}

    @cached_property
    def ended(self) -> str:
        """How it ended: "done", "failed" or "interrupted"; "" if it goes on, or if its launcher was killed."""
        return ending(self.reader)

    @cached_property
    def lost(self) -> list[str]:
        """Who was lost on the way, in a run that went on without them."""
        return [name for (name,) in self.reader.query("SELECT DISTINCT actor FROM events WHERE what = 'lost'")]

    @property
    def is_whole(self) -> bool:
        """Whether everybody has told everything."""
        return self.ended == DONE and not self.lost

    @property
    def reservation(self) -> str:
        """What must be said before anything that is told of a run which is not done; "" for one that is."""
        if self.ended == DONE:
            return ""
        died = self.reader.query("SELECT actor, detail FROM events WHERE what = 'died' ORDER BY rowid LIMIT 1")
        why = ""
        if died and self.ended == "failed":
            actor, detail = died[0]
            why = f" ({actor}: {(detail.removeprefix(f'{actor}: ').splitlines() or [''])[0]})"
        how = {"failed": "failed", "interrupted": "was interrupted", "": "goes on, or was killed"}
        return f"this run {how.get(self.ended, self.ended)}{why}: its record has what had been told by then, not all"

    @property
    def schedule(self) -> str:
        """Its kind; of one's own schedule with a deadline, "deadline"."""
        kind = self.description.schedule.kind
        if ":" in kind:
            from pflsim.schedules.deadline import Deadline  # here, as it imports torch

            found = catalogue.find("schedules", kind, "schedule.kind")
            return "deadline" if isinstance(found, type) and issubclass(found, Deadline) else title(kind)
        return kind

    @property
    def is_virtual(self) -> bool:
        """Whether its time was simulated."""
        return self.description.time.mode == "virtual"

    def paths(self) -> list[CriticalPath]:
        """The critical path of each round (of peers: each step), for which spans are needed."""
        if not self.history.spans and not self.description.record.spans:
            raise DescriptionError("record.spans", False, "the run kept no spans, so its time cannot be explained")
        return self._paths

    @cached_property
    def _paths(self) -> list[CriticalPath]:
        if self.history.has_peers:
            return step_paths(self.history, self.links, self.is_virtual)
        return critical_paths(self.history, self.schedule, self.links)

    @cached_property
    def topology(self) -> Topology | None:
        """The graph among its clients, by its description and what it recorded of them; None if there is none."""
        table, run = self.description.topology, self.description.run
        rows = self.reader.rows("clients") if classes_of(self.reader) else []
        if table is None or not rows:
            return None
        labels = tuple(tuple(json.loads(row["labels_json"])) for row in rows)
        sizes = np.array([row["training_samples"] for row in rows])
        try:
            return Topology(table.name, table.settings, labels, sizes, run.seed.data, weights=table.weights)
        except DescriptionError:  # its file is gone
            return None

    def classes(self) -> dict[str, str]:
        """The class of each client's device: as recorded, else as its description says, if that needs no data."""
        recorded = classes_of(self.reader)
        if recorded:
            return recorded
        try:
            devices = Devices(self.description.devices, self.names, self.description.run.seed.train)
        except DescriptionError:  # speeds go with the data, which are not loaded here
            return {}
        return {name: devices.speed_class(name) for name in self.names}


def save_trace(directory: Path) -> Path:
    """Write `trace.json` into the folder of a run; where it lies."""
    run = FinishedRun(directory)
    write_trace(directory / "trace.json", run.history, run.classes())
    return directory / "trace.json"


def save_pictures(directory: Path, number: int | None, seconds: str | None, against: Sequence[Path] = ()) -> list[Path]:
    """Draw the timeline (of some `seconds`, "1.5:3", a round, or the first rounds), the waiting, and who took part.

    Who took part in the runs in `against` is drawn above it, on the same scale. Of peers, all of whom take part, also
    their graph, the bytes on its edges, and the consensus distance.
    """
    run = FinishedRun(directory)
    window = None if seconds is None else _window(seconds)
    if run.history.has_peers:
        from launch.peer_pictures import save_peer_pictures

        return save_peer_pictures(run, number, window)
    paths = run.paths()
    first, last = (1, FIRST_ROUNDS) if number is None else (number, number)
    if window is None and not any(first <= period.round <= last for period in run.history.rounds):
        if not run.history.rounds:
            raise TooEarly(f"no round has ended yet in {directory}")
        raise DescriptionError("--round", number, "no such round has ended, so there is nothing to draw")
    window = window_of(run.history.rounds, first, last) if window is None else window
    label = run.description.algorithm.title
    drawn = timeline.save_pictures(run.history, paths, window, directory, label)
    records = {_took_part(FinishedRun(other)): other / "record.db" for other in against}
    records |= {_took_part(run) if against else label: directory / "record.db"}
    return [*drawn, *save_participation_plot(records, directory / "participation")]


def _took_part(run: FinishedRun) -> str:
    """How runs are told apart that differ in who took part: by folder, method and sampling."""
    sampling = run.description.schedule.settings.get("sampling", run.schedule)
    kind = sampling.get("kind") if isinstance(sampling, Mapping) else sampling
    return f"{run.directory.name}: {run.description.algorithm.title}, {kind}"


def _window(seconds: str) -> Window:
    try:
        start_s, end_s = map(float, seconds.split(":"))
        if 0 <= start_s < end_s < LAST_S:
            return round(start_s * NANOSECONDS), round(end_s * NANOSECONDS)
    except ValueError:
        pass
    raise DescriptionError("--window", seconds, "must be FROM:TO in simulated seconds, such as 1.5:3")
