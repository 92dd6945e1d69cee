"""`python -m launch.sweep.one_run PARENT`: one run of a sweep, a process that ends with the sweep.

What to run comes on standard input. Exit codes are those of `pflsim run`; what went wrong is told on standard error.
"""

import json
import os
import sys
from pathlib import Path

from launch.cli import guarded, leave
from launch.interrupts import interrupt_once
from launch.local import LocalRun
from launch.progress import Progress
from launch.resumed import run_to_the_end
from launch.verify import with_violations
from nodes.parent import die_with_parent
from pflsim.spec import validate


class WhileParentLives(Progress):
    """Shows nothing, and interrupts the run when the sweep has gone: for systems that do not tell a child."""

    def __init__(self, parent: int) -> None:
        super().__init__(1, 1, quiet=True)
        self._parent = parent

    def again(self) -> "WhileParentLives":
        """The same."""
        return WhileParentLives(self._parent)

    def update(self, facts: object) -> None:
        """Called at least every half second as long as the run goes on."""
        if os.getppid() != self._parent:
            raise KeyboardInterrupt


def main() -> None:
    """Run what standard input says."""
    parent = int(sys.argv[1])
    die_with_parent(parent)
    interrupt_once()
    sys.path.append(str(Path.cwd()))  # where a user's "package.module:function" lies
    order = json.load(sys.stdin)

    def run() -> None:
        one = LocalRun(validate(order["tables"]), Path(order["directory"]), WhileParentLives(parent))
        with_violations(run_to_the_end(one))

    leave(guarded(run))


if __name__ == "__main__":
    main()
