"""The folder that a run left, opened for those who explain, verify or retime it."""

from functools import cached_property
from pathlib import Path

from pflsim.errors import DescriptionError, TooEarly
from pflsim.record import timeline
from pflsim.record.classes import classes_of
from pflsim.record.critical_path import CriticalPath, critical_paths
from pflsim.record.database import Reader
from pflsim.record.history import SERVER, History
from pflsim.record.participation import save_participation_plot
from pflsim.record.timeline import Window, window_of
from pflsim.record.trace import write_trace
from pflsim.spec import Description, client_names, read, validate
from pflsim.timing.clock import NANOSECONDS
from pflsim.timing.devices import Devices
from pflsim.timing.links import Links

FIRST_ROUNDS = 3
"""So many does the timeline show if nobody says more."""
LAST_S = 1e9


class FinishedRun:
    """A run's folder, opened: its description and its record."""

    def __init__(self, directory: Path) -> None:
        """Raises DescriptionError for a folder in which no run has left what this needs."""
        for name in ("run.toml", "record.db"):
            if not (directory / name).exists():
                raise DescriptionError("DIR", str(directory), f"has no {name}: name the results folder of a run")
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

    @property
    def schedule(self) -> str:
        """Its kind."""
        return self.description.schedule.kind

    def paths(self) -> list[CriticalPath]:
        """The critical path of each round; without spans nobody can tell computing from waiting."""
        if not self.history.rounds:
            raise TooEarly(f"no round has ended yet in {self.directory}")
        if not self.history.spans:
            raise DescriptionError("record.spans", False, "the run kept no spans, so its time cannot be explained")
        return critical_paths(self.history, self.schedule, self.links)

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


def save_pictures(directory: Path, number: int | None, seconds: str | None) -> list[Path]:
    """Draw the timeline (of some `seconds`, "1.5:3", a round, or the first rounds), the waiting, and who took part."""
    run = FinishedRun(directory)
    paths = run.paths()
    first, last = (1, FIRST_ROUNDS) if number is None else (number, number)
    window = window_of(run.history.rounds, first, last) if seconds is None else _window(seconds)
    label = run.description.algorithm.name
    drawn = timeline.save_pictures(run.history, paths, window, directory, label)
    return [*drawn, *save_participation_plot({label: directory / "record.db"}, directory / "participation")]


def _window(seconds: str) -> Window:
    try:
        start_s, end_s = map(float, seconds.split(":"))
        if 0 <= start_s < end_s < LAST_S:
            return round(start_s * NANOSECONDS), round(end_s * NANOSECONDS)
    except ValueError:
        pass
    raise DescriptionError("--window", seconds, "must be FROM:TO in simulated seconds, such as 1.5:3")
