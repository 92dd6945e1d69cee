"""`pflsim retime`: the times that a finished synchronous run would have had on other devices and links."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from launch.finished import FinishedRun
from launch.screen import fitted
from pflsim.errors import DescriptionError
from pflsim.record.durations import duration
from pflsim.record.history import SERVER, Period
from pflsim.record.retiming import Message, RecordedRound, Retiming, Visit, recorded_rounds
from pflsim.spec import Description, override, read, validate

if TYPE_CHECKING:
    from pflsim.federation import Tensors
    from pflsim.study import Study

MAY_CHANGE = ("devices", "links")


def retime(directory: Path, settings: Sequence[str]) -> None:
    """Print the simulated times of the run in `directory` as they were, and as they would be with `settings`."""
    recorded, retimed = retimed_rounds(directory, settings)
    print(f"{'round':>6}  {'recorded':>10}  {'retimed':>10}")
    for one, other in zip(recorded, retimed, strict=True):
        spans = [duration(period.end_ns - period.start_ns) for period in (one, other)]
        print(f"{one.round:>6}  {spans[0]:>10}  {spans[1]:>10}")
    whole = [duration(periods[-1].end_ns if periods else 0) for periods in (recorded, retimed)]
    print(f"{'all':>6}  {whole[0]:>10}  {whole[1]:>10}")
    if recorded == retimed:
        changed = ", ".join(settings) or "nothing was changed"
        print(fitted(f"no round takes another time, to the nanosecond: {changed}"))


def retimed_rounds(directory: Path, settings: Sequence[str]) -> tuple[list[Period], list[Period]]:
    """The rounds as recorded, and as they would be. Raises DescriptionError where time could change the result.

    The run is gone through twice: with its own settings first, which must give its own times to the nanosecond.
    """
    run = FinishedRun(directory)
    if run.reservation:
        raise DescriptionError("DIR", str(directory), f"cannot be retimed: {run.reservation}")
    _refuse(run.description)
    if run.history.has_peers:
        reason = "it repeats the rounds of a server, and peers have none: each waits for neighbours of its own"
        raise DescriptionError("algorithm.name", run.description.algorithm.name, f"cannot be retimed: {reason}")
    tables = _changed(read(directory / "run.toml"), settings)
    try:
        rounds = recorded_rounds(run.reader)
    except ValueError as problem:
        raise DescriptionError("DIR", str(directory), f"cannot be retimed: {problem}") from problem
    if run.reader.query("SELECT 1 FROM rounds WHERE rejected > 0"):
        raise DescriptionError("DIR", str(directory), "cannot be retimed: uploads were rejected, and not folded in")
    recorded = [one.period for one in rounds]
    if _Replay(run.description, rounds).periods() != recorded:
        reason = "its own settings do not give its own times; is it another version of pflsim, or of the data?"
        raise DescriptionError("DIR", str(directory), f"cannot be retimed: {reason}")
    return recorded, _Replay(validate(tables), rounds).periods()


def _refuse(description: Description) -> None:
    """Where the order of events decides what is computed, other times would be another run."""
    schedule, mode, there = description.schedule, description.time.mode, _availability(description)
    sampling, until_s = schedule.settings.get("sampling"), description.run.stop.simulated_s
    budget_s = description.training.local_s
    reasons = (
        (schedule.kind != "sync", "schedule.kind", schedule.kind, "which answer comes first decides what is computed"),
        (mode == "wall", "time.mode", mode, "its times are real ones"),
        (there != "always", "availability", there, "who is there when decides what is computed"),
        (
            bool(description.fault),
            "fault",
            [one.get("kind") for one in description.fault],
            "what befalls a message depends on when it is sent",
        ),
        (until_s is not None, "run.stop.simulated_s", until_s, "time decides when it ends"),
        (budget_s is not None, "training.local_s", budget_s, "time decides how many steps a visit has"),
        (_goes_by_speed(sampling), "schedule.sampling", sampling, "speed decides who works"),
    )
    for applies, key, value, reason in reasons:
        if applies:
            raise DescriptionError(key, value, f"cannot be retimed: {reason}")


def _availability(description: Description) -> object:
    given = description.availability
    return given.get("kind") if isinstance(given, Mapping) else given


def _goes_by_speed(sampling: object) -> bool:
    if isinstance(sampling, Mapping):
        return sampling.get("kind") == "tiers" or sampling.get("grouping") == "by-speed"
    return sampling == "tiers"


def _changed(tables: dict[str, Any], settings: Sequence[str]) -> dict[str, Any]:
    for assignment in settings:
        key = assignment.partition("=")[0].strip()
        if key.split(".")[0] not in MAY_CHANGE:
            raise DescriptionError("--set", assignment, "only devices and links can be changed without training again")
        tables = override(tables, assignment)
    return tables


class _Replay:
    """A description's devices, links and declared work, applied to recorded rounds."""

    def __init__(self, description: Description, rounds: Sequence[RecordedRound]) -> None:
        from pflsim.study import Study  # imports torch

        self._study, self._rounds = Study(description, b"retime"), rounds
        self._down = _first_down(self._study)
        self._up = self._study.first_up()

    def periods(self) -> list[Period]:
        """When each round begins and ends."""
        return Retiming(self._study.links, self._frames, self._work_ns, self._server_ns).run(self._rounds)

    def _frames(self, message: Message) -> list[int]:
        tensors = self._down if message.sender == SERVER else {} if message.kind == "LOSS" else self._up
        plain = [tensor.numel() * tensor.element_size() for tensor in tensors.values()]
        sizes = self._study.frame_bytes("down" if message.sender == SERVER else "up", tensors)
        if sum(plain) == message.payload_bytes:  # a codec lets the first difference travel as it is
            return plain
        if sum(sizes) != message.payload_bytes:
            reason = f"a message has {message.payload_bytes} bytes of tensors, and the first one {sum(sizes)}"
            raise DescriptionError("DIR", message.sender, f"cannot be retimed: {reason}")
        return sizes

    def _work_ns(self, visit: Visit, round: int) -> int:
        study = self._study
        task = study.task(study.number_of[visit.client], visit.number, round - 1)
        if visit.is_probe:
            return study.loss_ns(task, visit.number)
        work = study.method.client_work(task, self._down) + study.reporting_work(task)
        return study.work_ns(visit.client, work, visit.number)

    def _server_ns(self, one: RecordedRound) -> int:
        from pflsim.federation import Answer

        study = self._study
        clients = sorted(study.number_of[visit.client] for visit in one.visits)
        sizes = study.federation.sizes
        answers = [Answer(client, self._up, self._down, 0, int(sizes[client])) for client in clients]
        return study.server_work_ns(answers) if sum(answer.n_samples for answer in answers) > 0 else 0


def _first_down(study: "Study") -> "Tensors":
    down: Tensors = study.method.server_down(study.method.server_init(study.federation), 0, study.round(0))
    return down
