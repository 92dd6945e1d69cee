"""A comparison as text for a terminal, and as Markdown, LaTeX and CSV."""

import csv
import io
import math
from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from launch.compare.comparing import Comparison, Line, seed_in_words
from launch.sweep.figures import NOTHING
from launch.sweep.files import latex_row, markdown_row
from pflsim.record.durations import duration
from pflsim.record.report import three_digits
from pflsim.statistics import ENOUGH, LEAST_FOR_RANKS, Censored


def accuracy_head(comparison: Comparison) -> list[str]:
    """The columns of the table of accuracies."""
    ranks = ["p rank"] if any(_has_ranks(line) for line in comparison.lines) else []
    return ["method", "seeds", "accuracy %", "over clients", "worst", "difference [95 %]", "p Holm", *ranks]


def accuracy_row(comparison: Comparison, line: Line) -> list[str]:
    """One method: mean ± standard deviation over seeds, then over clients, the worst tenth, and the difference."""
    every, mean, std = (line.over_seeds(what) for what in ("weighted", "mean", "std"))
    found = line.difference
    ranks = [_p(found.rank_p_value if found else None)] if "p rank" in accuracy_head(comparison) else []
    return [
        line.label,
        str(every.n),
        _with_spread(every.mean, every.std),
        f"{mean.mean:.1f} ± {std.mean:.1f}",
        f"{line.over_seeds('worst_decile').mean:.1f}",
        difference_in_words(line),
        _p(line.holm_p),
        *ranks,
    ]


def difference_in_words(line: Line) -> str:
    """`+1.60 [+0.9, +2.3]`, in points."""
    if line.is_baseline:
        return "baseline"
    if line.difference is None:
        return NOTHING
    found = line.difference
    interval = "" if math.isnan(found.low) else f" [{found.low:+.2f}, {found.high:+.2f}]"
    return f"{found.mean:+.2f}{interval}"


def cost_head(comparison: Comparison) -> list[str]:
    """The columns of the table of costs."""
    reached = ["reached", "rounds", "time", "MB"] if comparison.target is not None else []
    return ["method", "MB in all", "time in all", *reached]


def cost_row(comparison: Comparison, line: Line) -> list[str]:
    """One method: what its runs cost on average, and the median of what they needed to the target."""
    runs = list(line.by_seed.values())
    whole_mb = math.fsum(run.payload_bytes for run in runs) / len(runs) / 1e6
    whole_s = math.fsum(run.simulated_s for run in runs) / len(runs)
    cells = [line.label, three_digits(whole_mb), _seconds(whole_s)]
    if comparison.target is None:
        return cells
    rounds, seconds, sent = (line.needed(what) for what in ("round", "simulated_s", "payload_bytes"))
    long = NOTHING if seconds.median is None else _seconds(seconds.median)
    return [*cells, f"{rounds} seeds", _median(rounds, 1), long, _median(sent, 1e6)]


def remarks(comparison: Comparison) -> list[str]:
    """How to read it, and what to be careful about."""
    said = ["accuracy: of all test samples, mean ± standard deviation (n - 1) over seeds"]
    said.append("over clients: mean ± standard deviation of the clients' own, and the worst tenth; mean over seeds")
    said.append("MB: payload that the method sent, in all directions; time is simulated")
    if any(line.difference for line in comparison.lines):
        said.append(
            f"difference from {comparison.baseline} in points, paired over common seeds with equal "
            "partitions, with its 95 % t interval; bold: 0 lies outside, and p, adjusted by Holm for the "
            "methods of a column, is below 0.05"
        )
        fewest = min(line.difference.n for line in comparison.lines if line.difference)
        if fewest < ENOUGH:
            seeds = "1 common seed gives no interval" if fewest == 1 else f"{fewest} common seeds are few"
            said.append(f"warning: {seeds}; with fewer than {ENOUGH} it says little")
        if fewest < LEAST_FOR_RANKS:
            said.append(f"no rank test: under {LEAST_FOR_RANKS} seeds it cannot give less than 0.05")
    if comparison.target is not None:
        said.append(
            f"to {comparison.target:g}: the first of 3 evaluations in a row that are at it; median over seeds, of "
            f"which those that never got there count as longer than all ({NOTHING}: half of them or more)"
        )
    return [*said, *comparison.remarks]


def print_text(comparison: Comparison, console: Console) -> None:
    """Two tables a column, as wide as the console."""
    for column in comparison.columns:
        lines = comparison.of(column)
        for head, rows in (
            (accuracy_head(comparison), [accuracy_row(comparison, line) for line in lines]),
            (cost_head(comparison), [cost_row(comparison, line) for line in lines]),
        ):
            table = Table(
                title=column or None, title_justify="left", title_style="bold", box=None, padding=(0, 1, 0, 0)
            )
            for name in head:
                table.add_column(name, justify="left" if name == "method" else "right", no_wrap=name != "method")
            for line, row in zip(lines, rows, strict=True):
                table.add_row(*(Text(cell, style="bold" if line.differs else "") for cell in row))
            console.print(table)
            console.print()


def markdown(comparison: Comparison) -> str:
    """The same as Markdown."""
    parts = []
    for column in comparison.columns:
        lines = comparison.of(column)
        parts += [f"## {column}", ""] if column else []
        accuracies = [_emphasised(line, accuracy_row(comparison, line), "**{}**") for line in lines]
        costs = [cost_row(comparison, line) for line in lines]
        for head, rows in ((accuracy_head(comparison), accuracies), (cost_head(comparison), costs)):
            parts += [markdown_row(head), markdown_row(["---"] + ["---:"] * (len(head) - 1)), *map(markdown_row, rows)]
            parts.append("")
    return "\n".join([*parts, *(f"- {said}" for said in remarks(comparison))]) + "\n"


def latex(comparison: Comparison) -> str:
    """Two `tabular`s for each column: accuracies, and costs."""
    parts = [f"% {said}" for said in remarks(comparison)]
    for column in comparison.columns:
        lines = comparison.of(column)
        rows = [(line, accuracy_row(comparison, line)) for line in lines]
        accuracies = [
            latex_row(row, bold=row.index(difference_in_words(line)) if line.differs else None) for line, row in rows
        ]
        parts += [f"% {column}"] if column else []
        parts += _tabular(accuracy_head(comparison), accuracies)
        parts += _tabular(cost_head(comparison), [latex_row(cost_row(comparison, line)) for line in lines])
    return "\n".join(parts) + "\n"


def _tabular(head: Sequence[str], rows: Sequence[str]) -> list[str]:
    ruled = [f"\\begin{{tabular}}{{l{'r' * (len(head) - 1)}}}", "\\hline", latex_row(head), "\\hline"]
    return [*ruled, *rows, "\\hline", "\\end{tabular}"]


def as_csv(comparison: Comparison) -> str:
    """One row per method and column, numbers as they are: per cent, bytes and simulated seconds."""
    return _csv([_line_as_numbers(comparison, line) for line in comparison.lines])


def _line_as_numbers(comparison: Comparison, line: Line) -> dict[str, object]:
    every, found, runs = line.over_seeds("weighted"), line.difference, list(line.by_seed.values())
    compared = ("n", "mean", "low", "high", "p_value", "rank_p_value")
    needed = {what: line.needed(what) for what in ("round", "simulated_s", "payload_bytes")}
    return {
        "column": line.column,
        "method": line.label,
        "seeds": every.n,
        "accuracy": every.mean,
        "std_over_seeds": every.std,
        "mean_over_clients": line.over_seeds("mean").mean,
        "std_over_clients": line.over_seeds("std").mean,
        "worst_decile": line.over_seeds("worst_decile").mean,
        "baseline": comparison.baseline,
        **{f"difference_{name}": getattr(found, name) if found else None for name in compared},
        "p_holm": line.holm_p,
        "differs": line.differs,
        "payload_bytes": math.fsum(run.payload_bytes for run in runs) / len(runs),
        "simulated_s": math.fsum(run.simulated_s for run in runs) / len(runs),
        "target": comparison.target,
        "seeds_that_reached_it": needed["round"].reached if comparison.target is not None else None,
        **{f"median_{what}_to_target": one.median for what, one in needed.items()},
    }


def seeds_as_csv(comparison: Comparison) -> str:
    """One row per run."""
    return _csv(
        [
            {
                "column": line.column,
                "method": line.label,
                "seed": seed_in_words(seed).split(" ")[1],
                "accuracy": 100 * run.accuracy.weighted,
                "mean_over_clients": 100 * run.accuracy.mean,
                "std_over_clients": 100 * run.accuracy.std,
                "worst_decile": 100 * run.accuracy.worst_decile,
                "payload_bytes": run.payload_bytes,
                "simulated_s": run.simulated_s,
                "partition": run.partition,
            }
            for line in comparison.lines
            for seed, run in line.by_seed.items()
        ]
    )


def _csv(rows: Sequence[Mapping[str, object]]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]))
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _has_ranks(line: Line) -> bool:
    return line.difference is not None and line.difference.rank_p_value is not None


def _with_spread(mean: float, std: float) -> str:
    return f"{mean:.2f}" if math.isnan(std) else f"{mean:.2f} ± {std:.2f}"


def _p(value: float | None) -> str:
    if value is None or math.isnan(value):
        return ""
    return "<0.001" if value < 0.001 else f"{value:.3f}"


def _seconds(simulated_s: float) -> str:
    return duration(round(simulated_s * 1e9))


def _median(found: Censored, unit: float) -> str:
    return NOTHING if found.median is None else three_digits(found.median / unit)


def _emphasised(line: Line, row: Sequence[str], how: str) -> list[str]:
    told = difference_in_words(line)
    return [how.format(cell) if line.differs and cell == told else cell for cell in row]
