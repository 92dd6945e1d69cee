"""`pflsim verify`: does a record hold what must hold, and does a description give the same bits wherever it runs?"""

import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from launch.finished import FinishedRun
from launch.local import LocalRun
from launch.progress import Progress
from launch.screen import fitted
from pflsim.errors import RunFailed
from pflsim.record.invariants import Check, Facts, checks
from pflsim.record.report import write_summary
from pflsim.record.result import Result
from pflsim.spec import override_value, validate

EXAMPLES = 3
DIGESTS = ("digest", "trace_digest")


def verify_record(directory: Path) -> bool:
    """Print every invariant and whether it holds in the record of the run in `directory`; True if all do."""
    run = FinishedRun(directory)
    if run.reservation:
        print(fitted(run.reservation))
    found = checked(run)
    for check in found:
        for line in told(check):
            print(fitted(line, len(_MARGIN)))
    return all(check.holds for check in found)


def checked(run: FinishedRun) -> list[Check]:
    """The invariants of a record."""
    with run.reader:
        return checks(Facts(run.reader, run.history, run.links, run.is_virtual, run.is_whole))


def told(check: Check) -> list[str]:
    """One line for an invariant, and some examples of what violates it."""
    if check.not_checked:
        return [f"not checked  {check.name}: {check.not_checked}"]
    if check.holds:
        return [f"holds        {check.name}"]
    more = len(check.violations) - EXAMPLES
    lines = [f"VIOLATED     {check.name}, {len(check.violations)} times:"]
    lines += [f"{_MARGIN}{violation}" for violation in check.violations[:EXAMPLES]]
    return lines + ([f"{_MARGIN}and {more} more"] if more > 0 else [])


_MARGIN = " " * 13


def with_violations(result: Result) -> Result:
    """The result of a run that has just ended; what its record violates is a warning, also in its `summary.json`."""
    violated = [check for check in checked(FinishedRun(result.directory)) if not check.holds]
    if not violated:
        return result
    warnings = [f"the record violates: {check.name}: {check.violations[0]}" for check in violated]
    summary = result.summary | {"warnings": [*result.summary.get("warnings", []), *warnings]}
    write_summary(result.directory / "summary.json", summary)
    return replace(result, summary=summary)


def verify_description(tables: Mapping[str, Any]) -> bool:
    """Run a description with two placements of its clients, and print the digests; True if they are equal.

    Under the wall clock events have real times, so that only what was computed can be the same.
    """
    description = validate(tables)
    placements = (1, max(2, -(-description.run.clients // 3)))
    with tempfile.TemporaryDirectory(prefix="pflsim-verify-") as place:
        summaries = [_run(tables, count, Path(place) / str(count)) for count in placements]
    equal = True
    for name in DIGESTS if description.time.mode == "virtual" else DIGESTS[:1]:
        first, second = (summary[name] for summary in summaries)
        equal &= first == second
        print(f"{'equal    ' if first == second else 'DIFFERENT'}  {name}")
        for count, summary in zip(placements, summaries if first != second else summaries[:1], strict=False):
            where = f"  with {count} to a process" if first != second else ""
            print(f"           {summary[name]}{where}")
    return equal


def _run(tables: Mapping[str, Any], clients_per_process: int, directory: Path) -> Mapping[str, Any]:
    placed = override_value(dict(tables), "run.clients_per_process", clients_per_process)
    found = validate({key: value for key, value in placed.items() if key != "beside"})
    name = f"{clients_per_process} to a process"
    try:
        return LocalRun(found, directory, Progress(found.run.rounds, found.run.clients, name=name)).run().summary
    except (RunFailed, KeyboardInterrupt) as problem:  # its notes name a folder that is about to be removed
        problem.__notes__ = [f"that was the run with {name}; `pflsim run` keeps what is recorded"]
        raise
