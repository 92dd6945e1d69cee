"""What is measured: the workloads as run descriptions, and what they are meant to reach."""

from dataclasses import dataclass
from typing import Any

EACH, PACKED = "one process per client", "two client processes"
PLAIN, SHARED = "plain", "shared"


@dataclass(frozen=True)
class Target:
    """A bound on a median: at least `bound` x the floor's rounds/s, or at most `bound` seconds or bytes."""

    form: str
    quantity: str  # "plain" or "shared" (a ratio to that floor), "first_round_s", "peak_pss_bytes"
    bound: float

    def met(self, value: float) -> bool:
        """Whether `value` keeps the bound."""
        return value >= self.bound if self.quantity in (PLAIN, SHARED) else value <= self.bound


@dataclass(frozen=True)
class Workload:
    """A run description, the forms in which it runs, and the targets."""

    name: str
    what: str
    tables: dict[str, Any]
    forms: tuple[str, ...]
    targets: tuple[Target, ...]

    def tables_for(self, form: str) -> dict[str, Any]:
        """The run description of one form."""
        run = self.tables["run"]
        share = 1 if form == EACH else -(-run["clients"] // 2)
        return self.tables | {"run": run | {"clients_per_process": share}}

    def target(self, form: str, quantity: str) -> Target | None:
        """The target for a quantity of a form, if there is one."""
        found = [target for target in self.targets if (target.form, target.quantity) == (form, quantity)]
        return found[0] if found else None


def workloads(quick: bool = False) -> dict[str, Workload]:
    """All workloads by name; `quick` makes them too small to mean anything, for trying the bench itself."""
    few, many, floats, rounds = (4, 8, 10_000, 4) if quick else (40, 500, 10_000_000, 50)
    samples, cohort = (40, 4) if quick else (600, 10)
    mlr, dnn = {"name": "mlr"}, {"name": "dnn", "hidden": [128]}
    sampled = {"schedule": {"kind": "sync", "sampling": "uniform", "cohort": cohort}}
    return {
        "W1": Workload(
            "W1",
            f"{few} clients, MLR 784-10, batch 20, 20 steps, FedAvg",
            _learning(few, rounds, samples, mlr, batch=20),
            (EACH, PACKED),
            (Target(EACH, PLAIN, 4.0), Target(EACH, "first_round_s", 3.0), Target(PACKED, SHARED, 0.7)),
        ),
        "W2": Workload(
            "W2",
            f"{few} clients, DNN 784-128-10, batch 32, 20 steps, FedAvg",
            _learning(few, rounds, samples, dnn, batch=32),
            (EACH, PACKED),
            (Target(EACH, PLAIN, 3.0), Target(PACKED, SHARED, 0.8)),
        ),
        "W3": Workload(
            "W3",
            f"10 clients, {floats:,} floats each way, trivial step",
            _transport(10, min(rounds, 5), floats),
            (EACH,),
            (Target(EACH, SHARED, 0.25),),
        ),
        "W4": Workload(
            "W4",
            f"{many} clients, {cohort} of them a round, otherwise W1",
            _learning(many, rounds, samples, mlr, batch=20, pool=60_000 if not quick else 600) | sampled,
            (EACH,),
            (
                Target(EACH, PLAIN, 1.8),
                Target(EACH, "first_round_s", 6.0),
                Target(EACH, "peak_pss_bytes", 5e9),
            ),
        ),
    }


def _learning(
    clients: int, rounds: int, samples: int, model: dict[str, Any], batch: int, pool: int | None = None
) -> dict[str, Any]:
    """Clients of `samples` training samples each, a third as many to test: their own, or drawn from `pool` rows."""
    held = samples * 4 // 3
    common = {"name": "uniform-overlap", "classes": 10, "low": held, "high": held}
    return {
        "links": "ideal",
        "devices": "workstation",
        "run": {"clients": clients, "rounds": rounds, "eval_every": 0},
        "training": {"step_size": 0.05, "batch": batch, "local_steps": 20},
        "algorithm": {"name": "fedavg"},
        "data": {
            "name": "synthetic",
            "samples": pool or clients * held,
            "partition": common if pool else {"name": "iid"},
            "features": 784,
            "classes": 10,
            "contexts": 1,
        },
        "model": model,
        "record": {"plot": False, "report": False},
    }


def _transport(clients: int, rounds: int, floats: int) -> dict[str, Any]:
    return {
        "links": "ideal",
        "devices": "workstation",
        "run": {"clients": clients, "rounds": rounds, "eval_every": 0},
        "training": {"step_size": 1.0, "batch": 4, "local_steps": 1},
        "algorithm": {"name": "launch.bench.transport:Halve"},
        "data": {"name": "synthetic", "samples": clients * 8, "features": 2, "classes": 2, "contexts": 1},
        "model": {"name": "launch.bench.transport:vector", "floats": floats},
        "record": {"plot": False, "report": False},
    }
