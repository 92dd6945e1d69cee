"""`pflsim calibrate`: measures how fast this host trains the model of a description, for `devices = { file = ... }`."""

import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tomli_w

from nodes.speed import speed_here
from pflsim.errors import DescriptionError
from pflsim.spec import validate


def calibrate(tables: Mapping[str, Any], out: Path) -> None:
    """Time training steps of the description's model and batch, in one thread, and write the speed to `out`."""
    if out.exists():
        raise DescriptionError("--out", str(out), "exists already; name a file that does not")
    import torch

    from pflsim.study import Study

    torch.set_num_threads(1)
    study = Study(validate(tables), b"measured")
    speed = speed_here(study)
    about = {
        "flops_per_second": speed,
        "host": platform.node(),
        "processor": platform.processor() or platform.machine(),
        "torch": torch.__version__,
        "model": study.description.model.name,
        "batch": study.training.batch,
    }
    with out.open("x", encoding="utf-8") as file:
        file.write(tomli_w.dumps(about))
    print(f"{speed / 1e9:.3g} GFLOP/s with batches of {study.training.batch} of {study.description.model.name}: {out}")
    print(f'devices = {{ file = "{out}" }} in a description gives every client and the server this speed')
