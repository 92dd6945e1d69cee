"""Where results go when nobody says where."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pflsim.spec import validate


def default_directory(tables: Mapping[str, Any]) -> Path:
    """results/NAME-TIME, with a number if that exists already. Raises DescriptionError."""
    first = Path("results") / f"{validate(tables).run.name}-{time.strftime('%Y%m%d-%H%M%S')}"
    tries = (first if number == 1 else first.with_name(f"{first.name}-{number}") for number in range(1, 1000))
    return next(directory for directory in tries if not directory.exists())
