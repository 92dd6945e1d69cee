"""The summary of a run, made from its record, and the table that compares several."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pflsim.record.accuracy import headline, latest, models, over_rounds
from pflsim.record.database import Reader
from pflsim.record.history import History, is_among_peers
from pflsim.record.ledger import balance, compression
from pflsim.record.waiting import WaitedFor, most_waited_for, most_waited_for_by_peers

if TYPE_CHECKING:
    from rich.table import Table

# What a record cannot know: the launcher passes it in, and this is the order in which it appears.
RUN_FACTS = ("status", "algorithm", "dataset", "model", "clients", "rounds", "seed", "mode")
MEASURED = ("time", "memory", "digest", "trace_digest")


def summarise(reader: Reader, run: Mapping[str, Any]) -> dict[str, Any]:
    """The content of `summary.json`; `run` holds `RUN_FACTS` and `MEASURED`, other keys are kept.

    A missing one becomes null, as does every number that is not finite.
    """
    summary = {name: run.get(name) for name in RUN_FACTS}
    summary["accuracy"] = _accuracy(reader)
    summary["time"] = run.get("time")
    summary["traffic"] = balance(reader).traffic()
    if compressed := compression(reader):
        summary["compression"] = compressed
    waited_for = _waited_for_most(reader, run)
    summary["waited_for"] = asdict(waited_for) if waited_for else None
    if is_among_peers(reader):
        summary["consensus"] = _consensus(reader)
    summary |= {name: run.get(name) for name in MEASURED}
    summary |= {name: value for name, value in run.items() if name not in summary}
    summary["warnings"] = [*(run.get("warnings") or []), *_overruns(reader)]
    finite: dict[str, Any] = _finite(summary)
    return finite


def _waited_for_most(reader: Reader, run: Mapping[str, Any]) -> WaitedFor | None:
    if is_among_peers(reader):
        return most_waited_for_by_peers(History.read(reader), run.get("mode") != "wall")
    return most_waited_for(reader)


def _consensus(reader: Reader) -> dict[str, Any] | None:
    """How far the peers' models are from each other at the end."""
    from pflsim.record.consensus import last_consensus  # here, as it imports numpy

    found = last_consensus(reader)
    return found._asdict() if found else None


def _overruns(reader: Reader) -> list[str]:
    """What is to be said of real work that took longer than its model, which only the wall clock lets happen."""
    select = (
        "SELECT actor, COUNT(*), SUM(value) FROM measures WHERE name = 'overrun_s' "
        "GROUP BY actor ORDER BY SUM(value) DESC, actor"
    )
    found = reader.query(select)
    if not found:
        return []
    pieces, total_s = sum(count for _, count, _ in found), sum(over_s for _, _, over_s in found)
    worst, _, worst_s = found[0]
    told = f"{pieces} pieces of work really took longer than modelled, by {three_digits(total_s)} s in all"
    return [f"{told} (most at {worst}, {three_digits(worst_s)} s): their simulated times are this host's"]


def write_summary(path: Path | str, summary: Mapping[str, Any]) -> None:
    """Write `summary.json`, whole or not at all."""
    target = Path(path)
    unfinished = target.with_name(f"{target.name}.unfinished")
    text = json.dumps(summary, indent=2, allow_nan=False, ensure_ascii=False)
    try:
        unfinished.write_text(text + "\n", encoding="utf-8")
        unfinished.replace(target)
    except OSError:
        unfinished.unlink(missing_ok=True)
        raise


def _accuracy(reader: Reader) -> dict[str, Any]:
    """Of each client's last evaluation, never of the best one on test; what validation chose stands beside it."""
    model = headline(reader)
    if model is None:
        return dict.fromkeys(_ACCURACY_KEYS)
    points, last = over_rounds(reader, model), latest(reader, model)
    chosen = _validation_chosen(reader, model)
    chosen_test = [point.accuracy.weighted for point in points if point.round == chosen]
    others = {name: latest(reader, name).weighted for name in models(reader)}
    values = (
        last.weighted,
        last.mean,
        last.std,
        last.worst_decile,
        last.binomial_error,
        chosen_test[0] if chosen_test else None,
        chosen,
        others.get("global"),
        last.loss,
        model,
        points[-1].round if points else None,
        last.clients,
        last.clients_without_samples,
        {name: weighted for name, weighted in others.items() if name != model},
    )
    return dict(zip(_ACCURACY_KEYS, values, strict=True))


_ACCURACY_KEYS = (
    "weighted",
    "mean",
    "std",
    "worst_decile",
    "binomial_error",
    "validation_chosen_weighted",
    "validation_chosen_round",
    "global_weighted",
    "loss",
    "headline",
    "round",
    "clients",
    "clients_without_samples",
    "models",
)


def _validation_chosen(reader: Reader, model: str) -> int | None:
    """The round with the best weighted validation accuracy, the first of equals; None without validation."""
    points = [point for point in over_rounds(reader, model, "validation") if point.accuracy.clients]
    return max(points, key=lambda point: (point.accuracy.weighted, -point.round)).round if points else None


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {name: _finite(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(one) for one in value]
    return value


def comparison_table(summaries: Sequence[Mapping[str, Any]], width: int = 80) -> "Table":
    """One row per run: accuracy in %, simulated and measured seconds, traffic, and who was waited for.

    It fits 80 columns; a `width` of 120 or more gives it room for headings on one line. To what is not a
    terminal, rich prints it without colour.
    """
    from rich import box
    from rich.table import Table

    roomy = width >= 120
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1 if roomy else 0), show_edge=False)
    for position, (heading, short) in enumerate(_HEADINGS):
        table.add_column(
            heading if roomy else short,
            justify="left" if position == 0 else "right",
            style="bold" if position < 2 else "",
            no_wrap=position > 0,
            overflow="fold",
        )
    for summary in summaries:
        table.add_row(*_row(summary))
    return table


def comparison_rows(summaries: Sequence[Mapping[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """The headings and the rows of that table, for whatever else shows it."""
    return [heading for heading, _ in _HEADINGS], [_row(summary) for summary in summaries]


_HEADINGS = (
    ("algorithm", "method"),
    ("accuracy, %", "accuracy\n%"),
    ("mean ± std", "mean ± std"),
    ("worst decile", "worst\ndecile"),
    ("simulated s", "simu-\nlated s"),
    ("wall s", "wall\ns"),
    ("MB up", "MB\nup"),
    ("MB down", "MB\ndown"),
    ("messages", "mess-\nages"),
    ("waited for", "waited\nfor"),
)


def _row(summary: Mapping[str, Any]) -> list[str]:
    accuracy, time, traffic = (summary.get(part) or {} for part in ("accuracy", "time", "traffic"))
    status = summary.get("status", _DONE)
    return [
        str(summary["algorithm"]).split(":")[-1] + ("" if status == _DONE else f" ({status})"),
        _percent_with(accuracy.get("weighted"), accuracy.get("binomial_error"), 3),
        _percent_with(accuracy.get("mean"), accuracy.get("std"), 4),
        _percent(accuracy.get("worst_decile")),
        three_digits(time.get("simulated_s")),
        three_digits(time.get("wall_s")),
        *_both_ways(traffic),
        str(traffic.get("messages", _NOTHING)),
        _waited_for(summary.get("waited_for") or {}),
    ]


def _both_ways(traffic: Mapping[str, Any]) -> tuple[str, str]:
    """What went to the server and from it; between peers what all of them sent, and what was sent to them."""
    peer = traffic.get("payload_bytes_peer")
    up, down = (peer, peer) if peer else (traffic.get("payload_bytes_up"), traffic.get("payload_bytes_down"))
    return _megabytes(up), _megabytes(down)


def _waited_for(found: Mapping[str, Any]) -> str:
    """The client's name, and how many others were as late."""
    name, others = str(found.get("actor", _NOTHING)), found.get("others_as_late", 0)
    return f"{name} +{others}" if others else name


_DONE = "done"
_NOTHING = "–"


def _percent(fraction: float | None) -> str:
    return _NOTHING if fraction is None else f"{100 * fraction:.1f}"


def _percent_with(fraction: float | None, spread: float | None, spread_width: int) -> str:
    # The spread is padded, so that the points stand below each other.
    return _NOTHING if fraction is None else f"{_percent(fraction)} ± {_percent(spread):>{spread_width}}"


def _megabytes(count: int | None) -> str:
    return three_digits(None if count is None else count / 1e6)


def three_digits(value: float | None) -> str:
    """A number with three digits or all that stand before its point: 0.12, 1.23, 12.3, 123, 1234."""
    if value is None:
        return _NOTHING
    return "0" if value == 0 else f"{value:.{2 if abs(value) < 9.995 else 1 if abs(value) < 99.95 else 0}f}"
