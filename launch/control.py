"""What a launcher and a host on another machine say to each other: msgpack maps, as on the channel of a local host.

Both sides also say now and then that they are still there, and who says nothing for LOST_S is taken for lost.
"""

import platform
from functools import cache
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import UnionType
from typing import Any

import msgpack

PROTOCOL = 2
"""Of these maps; that of the messages between actors has a number of its own, and is part of the code's digest."""
BEAT_S = 0.5
LOST_S = 8.0
PAUSE_S = 60.0
"""For so long a launcher may be busy with what was recorded when a run goes back to a checkpoint."""
MOST_BYTES = 1 << 26
"""Of one map; what a host that runs thousands of clients says of them has some MB."""
ANY = "0.0.0.0"

FROM_HOSTS: dict[str, dict[str, type | UnionType]] = {
    "hello": {
        "run_id": bytes,
        "name": str,
        "versions": dict,
        "cores": int,
        "memory_bytes": int,
        "clients": int | None,
    },
    "beat": {"sent_ns": int, "clock_ns": int, "peak_bytes": int},
    "built": {"plan": dict},
    "refused": {"key": str, "value": str, "expected": str},
    "failed": {"reason": str},
    "started": {"pids": dict},
    "ended": {"process": str, "code": int, "processor_s": float},
    "echoed": {"data": bytes, "unix_ns": int},
    "timed": {"flops_per_second": float},
    "took": {},
    "leaving": {"reason": str},
    "gone": {},
}
"""What a host may say, and what belongs to it."""


def packed(what: str, **values: Any) -> bytes:
    """One map."""
    whole: bytes = msgpack.packb({"what": what, **values})
    return whole


def unpacked(frames: list[bytes]) -> dict[str, Any]:
    """The map that came. Raises ValueError for anything else."""
    try:
        (whole,) = frames
        said = msgpack.unpackb(whole)
    except (ValueError, TypeError, msgpack.UnpackException) as problem:
        raise ValueError(f"it cannot be read ({type(problem).__name__})") from problem
    if not isinstance(said, dict) or not isinstance(said.get("what"), str):
        raise ValueError("it is no map that says what it is")
    return said


def said_by_host(frames: list[bytes]) -> dict[str, Any]:
    """What a host has said. Raises ValueError for anything that no host says."""
    said = unpacked(frames)
    expected = FROM_HOSTS.get(said["what"])
    if expected is None:
        raise ValueError(f"no host says {said['what']!r:.40}")
    for name, kind in expected.items():
        if name not in said or not isinstance(said[name], kind):
            raise ValueError(f"a host that says {said['what']} must tell its {name}")
    return said


def versions() -> dict[str, str]:
    """What must be equal on all machines of a run, as far as it can be told without importing torch."""
    found = {"protocol": str(PROTOCOL)}
    for package in ("pflsim", "torch", "numpy"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found | {"code": _digest_of_code(), "machine": platform.machine()}


@cache
def _digest_of_code() -> str:
    """Of the two packages that decide what a run computes and says: one version may have been edited."""
    root, whole = Path(__file__).resolve().parent.parent, sha256()
    for file in sorted(file for room in ("pflsim", "nodes") for file in (root / room).rglob("*.py")):
        whole.update(str(file.relative_to(root)).encode() + b"\0" + file.read_bytes() + b"\0")
    return whole.hexdigest()[:12]


def seen_from(endpoint: str, address: str) -> str:
    """An endpoint that is bound at every address of a machine, as somebody reaches it who knows one of them."""
    return endpoint.replace(f"tcp://{ANY}:", f"tcp://{address}:")
