"""pflsim: an asynchronous message-passing simulator for personalised federated learning.

import pflsim
result = pflsim.run("launch/runs/start-here.toml", clients=20, rounds=10)
result.accuracy, result.summary["traffic"], result.rows("evaluations", client=3)
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pflsim.record.result import Result

__all__ = ["resume", "run"]


def run(
    description: str | Path | Mapping[str, Any], *, out: str | Path | None = None, quiet: bool = True, **settings: Any
) -> "Result":
    """Run a description (a TOML file or its tables) on this machine, and open what it left behind.

    `settings` override it: `clients=20`, `rounds=5`, `seed=3` and the other keys of `[run]`; `algorithm="fedavg"`; any
    other key with two underscores for each dot, such as `training__step_size=0.1`. Methods that the description has
    beside its own run too, into folders beside. Raises DescriptionError, RunFailed, or KeyboardInterrupt.
    """
    result: Result = _runner().run(description, out=out, quiet=quiet, **settings)
    return result


def resume(directory: str | Path, *, quiet: bool = True) -> "Result":
    """Let a run that was interrupted, failed or was killed go on from its last checkpoint; one that is done is opened.

    Raises DescriptionError for a run that has no checkpoint, goes on right now, or is not what it was, and what `run`
    raises.
    """
    result: Result = _runner().resume(directory, quiet=quiet)
    return result


def _runner() -> Any:
    """This library is below `launch`, which knows how to start processes; so `launch` says that it is there."""
    from importlib import import_module
    from importlib.metadata import entry_points  # slow to import, and no process of a run needs it

    (runner,) = entry_points(group="pflsim.runners", name="local")
    return import_module(runner.module)
