"""What a run left in its folder, for use from Python."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from pflsim.errors import DescriptionError
from pflsim.record.accuracy import Point, over_rounds
from pflsim.record.database import Reader
from pflsim.record.flat import flat
from pflsim.record.ledger import Ledger, balance

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True)
class Result:
    """A finished run: its summary as read, and its record's tables on request."""

    directory: Path
    summary: dict[str, Any]

    @classmethod
    def open(cls, directory: Path | str) -> Self:
        """The result in `directory`; FileNotFoundError says what is missing there, DescriptionError what is damaged."""
        folder = Path(directory)
        path = folder / "summary.json"
        if not path.exists():
            started = (folder / "record.db").exists()
            reason = "the run has not ended, or failed" if started else "no run was here"
            raise FileNotFoundError(f"there is no {path}: {reason}")
        try:
            summary = json.loads(path.read_text(encoding="utf-8"))
        except ValueError as problem:
            raise DescriptionError("DIR", str(folder), f"has a summary.json that is no JSON: {problem}") from problem
        if not isinstance(summary, dict):
            raise DescriptionError("DIR", str(folder), "has a summary.json that is no table")
        return cls(folder, summary)

    @property
    def record(self) -> Path:
        """The path of the record, for `pflsim.record.database.Reader`."""
        return self.directory / "record.db"

    @property
    def accuracy(self) -> float | None:
        """Weighted test accuracy of the headline model in the last evaluation, as a fraction of 1."""
        return self._accuracy("weighted")

    @property
    def mean_accuracy(self) -> float | None:
        """The plain mean over clients."""
        return self._accuracy("mean")

    @property
    def worst_decile(self) -> float | None:
        """The mean accuracy of the worst tenth of clients."""
        return self._accuracy("worst_decile")

    @property
    def global_accuracy(self) -> float | None:
        """Weighted test accuracy of the model named `global`, where the method has one."""
        return self._accuracy("global_weighted")

    def _accuracy(self, key: str) -> float | None:
        value: float | None = self.summary["accuracy"][key]
        return value

    def rows(self, table: str, **where: object) -> list[dict[str, Any]]:
        """The rows of a table of the record, see `Reader.rows`."""
        with Reader(self.record) as reader:
            return reader.rows(table, **where)

    def arrays(self, table: str) -> dict[str, "np.ndarray[Any, Any]"]:
        """The columns of a table of the record as arrays [rows], see `Reader.arrays`."""
        with Reader(self.record) as reader:
            return reader.arrays(table)

    def frame(self, table: str) -> Any:
        """A table of `pflsim.record.flat.NAMES` as a pandas DataFrame; ImportError without pandas."""
        try:
            import pandas
        except ImportError as problem:
            raise ImportError(
                "Result.frame needs pandas, which is not installed: pip install 'pflsim[pandas]'"
            ) from problem
        with Reader(self.record) as reader:
            found = flat(reader, self.summary, table)
        return pandas.DataFrame(found.rows, columns=list(found.columns))

    def curve(self, model: str | None = None, split: str = "test") -> list[Point]:
        """Accuracy over rounds, simulated seconds and bytes (of the headline model, when none is named)."""
        with Reader(self.record) as reader:
            return over_rounds(reader, model, split)

    def ledger(self) -> Ledger:
        """The byte ledger of both ends."""
        with Reader(self.record) as reader:
            return balance(reader)
