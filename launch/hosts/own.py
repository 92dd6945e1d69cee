"""What this machine, the launcher's, has: with that of the hosts is compared."""

import tempfile
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from launch.host import LocalHost
from launch.local import Shown
from pflsim.errors import DescriptionError, RunFailed


class OwnHost:
    """A host of this machine that builds what the others build."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="pflsim-own-")
        self._host = LocalHost(Path(self._folder.name) / "host.log")

    def close(self) -> None:
        """End it."""
        self._host.end()
        self._folder.cleanup()

    def build(
        self, order: Mapping[str, Any], within_s: float, meanwhile: Callable[[], None] = lambda: None
    ) -> Mapping[str, Any]:
        """The plan of what it has built; `meanwhile` is called now and then. Raises DescriptionError or RunFailed."""
        self._host.say("build", **order)
        said = self._host.hear_within(within_s, meanwhile)
        if said["what"] == "refused":
            raise DescriptionError(said["key"], Shown(said["value"]), said["expected"])
        if said["what"] != "built":
            raise RunFailed("host", said["reason"])
        plan: Mapping[str, Any] = said["plan"]
        return plan

    def flops_per_second(self, within_s: float) -> float:
        """How fast it trains what it has built."""
        self._host.say("time")
        return float(self._host.hear_within(within_s, lambda: None)["flops_per_second"])


def own_host() -> "closing[OwnHost]":
    """A host of this machine for as long as a with-block lasts."""
    return closing(OwnHost())
