"""This host's own speed, as `pflsim calibrate` measured it: from step times to FLOP/s, and the file that keeps it.

The file is a TOML table with `flops_per_second`; whatever else it says (host, model, batch) is for the reader.
"""

import math
import tomllib
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from pflsim.errors import DescriptionError


def measured_speed(step_flops: float, step_s: Sequence[float]) -> float:
    """The sustained FLOP/s of a host on which steps of `step_flops` took `step_s` seconds each: by their median.

    The median, because what else the host does only ever makes a step longer, and now and then much longer. Raises
    ValueError for no measurement, or one that cannot be.
    """
    if not step_s or not all(0 < seconds < math.inf for seconds in step_s) or not 0 < step_flops < math.inf:
        raise ValueError("a speed needs FLOPs above 0 and at least one time above 0")
    return step_flops / median(step_s)


def read_speed(key: str, file: object) -> float:
    """The FLOP/s that a file written by `pflsim calibrate` states; raises DescriptionError naming `key`."""
    if not isinstance(file, str):
        raise DescriptionError(key, file, "must be the name of a file that `pflsim calibrate` wrote")
    try:
        table = tomllib.loads(Path(file).read_text(encoding="utf-8"))
    except OSError as problem:
        raise DescriptionError(
            key, file, f"cannot be read ({problem.strerror}); `pflsim calibrate` makes it"
        ) from problem
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as problem:
        raise DescriptionError(key, file, f"is not TOML: {problem}") from problem
    speed = table.get("flops_per_second")
    if isinstance(speed, bool) or not isinstance(speed, int | float) or not 0 < speed < math.inf:
        raise DescriptionError(key, file, f"flops_per_second = {speed!r} in it must be a number above 0")
    return float(speed)
