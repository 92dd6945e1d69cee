"""The sections of a run's report about time: who did what when, who was waited for, and the slowest rounds."""

from collections import defaultdict
from collections.abc import Iterator

from launch.finished import FIRST_ROUNDS, FinishedRun
from pflsim.record.critical_path import CriticalPath, blamed
from pflsim.record.durations import duration
from pflsim.record.history import SERVER, History
from pflsim.record.shares import Shares, shares
from pflsim.record.timeline import Window
from pflsim.report import times
from pflsim.report.page import Lines, Section, Text

SLOWEST = 5
_MOST_BARS = 30
_MOST_SHARES = 40
_NO_SPANS = "The run kept no spans (record.spans = false), so that nobody can tell who computed and who waited when."


def timeline(run: FinishedRun) -> Iterator[Section]:
    """Who did what when."""
    windows = _windows(run.history)
    if not windows:
        yield Section("Timeline", [Text("No round has ended yet.")])
        return
    if not run.history.spans:
        yield Section("Timeline", [Text(_NO_SPANS)])
        return
    last = windows[min(len(windows), FIRST_ROUNDS) - 1]
    wanted = [one.actor for one in blamed(run.paths())]
    found = times.timeline(run.history, windows, (windows[0][0], last[1]), wanted)
    lead = f"It begins with the first {min(len(windows), FIRST_ROUNDS)} of {len(windows)} rounds."
    if found is not None:
        yield Section("Timeline", [found], lead)


def waiting(run: FinishedRun) -> Iterator[Section]:
    """For whom the others waited, and how each spent its time."""
    if not run.history.spans or not _windows(run.history):
        return
    clients = [one.actor for one in blamed(run.paths()) if one.actor != SERVER]
    found = times.waiting(run.paths(), clients[:_MOST_BARS], len(clients))
    spent = _some(shares(run.history, run.away))
    parts = [*([found] if found else []), times.spending(spent)]
    lead = "On the critical paths: what a round (among peers: a step) could not have ended without."
    if len(spent) < len(run.history.actors):
        lead += f" Of {len(run.history.actors)} actors, those that computed longest and shortest."
    yield Section("Waiting and idling", parts, lead)


def slowest_rounds(run: FinishedRun) -> Iterator[Section]:
    """The critical paths of the rounds that took longest."""
    if not run.history.spans:
        return
    paths = sorted(run.paths(), key=lambda path: (-path.duration_ns, path.period.round, path.owner))[:SLOWEST]
    paths = [path for path in paths if path.duration_ns]
    if not paths:
        return
    what = "steps of peers" if run.history.has_peers else "rounds"
    lead = f"Whom the {len(paths)} slowest {what} waited for, one after another; {_in_all(run.paths())}."
    yield Section("Slowest rounds", [times.slowest(paths), Lines([str(path) for path in paths])], lead)


def _in_all(paths: list[CriticalPath]) -> str:
    return f"all {len(paths)} together took {duration(sum(path.duration_ns for path in paths))}"


def _windows(history: History) -> list[Window]:
    """When each round began and ended; of peers, from its first beginning to its last end."""
    if not history.has_peers:
        return [(period.start_ns, period.end_ns) for period in history.rounds]
    found: defaultdict[int, list[Window]] = defaultdict(list)
    for own in history.steps.values():
        for step in own:
            found[step.round].append((step.start_ns, step.end_ns))
    return [(min(start for start, _ in own), max(end for _, end in own)) for _, own in sorted(found.items())]


def _some(found: list[Shares]) -> list[Shares]:
    """The server, then the clients: the busiest and the idlest where they are many."""
    server = [one for one in found if one.actor == SERVER]
    clients = sorted((one for one in found if one.actor != SERVER), key=lambda one: (-one.computing_ns, one.actor))
    half = _MOST_SHARES // 2
    return [*server, *(clients if len(clients) <= _MOST_SHARES else [*clients[:half], *clients[-half:]])]
