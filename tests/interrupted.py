"""`python -m tests.interrupted MOMENT`: the command line, to which Ctrl-C comes at a moment that is hard to hit."""

import sys

from launch import cli, screen
from pflsim.errors import RunFailed


def _while_code_is_executed() -> None:
    exec("raise KeyboardInterrupt")  # as the dataclasses of a module that is imported just then


def _while_a_failure_is_told() -> None:
    def interrupted(_: str) -> None:
        raise KeyboardInterrupt

    screen.say = interrupted
    raise RunFailed("c000", "was killed by SIGINT")


def _and_the_ending_fails() -> None:
    try:
        raise KeyboardInterrupt
    finally:
        try:
            raise AttributeError("module 'library' has no attribute 'half'")
        except AttributeError as problem:
            raise RunFailed("recorder", "cannot write") from problem


if __name__ == "__main__":
    cli._obey = {
        "executing": _while_code_is_executed,
        "telling": _while_a_failure_is_told,
        "ending": _and_the_ending_fails,
    }[sys.argv[1]]
    cli.main()
