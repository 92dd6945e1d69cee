"""Ctrl-C, SIGTERM, a closed terminal: the first one ends a run in good order, and no further one can spoil that."""

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import FrameType
from typing import Any, NoReturn

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


_AGAIN_S = 0.01


def _first(number: int, frame: FrameType | None) -> NoReturn:
    for one in _ENDING:
        signal.signal(one, signal.SIG_IGN)
    raise KeyboardInterrupt


def _once_more(hook: "Callable[[sys.UnraisableHookArgs], Any]", dropped: "sys.UnraisableHookArgs") -> None:
    """Python drops what is raised while an object is cleared away: a signal that came just then comes again."""
    if dropped.exc_type is not KeyboardInterrupt:
        hook(dropped)
        return
    signal.signal(signal.SIGTERM, _first)
    threading.Timer(_AGAIN_S, _send).start()


def _send() -> None:
    if signal.getsignal(signal.SIGTERM) is _first:
        os.kill(os.getpid(), signal.SIGTERM)


@contextmanager
def interrupted_once() -> Iterator[None]:
    """The first of these signals raises KeyboardInterrupt in the with-block; further ones are ignored until its end.

    Inside another such block, or outside the main thread, it changes nothing; a signal that this process was told to
    ignore, as a script's background job is told of SIGINT, stays ignored.
    """
    outside_main = threading.current_thread() is not threading.main_thread()
    if outside_main or signal.getsignal(signal.SIGTERM) in (_first, signal.SIG_IGN):
        yield
        return
    before, hook = {one: signal.getsignal(one) for one in _ENDING}, sys.unraisablehook
    try:
        interrupt_once()
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
        sys.unraisablehook = hook


def interrupt_once() -> None:
    """The same for the rest of this process."""
    sys.unraisablehook = partial(_once_more, sys.unraisablehook)
    for one in _ENDING:
        if signal.getsignal(one) is not signal.SIG_IGN:
            signal.signal(one, _first)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """These signals wait until the with-block is done.

    By handlers, not by a signal mask: that would hold for this thread alone, and the libraries have threads too.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    before = {one: signal.signal(one, lambda number, _: came.append(number)) for one in _ENDING}
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
    if came:
        signal.raise_signal(came[0])


@contextmanager
def interrupted_above_all() -> Iterator[None]:
    """What fails while an interrupt is on its way through the with-block is that interrupt, with a note of the failure.

    A library that was being imported stays half imported, and fails when the ending of a command uses it.
    """
    try:
        yield
    except Exception as problem:
        cause = problem.__context__
        while cause is not None and not isinstance(cause, KeyboardInterrupt):
            cause = cause.__context__
        if cause is None:
            raise
        cause.add_note(f"as it ended, this failed: {type(problem).__name__}: {problem}")
        raise cause from None
