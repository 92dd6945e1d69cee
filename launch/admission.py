"""Which of the hosts that come may take part in a run: those that have built just what the launcher has."""

from collections.abc import Callable, Mapping
from typing import Any

from launch.reception import Reception, RemoteHost

SHOWN = 24
"""Of a version or a digest, so many letters."""


class Admission:
    """The hosts of a run before it begins; one that cannot take part is told why, and another may come."""

    def __init__(
        self,
        reception: Reception,
        mine: Mapping[str, str],
        welcome: Mapping[str, Any],
        tell: Callable[[str, str, str], None],
    ) -> None:
        """`mine` is what the launcher has, by name; `welcome` what a host must know; `tell` records an event."""
        self._reception, self._mine, self._welcome, self._tell = reception, mine, welcome, tell

    @property
    def ready(self) -> list[RemoteHost]:
        """Who may take part."""
        return [host for host in self._reception.hosts if host.is_ready]

    @property
    def still_building(self) -> str:
        """Who is not yet ready, in words."""
        rest = [host.name for host in self._reception.hosts if not host.is_ready]
        return f"; {', '.join(rest)} had not loaded the data by then" if rest else ""

    def is_complete(self, least: int) -> bool:
        """Whether all that have come are ready, and so many at least."""
        return len(self._reception.hosts) == len(self.ready) >= least

    def begin_again(self) -> None:
        """Those that are there from before a run went back to a checkpoint make all anew."""
        for host in self._reception.hosts:
            host.is_ready = False
            self._welcome_in(host)

    def _welcome_in(self, host: RemoteHost) -> None:
        host.say("welcome", name=host.name, **self._welcome)

    def hear(self, host: RemoteHost, said: Mapping[str, Any]) -> None:
        """Take what a host says."""
        if said["what"] == "hello":
            self._welcome_in(host)
        elif said["what"] == "built":
            self._compare(host, said["plan"])
        elif said["what"] == "refused":
            self._turn_away(host, f"{said['key']} = {said['value']}: {said['expected']}")
        elif said["what"] in ("failed", "lost", "leaving"):
            self._turn_away(host, str(said["reason"]))

    def _compare(self, host: RemoteHost, plan: Mapping[str, Any]) -> None:
        """Equal bits need equal data and equal arithmetic."""
        theirs = plan.get("has")
        for what, value in self._mine.items():
            other = theirs.get(what) if isinstance(theirs, dict) else None
            if other != value:
                self._turn_away(host, f"it has {what} {other!s:.{SHOWN}}, the launcher has {value:.{SHOWN}}")
                return
        host.is_ready, host.logs = True, str(plan.get("logs", ""))
        memory = f"{host.offers.memory_bytes / 1e9:.1f} GB free"
        self._tell(host.name, "host joined", f"joined with {host.offers.cores} cores, {memory}; logs in {host.logs}")

    def _turn_away(self, host: RemoteHost, words: str) -> None:
        self._reception.dismiss(host, words)
        self._reception.on_refused(f"refused {host.name}: {words}")
