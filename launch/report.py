"""`pflsim report`: one page of all that a run was and did, from its folder; it tells of an unfinished run too."""

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from launch.directory import replaced
from launch.finished import DONE, FinishedRun
from launch.report_sections import sections
from launch.show import remarks
from pflsim.errors import DescriptionError
from pflsim.record.durations import duration
from pflsim.record.report import comparison_rows, summarise
from pflsim.record.sizes import size
from pflsim.report.page import Facts, Folded, Part, Remarks, Section, Table, Tiles, page

NAME = "report.html"
_MOST_BESIDE = 12


@dataclass(frozen=True)
class Told:
    """A run that the page tells of."""

    run: FinishedRun
    label: str

    @cached_property
    def summary(self) -> dict[str, Any]:
        """Its summary as written, or, while there is none, as far as its record and its description tell."""
        with suppress(OSError, ValueError):
            found = json.loads((self.run.directory / "summary.json").read_text(encoding="utf-8"))
            if isinstance(found, dict) and "algorithm" in found:
                return found
        description = self.run.description
        known = {
            "status": self.run.ended or "unfinished",
            "algorithm": description.algorithm.name,
            "dataset": description.data.name,
            "model": description.model.name,
            "clients": description.run.clients,
            "rounds": len(self.run.history.rounds),
            "seed": description.run.seed.model_dump(),
            "mode": description.time.mode,
            "time": {"simulated_s": self.run.history.end_ns / 1e9},
        }
        return summarise(self.run.reader, known)


def write_report(directory: Path, out: Path | None = None) -> Path:
    """Write the page of the run in `directory`; where it lies."""
    runs = _with_beside(directory)
    target = directory / NAME if out is None else out
    try:
        html = report(runs)
    finally:
        for one in runs:
            one.run.reader.close()
    try:
        with replaced(target) as unfinished:
            unfinished.write_text(html, encoding="utf-8")
    except OSError as problem:
        if out is None:
            raise
        raise DescriptionError("--out", str(out), f"cannot be written: {problem.strerror}") from problem
    return target


def report(runs: list[Told]) -> str:
    """The page: of the last one of `runs`, the others stand beside it in the table and in the curves."""
    own = runs[-1]
    summary, description = own.summary, own.run.description
    title = f"{own.label} on {summary['dataset']}"
    subtitle = f"{description.run.name}: {summary['clients']} clients, {summary['rounds']} rounds, {_seeds(summary)}"
    found = [_results(runs), *sections({one.label: one.run for one in runs}, own.label), _what_was_run(own)]
    return page(title, found, subtitle, _head(own))


def _head(own: Told) -> list[Part]:
    said = [f"Not a finished run: {own.run.reservation}."] if own.run.reservation else []
    said += [remark[0].upper() + remark[1:] for remark in _remarks(own)]
    tiles = _tiles(own.summary)
    return [*([Remarks(said)] if said else []), *([Tiles(tiles)] if tiles else [])]


def _remarks(own: Told) -> list[str]:
    return remarks(own.summary) if own.run.ended == DONE else [str(one) for one in own.summary.get("warnings") or []]


def _tiles(summary: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    accuracy, time, traffic = (summary.get(part) or {} for part in ("accuracy", "time", "traffic"))
    found = []
    if accuracy.get("weighted") is not None:
        error = 100 * (accuracy.get("binomial_error") or 0)
        found.append(("accuracy", f"{100 * accuracy['weighted']:.1f} %", f"± {error:.1f}, of all test samples"))
        found.append(("worst tenth", f"{100 * accuracy['worst_decile']:.1f} %", "of clients, mean accuracy"))
    if time.get("simulated_s") is not None:
        wall = f"{time['wall_s']:.3g} s really" if time.get("wall_s") else "so far"
        found.append(("simulated time", duration(round(time["simulated_s"] * 1e9)), wall))
    for key, what in (("up", "sent up"), ("down", "sent down"), ("peer", "sent among peers")):
        count = traffic.get(f"payload_bytes_{key}")
        if count:
            found.append((what, size(count), "of payload"))
    waited = summary.get("waited_for")
    if waited:
        others = waited.get("others_as_late")
        about = f"{waited['waited_s']:.3g} s in all" + (f", {others} more as late" if others else "")
        found.append(("waited for", str(waited["actor"]), about))
    return found


def _results(runs: list[Told]) -> Section:
    headings, rows = comparison_rows([one.summary for one in runs])
    for row, one in zip(rows, runs, strict=True):
        row[0] = row[0].replace(str(one.summary["algorithm"]).split(":")[-1], one.label, 1)
    caption = (
        "Accuracy is that of the last evaluation, ± its binomial standard error. Mean ± std: over clients. "
        "MB: payload of the method's own messages, 10⁶ bytes."
    )
    strong = len(rows) - 1 if len(rows) > 1 else None
    table = Table(headings, rows, caption=caption, left=frozenset({0, len(headings) - 1}), strong=strong)
    return Section("Results", [table], "All methods on the same seed and the same partition." if len(rows) > 1 else "")


def _what_was_run(own: Told) -> Section:
    run, summary = own.run.description, own.summary
    partition = summary.get("partition") or {}
    status, stopped = str(summary.get("status")), summary.get("stopped")
    facts = [
        ("method", str(summary["algorithm"])),
        ("data", f"{summary['dataset']}; {partition['report']}" if "report" in partition else str(summary["dataset"])),
        (
            "model",
            f"{summary['model']}, {summary['parameters']:,} parameters"
            if summary.get("parameters")
            else str(summary["model"]),
        ),
        ("schedule", _settings(run.schedule.kind, run.schedule.settings)),
        *([("codec", _settings("", run.codec))] if run.codec else []),
        *(
            [("availability", _settings("", run.availability))]
            if run.availability not in ("always", {"kind": "always"})
            else []
        ),
        *([("faults", "; ".join(_settings("", fault) for fault in run.fault))] if run.fault else []),
        ("time", f"{run.time.mode}, {'as simulated' if run.time.mode == 'virtual' else 'as measured'}"),
        ("links", _settings("", run.links)),
        ("devices", _settings("", run.devices)),
        ("seeds", ", ".join(f"{name} {seed}" for name, seed in run.run.seed.model_dump().items())),
        ("status", f"{status}: {stopped}" if stopped not in (None, status) else status),
        ("digest", str(summary.get("digest") or "–")),
        ("trace digest", str(summary.get("trace_digest") or "–")),
        ("partition digest", str(partition.get("digest", "–"))),
        ("versions", ", ".join(f"{name} {version}" for name, version in run.versions.items())),
        ("folder", str(own.run.directory.resolve().name)),
    ]
    text = (own.run.directory / "run.toml").read_text(encoding="utf-8", errors="replace")
    lead = "The description with every setting that was in force can be run again as it stands."
    return Section("What was run", [Facts(facts), Folded("The description in force (run.toml)", text)], lead)


def _settings(kind: str, settings: object) -> str:
    if not isinstance(settings, Mapping):
        return str(settings)
    told = ", ".join(f"{name} = {_as_toml(value)}" for name, value in settings.items())
    return f"{kind}{': ' if kind and told else ''}{told}"


def _as_toml(value: object) -> str:
    if isinstance(value, Mapping):
        return f"{{ {', '.join(f'{name} = {_as_toml(inner)}' for name, inner in value.items())} }}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_as_toml, value))}]"
    return f"{value:g}" if isinstance(value, float) else json.dumps(value)


def _seeds(summary: Mapping[str, Any]) -> str:
    seeds = summary.get("seed") or {}
    values = sorted(set(seeds.values())) if isinstance(seeds, Mapping) else [seeds]
    return f"seed{'s' if len(values) > 1 else ''} {', '.join(map(str, values))}"


def _with_beside(directory: Path) -> list[Told]:
    """The run, and before it those of other methods that lie beside it, DIR-NAME, and differ in nothing else."""
    own = FinishedRun(directory)
    runs: list[FinishedRun] = []
    place = directory.resolve()
    for folder in sorted(place.parent.glob(f"{_literally(place.name)}-*")):
        with suppress(DescriptionError):
            other = FinishedRun(folder)
            if _differ_in_method(own, other) and len(runs) < _MOST_BESIDE:
                runs.append(other)
            else:
                other.reader.close()
    runs.sort(key=lambda run: (run.description.algorithm.name != "local", run.directory.stat().st_mtime_ns))
    runs.append(own)
    names = [run.description.algorithm.name.split(":")[-1] for run in runs]
    labels = [
        name if names.count(name) == 1 else f"{name} ({run.directory.name})"
        for name, run in zip(names, runs, strict=True)
    ]
    return [Told(run, label) for run, label in zip(runs, labels, strict=True)]


def _differ_in_method(own: FinishedRun, other: FinishedRun) -> bool:
    same = {
        "algorithm": own.description.algorithm,
        "record": own.description.record,
        "versions": own.description.versions,
    }
    return other.description.algorithm != own.description.algorithm and (
        other.description.model_copy(update=same).as_tables() == own.description.as_tables()
    )


def _literally(name: str) -> str:
    """A name as a pattern that only it matches."""
    return "".join(f"[{letter}]" if letter in "*?[" else letter for letter in name)
