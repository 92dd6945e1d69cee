"""The cases in which a simulated network is compared with a real one: in each, something else limits the rounds."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from launch.fidelity.bed import Line
from launch.fidelity.relay import Disturbance
from launch.fidelity.runs import SERVER

FAST_MBPS = 1000.0
CLIENTS = 4


@dataclass(frozen=True)
class Case:
    """Clients on a machine each, and a server on its own."""

    name: str
    client: Line = field(default_factory=lambda: Line(FAST_MBPS, FAST_MBPS))
    server: Line = field(default_factory=lambda: Line(FAST_MBPS, FAST_MBPS))
    latency_s: float = 0.0
    devices: Mapping[str, Any] = field(default_factory=dict)
    hidden: int = 400

    @property
    def machines(self) -> list[str]:
        """The clients' machines."""
        return [f"m{number}" for number in range(CLIENTS)]

    @property
    def lines(self) -> dict[str, Line]:
        """Of all machines."""
        return {SERVER: self.server} | dict.fromkeys(self.machines, self.client)

    @property
    def disturbance(self) -> Disturbance | None:
        """What the bed's relay does, if there has to be one."""
        return Disturbance(self.latency_s) if self.latency_s else None

    def tables(self, *, is_real: bool, rounds: int) -> dict[str, Any]:
        """The study: over the bed only computing is modelled, for there the network is real."""
        ends = {"client": vars(self.client), "server": vars(self.server)}
        return {
            "run": {"rounds": rounds, "clients": CLIENTS, "eval_every": 0, "name": self.name},
            "time": {"mode": "wall" if is_real else "virtual"},
            "algorithm": {"name": "fedavg"},
            "data": {"name": "digits", "partition": {"name": "iid"}},
            "training": {"step_size": 0.05, "batch": 20, "local_steps": 10},
            "model": {"name": "dnn", "hidden": [self.hidden]},
            "devices": {"kind": "constant", "flops_per_second": 2e9, "server_flops_per_second": "workstation"}
            | dict(self.devices),
            "links": "ideal" if is_real else ends | {"latency_ms": 1000 * (self.latency_s or SWITCH_S)},
            "record": {"plot": False, "report": False},
        }


SWITCH_S = 0.0001
"""From one machine to another through the kernel."""

CASES = (
    Case("uplink-bound", client=Line(2.0, 100.0)),
    Case("downlink-bound", client=Line(100.0, FAST_MBPS), server=Line(FAST_MBPS, 8.0)),
    Case("latency-bound", latency_s=0.25, hidden=10),
    Case("compute-stragglers", devices={"kind": "bimodal", "stragglers": 1, "slowdown": 20.0}),
)
