"""What a sweep writes: its table in four forms, its runs and trials one by one, and itself, to be run again."""

import csv
import json
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import tomli_w

from launch.interrupts import uninterrupted
from launch.sweep.cache import Cache
from launch.sweep.figures import (
    COSTS,
    Figure,
    figures,
    how_it_was_made,
    row_name,
    signed,
    trials_in_words,
    warnings_in_words,
    what_went_wrong,
)
from launch.sweep.plan import Plan, Planned
from pflsim.sweep import Sweep

Rows = list[dict[str, Any]]


@uninterrupted()  # a library whose import is cut short stays broken when what is known is written once more
def write_all(plan: Plan, cache: Cache, directory: Path) -> None:
    """Write everything that is known by now into `directory`, each file whole or not at all."""
    table = table_rows(plan)
    _write(directory / "sweep.toml", as_toml(plan.sweep))
    _write(directory / "table.md", markdown(plan))
    _write(directory / "table.tex", latex(plan))
    _write_csv(directory / "table.csv", table)
    _write_csv(directory / "runs.csv", run_rows(plan, cache, directory))
    if any(cell.trials for cell in plan.sweep.cells):
        _write_csv(directory / "trials.csv", trial_rows(plan, cache, directory))
    if find_spec("pyarrow") is not None:
        _write_parquet(directory / "table.parquet", table)


def table_rows(plan: Plan) -> Rows:
    """One row per cell."""
    table = plan.sweep.file.sweep
    return [
        {
            "row": figure.cell.row.name,
            "column": figure.cell.column,
            "mean": figure.mean,
            "std": figure.std,
            "seeds": len(figure.values),
            "of_seeds": len(figure.outcomes),
            "paper": figure.cell.paper,
            "difference": figure.difference,
            "against": table.against or "",
            "cost": figure.mean_cost,
            "status": figure.status,
            "settings": json.dumps(figure.choice.trial.settings) if figure.choice else "",
            "on_edge": ", ".join(figure.choice.edges) if figure.choice else "",
            "measure": table.measure,
            "report": table.report,
            "model": figure.cell.row.model or "",
            "note": figure.cell.row.note,
        }
        for figure in figures(plan).values()
    ]


def run_rows(plan: Plan, cache: Cache, directory: Path) -> Rows:
    """One row per reported run."""
    return [_run_row(plan, cache, run, directory) for cell in plan.sweep.cells for run in plan.reported(cell) or ()]


def trial_rows(plan: Plan, cache: Cache, directory: Path) -> Rows:
    """One row per trial and seed: what it reached on validation data, and whether it was chosen."""
    rows = []
    for cell in plan.sweep.cells:
        choice = plan.choice(cell)
        for run in plan.trials(cell):
            outcome = plan.outcome(run)
            value = outcome.measured(plan.sweep.file.sweep.measure) if outcome else None
            rows.append(
                {
                    "row": cell.row.name,
                    "column": cell.column,
                    "settings": json.dumps(run.settings),
                    "seed": run.seed,
                    "fold": run.fold,
                    "status": outcome.status if outcome else "not run",
                    "reason": outcome.reason if outcome else "",
                    "validation": value,
                    "round": outcome.round if outcome else None,
                    "chosen": bool(choice and choice.trial.settings == run.settings),
                    "folder": _folder(cache, run, directory),
                }
            )
    return rows


def _run_row(plan: Plan, cache: Cache, run: Planned, directory: Path) -> dict[str, Any]:
    outcome = plan.outcome(run)
    accuracy = outcome.accuracy if outcome else None
    summary = outcome.summary if outcome and outcome.summary else {}
    traffic, time = summary.get("traffic") or {}, summary.get("time") or {}
    return {
        "row": run.cell.row.name,
        "column": run.cell.column,
        "seed": run.seed,
        "status": outcome.status if outcome else "not run",
        "reason": outcome.reason if outcome else "",
        "model": outcome.model if outcome else "",
        "round": outcome.round if outcome else None,
        "weighted": accuracy.weighted if accuracy else None,
        "mean": accuracy.mean if accuracy else None,
        "std_over_clients": accuracy.std if accuracy else None,
        "worst_decile": accuracy.worst_decile if accuracy else None,
        "binomial_error": accuracy.binomial_error if accuracy else None,
        "loss": accuracy.loss if accuracy else None,
        "settings": json.dumps(run.settings) if run.settings else "",
        "rounds": summary.get("rounds"),
        **{key: traffic.get(key) for key in ("payload_bytes_up", "payload_bytes_down", "payload_bytes_peer")},
        "header_bytes": traffic.get("header_bytes"),
        **{key: time.get(key) for key in ("simulated_s", "wall_s", "cpu_s")},
        "digest": summary.get("digest"),
        "partition": (summary.get("partition") or {}).get("digest"),
        "of_other_code": cache.holds(run.key) and cache.is_of_other_code(run.key),
        "folder": _folder(cache, run, directory),
    }


def _folder(cache: Cache, run: Planned, directory: Path) -> str:
    """Where a run lies, seen from `directory` if it is inside, so that the whole can be moved."""
    if not cache.holds(run.key):
        return ""
    place, whole = cache.place(run.key).resolve(), directory.resolve()
    return str(place.relative_to(whole) if place.is_relative_to(whole) else place)


def markdown(plan: Plan) -> str:
    """The table, and below it what must be known to read it."""
    head, rows = wide_rows(plan)
    lines = [f"# {plan.sweep.name}", "", markdown_row(head), markdown_row(["---"] + ["---:"] * (len(head) - 1))]
    lines += [markdown_row(row) for row in rows]
    lines += ["", *(f"- {line}" for line in how_it_was_made(plan))]
    wrong = [*what_went_wrong(plan), *warnings_in_words(plan)]
    for title, said in (("Trials, % on validation data (* chosen)", trials_in_words(plan)), ("Warnings", wrong)):
        lines += ["", f"## {title}", "", *(f"- {line}" for line in said)] if said else []
    return "\n".join(lines) + "\n"


def latex(plan: Plan) -> str:
    """The table as a `tabular`; the names and notes are made safe for LaTeX."""
    head, rows = wide_rows(plan)
    lines = [f"\\begin{{tabular}}{{l{'r' * (len(head) - 1)}}}", "\\hline", latex_row(head), "\\hline"]
    lines += [*map(latex_row, rows), "\\hline", "\\end{tabular}"]
    said = [f"% {line}" for line in how_it_was_made(plan)]
    return "\n".join([*said, *lines]) + "\n"


def wide_rows(plan: Plan) -> tuple[list[str], list[list[str]]]:
    """The table's head and its rows: of each column ours, and where there is one the paper's and the difference."""
    found, sweep = figures(plan), plan.sweep
    papers = {column for _, column in found if any(f.cell.paper is not None for f in in_column(found, column))}
    noted = any(row.note for row in sweep.rows)
    head = ["method"]
    against = sweep.file.sweep.against
    for column in sweep.columns:
        head += [column, "paper", "diff."] if column in papers else [column]
        head += [COSTS[against]] if against else []
    rows = []
    for row in sweep.rows:
        cells = [row_name(row)]
        for column in sweep.columns:
            figure = found.get((row.name, column))
            cells.append(str(figure) if figure else "")
            cells += _beside(figure) if column in papers else []
            cells += [figure.cost if figure else ""] if against else []
        rows.append(cells + ([row.note] if noted else []))
    return head + (["note"] if noted else []), rows


def _beside(figure: Figure | None) -> list[str]:
    if figure is None or figure.cell.paper is None:
        return ["", ""]
    return [f"{figure.cell.paper:.2f}", signed(figure.difference)]


def in_column(found: Mapping[tuple[str, str], Figure], column: str) -> list[Figure]:
    """The figures of a column, in the order of its rows."""
    return [figure for (_, at), figure in found.items() if at == column]


_TABLES = ("sweep", "base", "column", "row", "grid", "tuning")


def as_toml(sweep: Sweep) -> str:
    """The sweep as a file that stands by itself."""
    tables: dict[str, Any] = sweep.file.model_dump(exclude_none=True, exclude_defaults=True)
    tables["sweep"] = sweep.file.sweep.model_dump(exclude_none=True)
    tables["tuning"] = sweep.file.tuning.model_dump(exclude_none=True)
    if sweep.file.tuning.folds is not None:
        del tables["tuning"]["validation"]  # folds stand instead of it
    return tomli_w.dumps({key: _plain(tables[key]) for key in _TABLES if tables.get(key)})


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(inner) for key, inner in value.items()}
    return [_plain(inner) for inner in value] if isinstance(value, list | tuple) else value


def markdown_row(cells: Sequence[str]) -> str:
    """A row of a table in Markdown."""
    return f"| {' | '.join(cell.replace('|', '&#124;') for cell in cells)} |"


_SAFE = {**{one: f"\\{one}" for one in "&%$#_{}"}, "\\": "\\textbackslash{}", "~": "\\textasciitilde{}"}
_SAFE |= {"^": "\\textasciicircum{}", "±": "$\\pm$", "–": "--", "↳": "$\\hookrightarrow$"}


def latex_row(cells: Sequence[str], bold: int | None = None) -> str:
    """A row of a `tabular`; the cell number `bold` is bold."""
    safe = ["".join(_SAFE.get(one, one) for one in cell) for cell in cells]
    return " & ".join(f"\\textbf{{{cell}}}" if place == bold else cell for place, cell in enumerate(safe)) + " \\\\"


def _write(path: Path, text: str) -> None:
    unfinished = path.with_name(f"{path.name}.unfinished")
    unfinished.write_text(text, encoding="utf-8")
    unfinished.replace(path)


def _write_csv(path: Path, rows: Rows) -> None:
    unfinished = path.with_name(f"{path.name}.unfinished")
    with unfinished.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]) if rows else ["row", "column"])
        writer.writeheader()
        writer.writerows(rows)
    unfinished.replace(path)


def _write_parquet(path: Path, rows: Rows) -> None:
    import pyarrow
    from pyarrow import parquet

    unfinished = path.with_name(f"{path.name}.unfinished")
    parquet.write_table(pyarrow.Table.from_pylist(rows), unfinished)
    unfinished.replace(path)
