"""dFedU: what its Laplacian step keeps, where it is another method, and when it is refused."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from nodes.sequential import run_sequentially
from pflsim.algorithms.dfedu import DFedU
from pflsim.algorithms.dpsgd import DPSGD
from pflsim.algorithms.fedavg import FedAvg
from pflsim.conformance.peer_rounds import mixed, on_graph, run_peers
from pflsim.conformance.rounds import run
from pflsim.errors import DescriptionError
from pflsim.federation import Round
from pflsim.record.result import Result
from pflsim.spec import validate
from pflsim.study import Study
from pflsim.topology import lambda_max, laplacian
from tests.launching import description, run_here
from tests.problems import least_squares
from tests.test_equivalences import ROUNDS, near, same
from tests.test_fedu import COMPLETE, N, clients_of_a_star, optimum_on_a_star, random_graph, some_models, star

GRAPHS: dict[str, dict[str, Any]] = {
    "similar": {"name": "similar"},
    "ring": {"name": "ring"},
    "regular, weighted by size": {"name": "regular", "degree": 3, "weights": "weighted"},
    "Erdős-Rényi, random weights": {"name": "erdos-renyi", "probability": 0.4, "weights": "random"},
    "drawn anew each round": {"name": "random-regular-each-round", "degree": 3},
    "matchings": {"name": "matching", "weights": "random"},
    "one peer, exponential": {"name": "one-peer-exponential"},
}


def method_of(c: float, step_size: float = 0.05, **settings: Any) -> DFedU:
    """A dFedU whose coefficient mu R eta_r is `c`."""
    return DFedU(eta_r=c / step_size, reg_R="steps", allow_unstable=True, **settings)


def laplacian_step(method: DFedU, models: torch.Tensor, graph: np.ndarray) -> torch.Tensor:
    """What all peers make of `models` [N, d] of themselves and their neighbours, after R = 1 step."""
    problem = on_graph(least_squares([4] * len(models), graph=graph, local_steps=1), graph)
    round = Round(0, (), problem.federation, problem.federation.training.step_size)
    states = mixed(method, [{"w": model} for model in models], problem.federation.topology, round)
    return torch.stack([you["w"] for you in states])


class Seen:
    """A method of which every evaluated model is kept, by client; of a client's the last."""

    def __init__(self, method: Any) -> None:
        self._method = method
        self.models: dict[int, dict[str, torch.Tensor]] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._method, name)

    def client_model(self, you: Any, down: Any, task: Any) -> Any:
        models = self._method.client_model(you, down, task)
        self.models[task.client] = {name: model.clone() for name, model in models.items()}
        return models


def last_models(tables: Mapping[str, Any], name: str, **settings: Any) -> torch.Tensor:
    """Every client's headline model [N, d] after the last round of a run with the sequential driver."""
    study = Study(validate({**tables, "algorithm": {"name": name, **settings}}), b"tried")
    seen = study.method = Seen(study.method)
    run_sequentially(study)
    return torch.stack([next(iter(seen.models[client].values())) for client in range(len(study.names))])


def small_run(topology: dict[str, Any], **settings: Any) -> dict[str, Any]:
    return description(topology=topology, run__clients=8, run__rounds=6, run__eval_every=6, **settings)


@pytest.mark.parametrize("graph", GRAPHS)
def test_e44_dfedu_is_fedu_with_all_clients_bit_for_bit(graph: str) -> None:
    """Every w_k of the last round, on graphs that stay and on graphs that change."""
    tables = small_run(GRAPHS[graph])
    for settings in ({"eta_r": 0.1}, {"eta_r": 0.5, "normalised": True, "reg_scale": 0.5}):
        peers, server = last_models(tables, "dfedu", **settings), last_models(tables, "fedu", **settings)
        same(peers, server)
    local = last_models(tables, "local")
    assert not torch.equal(peers, local), "the neighbours count for something here"


def test_e44_holds_for_visits_of_several_epochs_and_a_step_size_that_decays() -> None:
    training = {"step_size": 0.1, "local_epochs": 2, "momentum": 0.5, "schedule": "exponential", "decay": 0.7}
    tables = small_run({"name": "similar"}, training=training)
    same(last_models(tables, "dfedu", eta_r=0.1), last_models(tables, "fedu", eta_r=0.1))


@pytest.mark.slow
def test_e44_holds_between_processes(tmp_path: Path) -> None:
    """Each client's accuracy and loss in every round have the same bits, and so have the digests of both drivers."""
    tables = description(topology={"name": "similar"}, run__clients=6)
    found: dict[str, Result] = {}
    for name in ("dfedu", "fedu"):
        found[name] = run_here({**tables, "algorithm": {"name": name, "eta_r": 0.5}}, tmp_path / name)
    dfedu, fedu = (_evaluations(result) for result in found.values())
    assert len(dfedu) == 3 * 6
    assert dfedu == fedu
    again = run_sequentially(Study(validate({**tables, "algorithm": {"name": "dfedu", "eta_r": 0.5}}), b"tried"))
    assert again.finished()["digest"] == found["dfedu"].summary["digest"]


def _evaluations(result: Result) -> list[tuple[Any, ...]]:
    columns = ("round", "client", "model", "split", "correct", "total", "loss")
    return sorted(tuple(row[column] for column in columns) for row in result.rows("evaluations"))


def test_e40_dfedu_without_regularisation_is_local() -> None:
    """Bit for bit."""
    tables = small_run({"name": "full"})
    same(last_models(tables, "dfedu", eta_r=0.0), last_models(tables, "local"))


def test_e41_dfedu_on_the_complete_graph_is_fedavg_and_dpsgd_when_the_pull_is_full() -> None:
    """c a N = 1 makes every model the mean of all, so each round is one of FedAvg, and of D-PSGD on that graph."""
    problem = on_graph(least_squares(graph=COMPLETE, local_steps=1), COMPLETE)
    dfedu, dpsgd = run_peers(method_of(c=1 / (0.5 * N)), problem, ROUNDS), run_peers(DPSGD(), problem, ROUNDS)
    fedavg = run(FedAvg("uniform"), problem, ROUNDS)
    for number in range(ROUNDS):
        for k in range(N):
            near(dfedu.after[number][k]["w"], fedavg.server[number + 1]["x"])
            near(dpsgd.after[number][k]["w"], fedavg.server[number + 1]["x"])


def test_e42_dfedu_on_the_complete_graph_mixes_each_model_with_the_mean() -> None:
    """w_k' = (1 - c N a) v_k + c N a mean(v)."""
    v, c = some_models(), 0.3
    pull = c * N * 0.5
    near(laplacian_step(method_of(c), v, COMPLETE), (1 - pull) * v + pull * v.mean(0))


def test_the_step_of_all_peers_together_is_the_matrix_of_the_paper() -> None:
    v, graph = some_models(), random_graph()
    expected = (torch.eye(N).double() - 0.2 * torch.from_numpy(laplacian(graph))) @ v
    near(laplacian_step(method_of(0.2), v, graph), expected)


def test_e43_the_laplacian_step_of_peers_preserves_the_mean() -> None:
    v = some_models()
    near(laplacian_step(method_of(0.2), v, random_graph()).mean(0), v.mean(0))


@pytest.mark.parametrize(("factor", "settles"), [(0.1, True), (1.0, True), (1.9, True), (2.1, False)])
def test_e45_peers_agree_in_the_end_exactly_if_c_lambda_max_is_below_2(factor: float, settles: bool) -> None:
    graph, models = random_graph(), some_models()
    spread = [float((models - models.mean(0)).norm())]
    for _ in range(300):
        models = laplacian_step(method_of(factor / lambda_max(graph)), models, graph)
        spread.append(float((models - models.mean(0)).norm()))
    assert (spread[-1] < 1e-2 * spread[0]) == settles
    assert (spread[-1] > 1e3 * spread[0]) != settles


def test_e46_the_difference_of_two_peers_shrinks_by_one_minus_2ca() -> None:
    v, c, a = some_models(2), 0.3, 0.8
    moved = laplacian_step(method_of(c), v, np.array([[0.0, a], [a, 0.0]]))
    near(moved[0] - moved[1], (1 - 2 * c * a) * (v[0] - v[1]))


def test_e47_the_components_of_a_graph_run_as_if_they_were_alone(tmp_path: Path) -> None:
    """Bit for bit: a ring of five and a line of three, together and each with the others by themselves."""
    ring, line = [(0, 2), (2, 4), (4, 5), (5, 7), (7, 0)], [(1, 3), (3, 6)]
    together, ring_alone, line_alone = (
        last_models(small_run(edge_list(tmp_path, edges)), "dfedu", eta_r=0.2) for edges in (ring + line, ring, line)
    )
    local = last_models(small_run({"name": "ring"}), "local")
    same(together[[0, 2, 4, 5, 7]], ring_alone[[0, 2, 4, 5, 7]])
    same(together[[1, 3, 6]], line_alone[[1, 3, 6]])
    same(ring_alone[[1, 3, 6]], local[[1, 3, 6]])
    assert not torch.equal(together, local)


def test_e47_a_graph_in_two_parts_is_allowed_with_a_warning(tmp_path: Path) -> None:
    study = Study(validate({**small_run(edge_list(tmp_path, [(0, 1)])), "algorithm": {"name": "dfedu"}}), b"tried")
    assert "the graph is not connected: 7 components, 0, 1; 2; 3" in study.warnings[0]


@pytest.mark.parametrize("schedule", ["neighbours", "asynchronous", "pairs", "push", "epidemic"])
def test_e47_dfedu_without_edges_is_local(tmp_path: Path, schedule: str) -> None:
    """Bit for bit, however models would be exchanged."""
    without = small_run(edge_list(tmp_path, []))
    peers = last_models({**without, "schedule": {"kind": schedule}}, "dfedu", eta_r=1.0)
    same(peers, last_models(without, "local"))


def edge_list(place: Path, edges: list[tuple[int, int]]) -> dict[str, Any]:
    path = place / f"edges-{len(edges)}.csv"
    path.write_text("k,l\n" + "".join(f"{k},{m}\n" for k, m in edges))
    return {"name": "file", "file": str(path)}


def test_e48_dfedu_on_a_star_approaches_the_optimum_of_pfedme_with_its_step_size() -> None:
    """A centre without a loss of its own: z_0 = mean z_k; dFedU misses that by the order of its step size."""
    h, b = clients_of_a_star()
    z0, z = optimum_on_a_star(h, b, eta_r=1.5)
    near(torch.from_numpy(z0), torch.from_numpy(z.mean(0)))
    expected, distances = torch.from_numpy(np.vstack([z0, z])), []
    for step_size in (0.04, 0.02):
        problem = star(h, b, step_size=step_size, local_steps=1)
        problem = on_graph(problem, problem.federation.graph)
        ran = run_peers(DFedU(eta_r=1.5, reg_R="steps"), problem, int(12 / step_size))
        distances.append(float((torch.stack([you["w"] for you in ran.you]) - expected).norm()))
    assert distances[0] < 0.1
    assert distances[1] / distances[0] == pytest.approx(0.5, abs=0.05)


def test_dfedu_refuses_a_step_that_diverges_and_names_the_bound() -> None:
    problem = on_graph(least_squares(graph=COMPLETE, step_size=0.1, local_steps=None, local_epochs=5), COMPLETE)
    with pytest.raises(DescriptionError, match=r"eta_r = 2.0: c lambda_max\(L\).* = 2 must be below 2"):
        DFedU(eta_r=2.0).check(problem.federation)  # c lambda_max = 0.1 * 5 * 2 * (0.5 * 4) = 2
    assert DFedU(eta_r=2.0, allow_unstable=True).check(problem.federation) != []
    assert "above 1" in DFedU(eta_r=1.5).check(problem.federation)[0]
    assert DFedU(eta_r=0.5).check(problem.federation) == []


@pytest.mark.parametrize(
    ("topology", "bound"), [({"name": "random-regular-each-round", "degree": 3}, 6.0), ({"name": "matching"}, 2.0)]
)
def test_on_a_graph_that_changes_the_bound_of_all_rounds_decides_what_is_stable(
    topology: dict[str, Any], bound: float
) -> None:
    """2 max_k D_k: twice the degree here, every edge weighing 1; c = 0.1 * 2 epochs * eta_r."""

    def tried(factor: float, **settings: Any) -> Study:
        algorithm = {"name": "dfedu", "eta_r": factor / bound / 0.2, **settings}
        tables = small_run(topology, training={"step_size": 0.1, "local_epochs": 2}, algorithm=algorithm)
        return Study(validate(tables), b"tried")

    with pytest.raises(DescriptionError, match=r"algorithm.eta_r = .* = 2.004 must be below 2 or the method diverges"):
        tried(2.004)
    assert any("= 1.9 is above 1, so it overshoots" in warning for warning in tried(1.9).warnings)
    assert tried(1.0).warnings == []
    assert tried(2.5, allow_unstable=True).warnings != []
