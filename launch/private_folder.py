"""The private folder of a run, in which its sockets lie: short enough a path for them, and gone when the run is."""

import fcntl
import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

from pflsim.errors import DescriptionError

PREFIX = "pflsim-"
LONGEST_PATH_BYTES = 103
"""Of a Unix socket: the system's limit without the closing zero, 107 on Linux and 103 on macOS."""
LONGEST_NAME = "/recorder"
PLACES = ("/tmp", "/var/tmp")
"""Where to go when the temporary folder cannot be used."""
_LOCK = "launcher"


class PrivateFolder:
    """A new folder that nobody else may enter. A launcher that was killed could not remove its own: this one does."""

    def __init__(self) -> None:
        self.path, self._lock = _made()

    def remove(self) -> None:
        """Remove it with all that is in it."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)


def _made() -> tuple[Path, int]:
    tried = []
    for place in dict.fromkeys([_temporary(), *PLACES]):
        if place is None:
            continue
        try:
            _remove_orphans(Path(place))
            path = Path(tempfile.mkdtemp(prefix=PREFIX, dir=place))
        except OSError as problem:
            tried.append(f"{place}: {problem.strerror}")
            continue
        if len(os.fsencode(f"{path}{LONGEST_NAME}")) <= LONGEST_PATH_BYTES:
            return path, _locked(path)
        path.rmdir()
        tried.append(f"{place}: its path is too long for a socket")
    expected = f"name a folder that can be written and has a short path ({'; '.join(tried)})"
    raise DescriptionError("TMPDIR", os.environ.get("TMPDIR", ""), expected)


def _temporary() -> str | None:
    try:
        return tempfile.gettempdir()
    except FileNotFoundError:
        return None


def _locked(path: Path) -> int:
    """Hold a lock in the folder for as long as this process lives; it says that the folder is in use."""
    new = path / "new"
    descriptor = os.open(new, os.O_CREAT | os.O_RDWR, 0o600)
    with suppress(OSError):  # where there are no locks, nobody can take the folder for an orphan either
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    new.rename(path / _LOCK)  # only now, so that nobody sees it unlocked
    return descriptor


def _remove_orphans(place: Path) -> None:
    """Remove the folders of launchers that are no more, as their locks tell."""
    for path in place.glob(f"{PREFIX}*/{_LOCK}"):
        with suppress(OSError):
            descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.fstat(descriptor).st_uid == os.getuid():
                    shutil.rmtree(path.parent, ignore_errors=True)
            finally:
                os.close(descriptor)
