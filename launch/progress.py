"""Shows how a run gets on, from its facts: live on a terminal, else a plain line now and then."""

import os
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self, TextIO

from pflsim.record.ledger import direction
from pflsim.record.report import three_digits

if TYPE_CHECKING:
    from rich.live import Live

# What an `events` fact says when a client comes or goes; other events do not change who is alive.
JOINED, DIED, LOST, RESTARTED = "joined", "died", "lost", "restarted"

_LINES_PER_RUN = 10
_LONGEST_SILENCE_S = 10.0
_LONGEST_SILENT_START_S = 2.0
_REFRESH_S = 0.1


class State:
    """How far a run has come, as far as the facts tell."""

    def __init__(self, rounds: int, clients: int) -> None:
        self.rounds, self.clients = rounds, clients
        self.done = 0  # rounds
        self.simulated_s = 0.0
        self.data_bytes = {"up": 0, "down": 0, "peer": 0}
        self.joined: set[str] = set()
        self.dead: set[str] = set()
        self._headline: str | None = None  # clients state their headline model first
        self._evaluated: dict[int, tuple[int, int, int]] = {}  # by round: clients heard, correct and total samples
        self._whole: tuple[int, int] = (0, 0)  # of the latest round that all who are there have evaluated

    @property
    def accuracy(self) -> float | None:
        """Weighted test accuracy in the latest evaluation of which all who are there have been heard; 1 at most."""
        correct, total = self._whole
        return correct / total if total else None

    @property
    def alive(self) -> int:
        """Clients that have not died."""
        return max(0, self.clients - len(self.dead))  # the coordinator may have died, too

    @property
    def is_starting(self) -> bool:
        """Whether somebody is still missing before the first round."""
        return self.done == 0 and len(self.joined) < self.clients

    def take(self, fact: tuple[Any, ...]) -> None:
        """Learn what one fact tells."""
        table = fact[0]
        if table == "sent":
            _, sender, receiver, _, channel, _, _, payload_bytes, *_ = fact
            self._take_bytes(sender, receiver, channel, payload_bytes, told_by=sender)
        elif table == "received":
            _, sender, receiver, _, channel, _, payload_bytes, *_ = fact
            self._take_bytes(sender, receiver, channel, payload_bytes, told_by=receiver)
        elif table == "rounds":
            self.done += 1
            self.simulated_s = max(self.simulated_s, fact[3] / 1e9)
        elif table == "evaluations":
            self._take_evaluation(*fact[1:])
        elif table == "events":
            self._take_event(actor=fact[1], what=fact[2])

    def _take_bytes(self, sender: str, receiver: str, channel: str, payload_bytes: int, told_by: str) -> None:
        """Count a message once: at the server, which tells after every round; between peers at the sender."""
        way = direction(sender, receiver)
        counted_by = receiver if way == "up" else sender
        if channel == "data" and told_by == counted_by:
            self.data_bytes[way] += payload_bytes

    def _take_evaluation(
        self, round_: int, _: int, __: int, model: str, split: str, correct: int, total: int, ___: float
    ) -> None:
        if split != "test":
            return
        self._headline = self._headline or model
        if model != self._headline:
            return
        heard, right, among = self._evaluated.get(round_, (0, 0, 0))
        self._evaluated[round_] = heard + 1, right + correct, among + total
        self._settle()

    def _settle(self) -> None:
        """Take the latest evaluation that all have made who are there; among peers some are rounds ahead."""
        whole = [round_ for round_, (heard, *_) in self._evaluated.items() if heard >= self.alive]
        if whole:
            self._whole = self._evaluated[max(whole)][1:]
            self._evaluated = {later: found for later, found in self._evaluated.items() if later > max(whole)}

    def _take_event(self, actor: str, what: str) -> None:
        if what == JOINED:
            self.joined.add(actor)
        elif what in (DIED, LOST):
            self.dead.add(actor)
            self._settle()
        elif what == RESTARTED:
            self.dead.discard(actor)

    def parts(self) -> list[str]:
        """What there is to say, the most wanted first."""
        if self.is_starting:
            return [f"starting: {len(self.joined)}/{self.clients} clients joined"]
        said = [f"round {self.done}/{self.rounds}"]
        if self.accuracy is not None:
            said.append(f"accuracy {100 * self.accuracy:.1f} %")
        megabytes = {way: count / 1e6 for way, count in self.data_bytes.items()}
        said.append(f"↑{three_digits(megabytes['up'])} ↓{three_digits(megabytes['down'])} MB")
        if megabytes["peer"]:
            said[-1] = f"{three_digits(megabytes['peer'])} MB between peers"
        said.append(f"{self.alive}/{self.clients} alive")
        return said


class Progress:
    """The display of one run: `update` it with facts as they come, and close it (or use it in a `with`).

    On a terminal it is live; elsewhere a plain line appears about every tenth of the rounds, and every ten
    seconds when something has moved; `quiet` shows nothing. It starts no thread, so that a fork stays safe.
    """

    def __init__(
        self,
        rounds: int,
        clients: int,
        *,
        name: str = "",
        quiet: bool = False,
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.state = State(rounds, clients)
        self._name, self._quiet, self._clock = name, quiet, clock
        self._shows_nothing = quiet
        self._stream = sys.stderr if stream is None else stream
        self._shown_s, self._shown = clock(), ""
        self._shown_tenth = 0
        # (host seconds, rounds done), for the pace
        self._recent: deque[tuple[float, int]] = deque([(clock(), 0)], maxlen=32)
        self._live: Live | None = None
        if not quiet and self._stream.isatty() and os.environ.get("TERM") != "dumb":
            with self._while_somebody_looks():
                self._live = self._started_live()
                self._show_live(clock())

    def again(self) -> "Progress":
        """A display of the same run from its beginning, where this one has been closed."""
        state = self.state
        quiet = self._shows_nothing
        return Progress(
            state.rounds, state.clients, name=self._name, quiet=quiet, stream=self._stream, clock=self._clock
        )

    def go_on_from(self, facts: Iterable[tuple[Any, ...]]) -> None:
        """Take what was told before this command; the pace begins here."""
        for fact in () if self._quiet else facts:
            self.state.take(fact)
        self._recent = deque([(self._clock(), self.state.done)], maxlen=self._recent.maxlen)
        self._shown_tenth = self._tenth()

    def update(self, facts: Iterable[tuple[Any, ...]]) -> None:
        """Take a batch of facts, and show what they change if it is time to."""
        if self._quiet:
            return
        before = self.state.done
        for fact in facts:
            self.state.take(fact)
        now_s = self._clock()
        if self.state.done > before:
            self._recent.append((now_s, self.state.done))
        elif self.state.done == 0:
            self._recent[0] = (now_s, 0)  # the pace begins when everybody is there
        with self._while_somebody_looks():
            if self._live is not None:
                if now_s - self._shown_s >= _REFRESH_S or self.state.done == self.state.rounds:
                    self._show_live(now_s)
            elif self._line_is_due(now_s):
                self._show_line(now_s)

    def say(self, line: str) -> None:
        """Print a line of its own, above a live display; nothing when quiet."""
        with self._while_somebody_looks():
            if self._live is not None:
                self._live.console.print(line, markup=False, highlight=False)
            elif not self._quiet:
                print(line, file=self._stream, flush=True)

    def announce(self, line: str) -> None:
        """Print a line that is to be copied, whole, even when quiet."""
        with self._while_somebody_looks():
            if self._live is not None:
                self._live.console.print(line, markup=False, highlight=False, soft_wrap=True)
            else:
                print(line, file=self._stream, flush=True)

    def close(self) -> None:
        """Show the last state and leave the terminal as it was."""
        if self._quiet:
            return
        with self._while_somebody_looks():
            if self._live is not None:
                self._show_live(self._clock())
                self._live.stop()
                self._live = None
            elif self.state.done and self._text() != self._shown:
                self._show_line(self._clock())
        self._quiet = True  # what comes after the end is not shown

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    @contextmanager
    def _while_somebody_looks(self) -> Iterator[None]:
        """A terminal that is gone, or a pipe that nobody reads any more, ends the display and not the run."""
        try:
            yield
        except (OSError, SystemExit):  # rich exits where a pipe is broken
            self._live, self._quiet = None, True

    def remaining_s(self) -> float | None:
        """Host seconds to the end, at the pace of the last rounds; None before the first one."""
        (first_s, first), (last_s, last) = self._recent[0], self._recent[-1]
        return (self.state.rounds - last) * (last_s - first_s) / (last - first) if last > first else None

    def _line_is_due(self, now_s: float) -> bool:
        if self._tenth() > self._shown_tenth:
            return True
        somebody_joins = self.state.is_starting and self.state.joined
        longest_s = _LONGEST_SILENT_START_S if somebody_joins else _LONGEST_SILENCE_S
        return now_s - self._shown_s >= longest_s and self._text() != self._shown

    def _tenth(self) -> int:
        return self.state.done * _LINES_PER_RUN // max(1, self.state.rounds)

    def _text(self) -> str:
        return "  ".join(part for part in (self._name, *self.state.parts()) if part)

    def _eta(self) -> str:
        seconds = self.remaining_s()
        if seconds is None or self.state.done >= self.state.rounds:
            return ""
        minutes, rest = divmod(round(seconds), 60)
        hours, minutes = divmod(minutes, 60)
        return f"ETA {hours}:{minutes:02d}:{rest:02d}" if hours else f"ETA {minutes}:{rest:02d}"

    def _show_line(self, now_s: float) -> None:
        self._shown_s, self._shown, self._shown_tenth = now_s, self._text(), self._tenth()
        print("  ".join(part for part in (self._shown, self._eta()) if part), file=self._stream, flush=True)

    def _started_live(self) -> "Live":
        from rich.console import Console
        from rich.live import Live

        console = Console(file=self._stream)
        live = Live(console=console, auto_refresh=False, redirect_stdout=False, redirect_stderr=False)
        live.start()
        return live

    def _show_live(self, now_s: float) -> None:
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        assert self._live is not None
        first, *others = self.state.parts()
        line = Table.grid(padding=(0, 2))
        line.add_row(
            Text(self._name, style="bold"),
            ProgressBar(total=max(1, self.state.rounds), completed=self.state.done, width=16, complete_style="green"),
            Text(first, style="cyan", no_wrap=True),
            Text(self._eta(), no_wrap=True),
        )
        others.append(f"simulated {three_digits(self.state.simulated_s)} s")
        below = Text("  ".join(others), style="dim", no_wrap=True, overflow="ellipsis")
        both = Table.grid()
        both.add_row(line)
        both.add_row(below)
        self._live.update(both, refresh=True)
        self._shown_s = now_s
