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


if __name__ == "__main__":
    cli._obey = {"executing": _while_code_is_executed, "telling": _while_a_failure_is_told}[sys.argv[1]]
    cli.main()
