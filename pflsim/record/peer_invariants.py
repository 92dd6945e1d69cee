"""What must hold in the record of a run among peers, beside what holds in every run (`pflsim.record.invariants`)."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise

from pflsim.record.database import Reader
from pflsim.record.history import COORDINATOR, WAIT, History, Span

_ENDS_A_LOSS = ("offline", "lost work")


def steps_follow_each_other(history: History) -> Iterator[str]:
    """A peer's rounds are 1, 2, 3 and so on, each begins where the one before it has ended."""
    for peer, steps in history.steps.items():
        for number, step in enumerate(steps, start=1):
            if step.round != number:
                yield f"step {number} of {peer} is called {step.round}"
            if step.end_ns < step.start_ns:
                yield f"step {step.round} of {peer} ends before it starts"
        for one, following in pairwise(steps):
            if following.start_ns < one.end_ns:
                yield f"step {following.round} of {peer} starts at {following.start_ns} ns, before {one.round} is over"


def work_lasts_from_step_to_model(history: History, reader: Reader) -> Iterator[str]:
    """A peer begins to work with its step, or after a loss; its model leaves when that is done; all is in its steps."""
    sent = "SELECT kind, sequence, departure_ns FROM sent WHERE sender = ? AND kind IN ('PUSH', 'PAIR')"
    for peer, spans in history.spans.items():
        steps = history.steps.get(peer, [])
        starts, losses = {step.start_ns for step in steps}, {span.end_ns for span in spans if span.what in _ENDS_A_LOSS}
        done = {span.end_ns for span in spans if span.what == "compute"}
        begins = starts | losses | {steps[-1].end_ns if steps else 0}  # that of a step that has not ended
        for span in spans:
            if span.what in ("compute", *_ENDS_A_LOSS) and span.start_ns not in begins:
                yield f"{span.what} of {peer} begins at {span.start_ns} ns, when no step of it began"
            if span.what != WAIT and not _lies_in_a_step(span, history, sorted(starts)):
                yield f"{span.what} of {peer} from {span.start_ns} to {span.end_ns} ns lies in no step of it"
        for kind, sequence, departure_ns in reader.query(sent, peer):
            if departure_ns not in done:
                yield f"{kind} {sequence} of {peer} left at {departure_ns} ns, when no work of it was done"


def _lies_in_a_step(span: Span, history: History, starts_ns: list[int]) -> bool:
    steps = history.steps.get(span.actor, [])
    if not steps or span.start_ns >= steps[-1].end_ns:
        return True  # the step in which the run stopped is not recorded
    index = bisect_right(starts_ns, span.start_ns) - 1
    return any(step.start_ns <= span.start_ns and span.end_ns <= step.end_ns for step in steps[max(0, index) :])


def no_age_is_negative(reader: Reader) -> Iterator[str]:
    """What a peer learns from has left its neighbour before."""
    select = "SELECT actor, name, round, value FROM measures WHERE name LIKE 'age of %' AND value < 0"
    for peer, name, round, value in reader.query(select):
        yield f"the {name.removesuffix(', s')} that {peer} used in round {round} was {value} s old"


def pairs_are_answered_once(history: History, reader: Reader) -> Iterator[str]:
    """Of a peer that asks and one that is asked: answer k leaves when PAIR k has come; in the end none is missing."""
    asked: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
    answered: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
    for one in history.transits():
        if one.kind == "PAIR":
            asked[one.sender, one.receiver].append(one.arrival_ns)
        elif one.kind == "PAIRED":
            answered[one.receiver, one.sender].append(one.departure_ns)
    has_finished = bool(reader.query("SELECT 1 FROM events WHERE what = 'finished'"))
    for pair in sorted({*asked, *answered}):
        questions, answers = sorted(asked[pair]), sorted(answered[pair])
        if len(answers) > len(questions) or (has_finished and len(answers) < len(questions)):
            yield f"{pair[0]} asked {pair[1]} {len(questions)} times, and was answered {len(answers)} times"
        for number, (asked_ns, answer_ns) in enumerate(zip(questions, answers, strict=False), start=1):
            if answer_ns < asked_ns:
                yield (
                    f"answer {number} of {pair[1]} to {pair[0]} left at {answer_ns} ns, before it was asked "
                    f"at {asked_ns} ns"
                )


def no_model_passes_the_coordinator(reader: Reader) -> Iterator[str]:
    """What it sends and gets are control messages: none of the method's, and not one byte of a tensor."""
    for end in ("sent", "received"):
        select = (
            f"SELECT sender, receiver, kind, channel, sequence, payload_bytes FROM {end} "
            "WHERE (sender = ?1 OR receiver = ?1) AND (channel != 'control' OR payload_bytes > 0)"
        )
        for sender, receiver, kind, channel, sequence, payload_bytes in reader.query(select, COORDINATOR):
            what = f"{kind} {sequence} on channel {channel}, with {payload_bytes} bytes of payload"
            yield f"{end}: {sender} → {receiver}: {what}"
