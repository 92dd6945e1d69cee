"""`python -m tests.killed_completing N python -m launch.cli ...`: a launcher that is killed when it has written what
completes its N-th checkpoint, and has not given it its name.
"""

import os
import signal
import sys
from pathlib import Path

from launch import checkpoints
from launch.cli import main


def killed_at(number: int) -> None:
    """Die at the rename that completes this checkpoint."""
    rename, left = Path.rename, [number]

    def counted(path: Path, target: Path) -> Path:
        if Path(target).name == checkpoints.MANIFEST:
            left[0] -= 1
            if not left[0]:
                os.kill(os.getpid(), signal.SIGKILL)
        return rename(path, target)

    Path.rename = counted  # type: ignore[method-assign]


if __name__ == "__main__":
    killed_at(int(sys.argv[1]))
    sys.argv = sys.argv[4:]
    main()
