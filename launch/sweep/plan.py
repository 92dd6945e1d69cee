"""Which runs a sweep needs: the trials of each cell, and, once these have chosen its settings, the reported ones."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from launch.sweep.cache import Cache
from launch.sweep.reading import FAILED, Outcome, read_test, read_validation
from launch.sweep.tuning import Choice, Trial, choose
from pflsim.spec import Description
from pflsim.sweep import Cell, Sweep, in_words
from pflsim.sweep_file import Settings

Purpose = Literal["trial", "reported"]


@dataclass(frozen=True)
class Planned:
    """One run that a cell needs."""

    cell: Cell
    purpose: Purpose
    seed: int
    settings: Settings
    description: Description
    key: str
    fold: int = 0
    """Which of the splits of the training parts a trial has, from 0."""

    @property
    def label(self) -> str:
        """For progress and failures."""
        tried = f", trial of {in_words(self.settings)}" if self.purpose == "trial" else ""
        fold = f", fold {self.fold + 1}" if self.description.data.settings.get("validation_part") is not None else ""
        return f"{self.cell.name}{tried}, seed {self.seed}{fold if tried else ''}"


class Plan:
    """The runs of a sweep, and what is known of them."""

    def __init__(self, sweep: Sweep, cache: Cache) -> None:
        self.sweep, self._cache = sweep, cache
        self.failed: dict[str, Outcome] = {}
        """Those that were run by this call and did not end well, by key."""
        self._trials: dict[tuple[str, str], list[Planned]] = {}
        self._reported: dict[tuple[str, str], list[Planned]] = {}
        self._read: dict[tuple[str, str | None, Purpose], Outcome] = {}

    def trials(self, cell: Cell) -> list[Planned]:
        """The runs by which a cell is tuned."""
        if cell.at not in self._trials:
            tuning = self.sweep.file.tuning
            self._trials[cell.at] = [
                self._planned(cell, "trial", seed, settings, cell.trial(seed, settings, split), fold)
                for settings in cell.trials
                for seed in tuning.seeds
                for fold, split in enumerate(tuning.splits)
            ]
        return self._trials[cell.at]

    def reported(self, cell: Cell) -> list[Planned] | None:
        """The runs whose figures stand in the table; None as long as the trials have not chosen their settings.

        They are none where no trial came to an end.
        """
        if cell.at not in self._reported:
            if not self._is_tuned(cell):
                return None
            choice = self.choice(cell)
            settings = choice.trial.settings if choice else {}
            seeds = self.sweep.seeds if choice or not cell.trials else ()
            self._reported[cell.at] = [
                self._planned(cell, "reported", seed, settings, cell.described(seed, settings)) for seed in seeds
            ]
        return self._reported[cell.at]

    def missing(self, cell: Cell) -> list[Planned]:
        """The runs that a cell needs next."""
        runs = self.trials(cell)
        if self._is_tuned(cell):
            runs = self.reported(cell) or []
        return [run for run in runs if self.outcome(run) is None]

    def outcome(self, run: Planned) -> Outcome | None:
        """What came of a run; None if it is not there yet."""
        if run.key in self.failed:
            return self.failed[run.key]
        asked = (run.key, run.cell.row.model, run.purpose)
        if asked not in self._read:
            if not self._cache.holds(run.key):
                return None
            read = read_validation if run.purpose == "trial" else read_test
            self._read[asked] = read(self._cache.place(run.key), run.cell.row.model, self.sweep.file.sweep.report)
        return self._read[asked]

    def folders(self, cell: Cell) -> dict[int, Path]:
        """The results of a cell's reported runs that ended, by seed."""
        runs = self.reported(cell) or []
        return {run.seed: self._cache.place(run.key) for run in runs if self._cache.holds(run.key)}

    def tried(self, cell: Cell) -> list[Trial]:
        """The trials of a cell with what came of them by now."""
        outcomes: dict[str, tuple[Settings, dict[tuple[int, int], Outcome]]] = {}
        for run in self.trials(cell):
            _, each = outcomes.setdefault(repr(run.settings), (run.settings, {}))
            found = self.outcome(run)
            each[run.seed, run.fold] = found if found is not None else Outcome(FAILED, "was not run")
        return [Trial(settings, each, self.sweep.file.sweep.measure) for settings, each in outcomes.values()]

    def choice(self, cell: Cell) -> Choice | None:
        """What the trials of a cell have chosen, when all of them have ended."""
        return choose(self.tried(cell)) if cell.trials and self._is_tuned(cell) else None

    def remaining(self, cells: Sequence[Cell]) -> int:
        """How many runs are still to be made, as far as that is known: runs that cells share count once."""
        keys, unknown = set(), 0
        for cell in cells:
            known = [*self.trials(cell), *(self.reported(cell) or ())]
            keys |= {run.key for run in known if self.outcome(run) is None}
            unknown += len(self.sweep.seeds) if self.reported(cell) is None else 0
        return len(keys) + unknown

    def _is_tuned(self, cell: Cell) -> bool:
        return all(self.outcome(run) is not None for run in self.trials(cell))

    def _planned(
        self, cell: Cell, purpose: Purpose, seed: int, settings: Settings, description: Description, fold: int = 0
    ) -> Planned:
        return Planned(
            cell, purpose, seed, settings, packed(description, cell.tables), self._cache.key_of(description), fold
        )


def packed(description: Description, tables: Mapping[str, object]) -> Description:
    """With all clients in one process, unless the tables say how many share one.

    The results are the same, and side by side runs use the cores better than processes of one run that take turns.
    """
    run = tables.get("run")
    if (isinstance(run, Mapping) and "clients_per_process" in run) or description.time.mode == "wall":
        return description
    one = description.run.model_copy(update={"clients_per_process": description.run.clients})
    return description.model_copy(update={"run": one})
