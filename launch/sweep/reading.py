"""What a sweep reads from a finished run: test after the last round or after the one that validation chooses."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pflsim.record.accuracy import Accuracy, Point, headline, latest, models, over_rounds
from pflsim.record.database import Reader
from pflsim.record.result import Result
from pflsim.sweep_file import Against, Report

_WAYS = {"bytes": ("up", "down", "peer"), "bytes_up": ("up",), "bytes_down": ("down",)}
DONE, DIVERGED, FAILED, REFUSED = "done", "diverged", "failed", "refused"


@dataclass(frozen=True)
class Outcome:
    """How a run ended, and what it reached there; of one that did not, why."""

    status: str
    """`done`; `diverged`: an upload or the last loss was not finite; `failed`, or `refused` before it began."""
    reason: str = ""
    model: str = ""
    round: int | None = None
    """The round after which it was read."""
    accuracy: Accuracy | None = None
    summary: Mapping[str, Any] | None = None

    def measured(self, measure: str) -> float | None:
        """The figure that is reported, a fraction of 1; None where there is none."""
        if self.status != DONE or self.accuracy is None:
            return None
        value: float = getattr(self.accuracy, measure)
        return value

    def cost(self, against: Against) -> float | None:
        """Megabytes of payload, or simulated seconds, of the whole run; None where there is no figure."""
        if self.status != DONE or self.summary is None:
            return None
        if against == "simulated_s":
            return float(self.summary["time"]["simulated_s"] or 0)
        return sum(int(self.summary["traffic"][f"payload_bytes_{way}"]) for way in _WAYS[against]) / 1e6


def read_test(folder: Path, model: str | None, report: Report) -> Outcome:
    """The test accuracy of a run, never at its best round."""
    return _read(folder, model, report, "test")


def read_validation(folder: Path, model: str | None, report: Report) -> Outcome:
    """The validation accuracy of a trial; its test accuracy is not looked at."""
    return _read(folder, model, report, "validation")


def _read(folder: Path, model: str | None, report: Report, split: str) -> Outcome:
    result = Result.open(folder)
    with Reader(result.record) as reader:
        known, name = models(reader), model or headline(reader)
        if name is None or name not in known:
            reason = f"evaluates no model {name!r}; there are {', '.join(known)}" if name else "nothing was evaluated"
            return Outcome(FAILED, reason, summary=result.summary)
        if report == "validation":
            chosen = best_point(over_rounds(reader, name, "validation"))
            found = [point for point in over_rounds(reader, name, split) if chosen and point.round == chosen.round]
            accuracy, round_ = (found[0].accuracy, found[0].round) if found else (None, None)
        else:
            points = over_rounds(reader, name, split)
            accuracy, round_ = latest(reader, name, split), points[-1].round if points else None
    if accuracy is None or not accuracy.clients:
        return Outcome(FAILED, f"no client has a {split} sample", name, summary=result.summary)
    reason = _why_it_diverged(result.summary, accuracy)
    return Outcome(DIVERGED if reason else DONE, reason, name, round_, accuracy, result.summary)


def best_point(points: Sequence[Point]) -> Point | None:
    """The first of those with the best weighted accuracy."""
    counted = [point for point in points if point.accuracy.clients]
    return max(counted, key=lambda point: (point.accuracy.weighted, -point.round), default=None)


def _why_it_diverged(summary: Mapping[str, Any], accuracy: Accuracy) -> str:
    rejected = summary.get("rejected_uploads", 0)
    if rejected:
        return f"{rejected} uploads were not finite"
    return "" if math.isfinite(accuracy.loss) else "the last loss is not finite"
