"""Where data files lie and how they are read: the data directory, idx files (plain or .gz), npz archives."""

import gzip
import math
import os
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt
from numpy.lib import format as npy

from pflsim.errors import DescriptionError


def data_directory(given: str | None) -> Path:
    """Where data sets lie: `data.dir`, else the environment variable PFLSIM_DATA, else ./data."""
    try:
        return Path(given or os.environ.get("PFLSIM_DATA") or "data").expanduser()
    except RuntimeError as problem:
        raise DescriptionError("data.dir", given, f"names no folder: {problem}") from problem


def missing(name: str, directory: Path, wanted: str) -> NoReturn:
    """Refuse the run because `directory` has no `wanted`, and say which command gets it."""
    get = f"`make data DATA={name} DIR={directory}` gets it"
    elsewhere = "or point data.dir or PFLSIM_DATA at a directory that has it"
    raise DescriptionError("data.dir", str(directory), f"has no {wanted}: {get}, {elsewhere}")


def read_idx(folders: Sequence[Path], stem: str) -> npt.NDArray[np.uint8] | None:
    """The array of the idx file `stem`, or `stem`.gz, in the first folder that has it; None where none has
    it.

    Read here and not through torchvision, which lays the files out, because torchvision cannot read the .gz
    files of Debian's package and takes seconds to import. Raises DescriptionError for a file that is no idx
    file or cut short.
    """
    for path in (folder / f"{stem}{ending}" for folder in folders for ending in ("", ".gz")):
        if path.is_file():
            return _idx(path)
    return None


def _idx(path: Path) -> npt.NDArray[np.uint8]:
    try:
        content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (OSError, EOFError, zlib.error) as problem:
        raise DescriptionError("data.dir", str(path), f"cannot be read: {problem}") from problem
    dimensions = content[3] if len(content) > 3 else 0
    start = 4 + 4 * dimensions
    if content[:3] != b"\0\0\x08" or not 1 <= dimensions <= 4 or len(content) < start:
        raise DescriptionError("data.dir", str(path), "is not an idx file of bytes")
    shape = np.frombuffer(content, ">u4", dimensions, 4).tolist()
    if len(content) - start != math.prod(shape):
        wanted = f"has {len(content) - start} bytes of data where its header says {math.prod(shape)}: get it again"
        raise DescriptionError("data.dir", str(path), wanted)
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)


def read_npz(path: Path, key: str, wanted: Sequence[Sequence[str]]) -> list[npt.NDArray[Any] | None]:
    """For each list of names in `wanted` the array under the first that the archive has, or None.

    Raises DescriptionError naming `key` for what is no npz archive. Pickled objects are never loaded, and no memory
    is taken for more than the archive can hold, whatever its headers say.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            there = {member.filename.removesuffix(".npy"): member for member in archive.infolist()}
            present = [next((there[name] for name in names if name in there), None) for names in wanted]
            return [None if member is None else _array(archive, member, path.stat().st_size) for member in present]
    except (*_DAMAGE, zipfile.BadZipFile) as problem:
        raise DescriptionError(key, str(path), f"cannot be read as an npz archive: {problem}") from problem


_DAMAGE = (OSError, ValueError, EOFError, RuntimeError, NotImplementedError, zlib.error)
"""What reading a damaged, encrypted or foreign archive raises."""
_DENSEST = 1100  # deflate makes at most about 1032 bytes of one


def _array(archive: zipfile.ZipFile, member: zipfile.ZipInfo, archive_bytes: int) -> npt.NDArray[Any]:
    with archive.open(member) as stream:
        version = npy.read_magic(stream)
        read_header = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}.get(version)
        if read_header is None:
            raise ValueError(f"{member.filename} has the unknown version {version}")
        shape, _, dtype = read_header(stream)
    claimed = math.prod(shape) * dtype.itemsize
    if min(shape, default=0) < 0 or claimed > member.file_size or member.file_size > _DENSEST * archive_bytes:
        raise ValueError(f"the header of {member.filename} says {shape}, which is not what the file holds")
    with archive.open(member) as stream:
        return npy.read_array(stream, allow_pickle=False)
