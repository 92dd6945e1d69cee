"""What `pflsim.run` and `pflsim.resume` do: those of the command line, from Python."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from launch.comparison import run_all
from pflsim.outside import placed
from pflsim.record.result import Result
from pflsim.spec import Run, override_value, read, with_algorithm


def resume(directory: str | Path, *, quiet: bool = True) -> Result:
    """See `pflsim.resume`."""
    from launch.resume import resume

    return resume(Path(directory), quiet=quiet)


def run(
    description: str | Path | Mapping[str, Any], *, out: str | Path | None = None, quiet: bool = True, **settings: Any
) -> Result:
    """See `pflsim.run`."""
    if isinstance(description, Mapping):
        tables, name, folder = dict(description), "run", Path()
    else:
        tables, name, folder = read(Path(description)), Path(description).stem, Path(description).parent
    if isinstance(tables.setdefault("run", {}), Mapping):
        tables["run"] = {"name": name} | dict(tables["run"])
    if "algorithm" in settings:
        tables = with_algorithm(tables, placed(settings.pop("algorithm"), folder))
    for key, value in settings.items():
        tables = override_value(tables, f"run.{key}" if key in Run.model_fields else key.replace("__", "."), value)
    return run_all(placed(tables, folder), Path(out) if out is not None else None, quiet=quiet)[-1]
