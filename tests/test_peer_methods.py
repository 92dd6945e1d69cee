"""Methods without a server where they are another method: on the full graph, without neighbours, at their limits."""

from typing import Any

import numpy as np
import pytest
import torch

from nodes.sequential import run_sequentially
from pflsim.algorithms.dditto import DDitto
from pflsim.algorithms.dfedper import DFedPer
from pflsim.algorithms.ditto import Ditto
from pflsim.algorithms.dpfedme import DPFedMe
from pflsim.algorithms.dpsgd import DPSGD
from pflsim.algorithms.fedavg import FedAvg
from pflsim.algorithms.local import Local
from pflsim.algorithms.pfedme import PFedMe
from pflsim.conformance.peer_rounds import on_graph, run_peers
from pflsim.conformance.rounds import run
from pflsim.errors import DescriptionError
from pflsim.federation import Neighbour
from pflsim.spec import validate
from pflsim.study import Study
from tests.launching import description
from tests.problems import classification, least_squares
from tests.test_equivalences import ROUNDS, near, same
from tests.test_fedu import N, random_graph

FULL = 1.0 - np.eye(N)
RING = np.roll(np.eye(N), 1, axis=1) + np.roll(np.eye(N), -1, axis=1)
NOBODY = np.zeros((N, N))


def problem_on(graph: np.ndarray, **training: Any) -> Any:
    return on_graph(least_squares(graph=graph, **training), graph)


def networks_on(graph: np.ndarray, **training: Any) -> Any:
    """Two layers: 4 inputs, 6 hidden units, 3 classes."""
    return on_graph(classification(N, graph=graph, hidden=6, **training), graph)


def all_peers(ran: Any, name: str) -> torch.Tensor:
    return torch.stack([you[name] for you in ran.you])


def all_clients(ran: Any, name: str) -> torch.Tensor:
    return torch.stack([you[name] for you in ran.you])


def test_dpsgd_on_the_full_graph_is_fedavg_with_uniform_weights() -> None:
    """There the Metropolis-Hastings matrix is 1 / N everywhere."""
    dpsgd, fedavg = run_peers(DPSGD(), problem_on(FULL), ROUNDS), run(FedAvg("uniform"), problem_on(FULL), ROUNDS)
    near(all_peers(dpsgd, "w"), fedavg.all["x"].repeat(N, 1))


def test_a_round_of_dpsgd_by_hand_on_a_line() -> None:
    """Of three in a line the middle has two neighbours: W = 1/3 on both edges, 2/3 stay at the ends."""
    line = np.array([[0.0, 5.0, 0.0], [5.0, 0.0, 1.0], [0.0, 1.0, 0.0]])
    ran = run_peers(DPSGD(), on_graph(least_squares((7, 12, 9), graph=line), line), 1)
    v = torch.stack([you["w"] for you in ran.worked[0]])
    near(all_peers(ran, "w"), torch.tensor([[2.0, 1.0, 0.0], [1.0, 1.0, 1.0], [0.0, 1.0, 2.0]]).double() / 3 @ v)


def test_dditto_on_the_full_graph_is_ditto_with_all_clients() -> None:
    for settings in ({"lam": 0.7}, {"lam": 2.0, "eta_p": 0.03, "personal_steps": 2}):
        peers, ditto = (
            run_peers(DDitto(**settings), problem_on(FULL), ROUNDS),
            run(Ditto(**settings), problem_on(FULL), ROUNDS),
        )
        near(all_peers(peers, "v"), all_clients(ditto, "v"))
        near(all_peers(peers, "w"), ditto.all["x"].repeat(N, 1))


def test_the_common_branch_of_dditto_is_dpsgd_bit_for_bit() -> None:
    dditto, dpsgd = (run_peers(method, problem_on(RING), ROUNDS) for method in (DDitto(lam=1.5), DPSGD()))
    same(all_peers(dditto, "w"), all_peers(dpsgd, "w"))


def test_dditto_that_is_not_pulled_trains_alone_whoever_its_neighbours_are() -> None:
    """lambda = 0: the personal branch is Local, with its own batches."""
    ring, alone = (run_peers(DDitto(lam=0.0), problem_on(graph), ROUNDS) for graph in (RING, NOBODY))
    same(all_peers(ring, "v"), all_peers(alone, "v"))
    problem = least_squares(graph=NOBODY, stream_of=lambda purpose: "batch")  # both branches draw from Local's stream
    dditto = run_peers(DDitto(lam=0.0), on_graph(problem, NOBODY), ROUNDS)
    local = run(Local(), problem, ROUNDS)
    near(all_peers(dditto, "v"), all_clients(local, "w"))
    near(all_peers(dditto, "w"), all_clients(local, "w"))


def test_dditto_is_pulled_towards_what_was_mixed_and_not_towards_what_it_has_trained() -> None:
    """With eta_p lambda = 1 and no slope, one personal step ends exactly at the anchor."""
    problem = problem_on(RING, local_steps=1)
    ran = run_peers(DDitto(lam=1e9, eta_p=1e-9, allow_unstable=True), problem, ROUNDS)
    before = torch.stack([you["w"] for you in ran.after[-2]])
    near(all_peers(ran, "v"), before, 1e-7)
    assert float((all_peers(ran, "w") - before).norm()) > 1e-3


def test_dpfedme_on_the_full_graph_is_pfedme_with_all_clients() -> None:
    for settings in (
        {"lam": 3.0, "eta_p": 0.05},
        {"lam": 8.0, "eta_p": 0.02, "inner_steps": 2, "theta_init": "persist"},
    ):
        peers, server = (
            run_peers(DPFedMe(**settings), problem_on(FULL), ROUNDS),
            run(PFedMe(**settings), problem_on(FULL), ROUNDS),
        )
        near(all_peers(peers, "theta"), all_clients(server, "theta"))
        near(all_peers(peers, "w"), server.all["x"].repeat(N, 1))


def test_dpfedme_without_neighbours_is_pfedme_of_one_client_each() -> None:
    """The Moreau iteration on f_k alone; its bits are those of the server's form for each client by itself."""
    settings = {"lam": 3.0, "eta_p": 0.05}
    peers = run_peers(DPFedMe(**settings), problem_on(NOBODY), ROUNDS)
    for k in range(N):
        alone = run(PFedMe(**settings), problem_on(NOBODY), ROUNDS, lambda *_, k=k: [k])
        near(peers.you[k]["theta"], alone.you[k]["theta"])
        near(peers.you[k]["w"], alone.all["x"])


def test_dpfedme_with_lambda_0_stays_where_it_is_and_trains_theta_alone() -> None:
    ran = run_peers(DPFedMe(lam=0.0, eta_p=0.05, mu=0.0, inner_steps=1, theta_init="persist"), problem_on(RING), ROUNDS)
    local = run(Local(), problem_on(RING), ROUNDS)
    near(all_peers(ran, "w"), problem_on(RING).federation.initial.repeat(N, 1))
    near(all_peers(ran, "theta"), all_clients(local, "w"))


def test_dpfedme_mixes_w_by_metropolis_and_hastings_and_keeps_theta() -> None:
    graph = random_graph()
    problem = problem_on(graph)
    ran = run_peers(DPFedMe(lam=3.0, eta_p=0.05), problem, 1)
    w, theta = (torch.stack([you[name] for you in ran.worked[0]]) for name in ("w", "theta"))
    near(all_peers(ran, "w"), torch.from_numpy(problem.federation.topology.mixing(0)) @ w)
    same(all_peers(ran, "theta"), theta)


def test_dfedper_without_personal_layers_is_dpsgd_bit_for_bit() -> None:
    dfedper, dpsgd = (run_peers(method, networks_on(RING), ROUNDS) for method in (DFedPer(0), DPSGD()))
    same(all_peers(dfedper, "base"), all_peers(dpsgd, "w"))
    assert all_peers(dfedper, "head").shape == (N, 0)


def test_dfedper_with_only_personal_layers_is_local_bit_for_bit_and_shows_nothing() -> None:
    method, problem = DFedPer(2), networks_on(RING)
    dfedper, local = run_peers(method, problem, ROUNDS), run(Local(), networks_on(RING), ROUNDS)
    same(all_peers(dfedper, "head"), all_clients(local, "w"))
    assert method.peer_shows(dfedper.you[0]) == {}
    assert "all 2 of the model's layers are personal" in method.check(problem.federation)[0]


def test_dfedper_averages_the_first_layer_and_keeps_the_last() -> None:
    """4 x 6 weights and 6 biases are the base; on the full graph, everybody's base is the mean of all."""
    ran = run_peers(DFedPer(), networks_on(FULL), 1)
    bases, heads = (torch.stack([you[name] for you in ran.worked[0]]) for name in ("base", "head"))
    assert bases.shape == (N, 30) and heads.shape == (N, 21)
    torch.testing.assert_close(all_peers(ran, "base"), bases.mean(0).repeat(N, 1), rtol=1e-6, atol=1e-6)
    same(all_peers(ran, "head"), heads)
    assert DFedPer().peer_shows(ran.you[0]).keys() == {"base"}
    assert float((heads[0] - heads[1]).norm()) > 1e-3


def test_dfedper_evaluates_the_own_base_with_the_own_head() -> None:
    problem = networks_on(RING)
    you = run_peers(DFedPer(), problem, 1).you[2]
    models = DFedPer().client_model(you, {}, problem.new_task(2, 1, 1))
    same(models["personalised"], torch.cat([you["base"], you["head"]]))


@pytest.mark.parametrize(
    ("method", "complaint"),
    [
        (DDitto(lam=40.0), r"algorithm.lam = 40.0: eta_p lambda = 2 must be below 2"),
        (DDitto(lam=0.5, eta_p=4.0), r"algorithm.lam = 0.5: eta_p lambda = 2 must be below 2"),
        (DDitto(personal_steps=0), "algorithm.personal_steps = 0"),
        (DPFedMe(lam=40.0), r"algorithm.lam = 40.0: eta lambda = 2 must be below 2"),
        (DPFedMe(lam=1.0, eta_p=2.0), r"algorithm.eta_p = 2.0: eta_p \(lambda \+ mu\).* must be below 2"),
        (DPFedMe(inner_steps=0), "algorithm.inner_steps = 0"),
        (DFedPer(3), "algorithm.personal_layers = 3: must be from 0 to 2"),
        (DFedPer(-1), "algorithm.personal_layers = -1: must be from 0 to 2"),
    ],
)
def test_what_diverges_or_cannot_be_is_refused(method: Any, complaint: str) -> None:
    with pytest.raises(DescriptionError, match=complaint):
        method.check(networks_on(RING).federation)


@pytest.mark.parametrize("method", [DDitto(lam=40.0, allow_unstable=True), DPFedMe(lam=40.0, allow_unstable=True)])
def test_what_diverges_runs_if_it_is_asked_for_and_is_warned_about(method: Any) -> None:
    assert any("overshoots" in warning for warning in method.check(networks_on(RING).federation))


@pytest.mark.parametrize("name", ["momentum", "weight_decay"])
def test_dpfedme_has_steps_of_its_own(name: str) -> None:
    with pytest.raises(DescriptionError, match=f"training.{name} = 0.1: dpfedme has steps of its own"):
        DPFedMe().check(networks_on(RING, **{name: 0.1}).federation)


def test_even_shares_average_the_own_model_and_those_that_came_alike() -> None:
    """What push, epidemics and pairs give: of k models that came, 1 / (1 + k) each."""
    problem = problem_on(RING)
    v = torch.arange(12.0, dtype=torch.float64).reshape(4, 3) ** 2
    came = [Neighbour(k, {"w": v[k]}, 0.3, 1 / 4) for k in (1, 2, 3)]
    for method in (DPSGD(), DDitto(), DPFedMe()):
        state = method.client_init(problem.client(0)) if method == DPSGD() else {"w": v[0], "v": v[0]}
        near(method.peer_step({**state, "w": v[0]}, came, None)["w"], v.mean(0))


def test_a_model_that_is_personal_in_all_of_its_layers_runs_though_nothing_is_shown() -> None:
    tables = description(algorithm={"name": "dfedper"}, topology={"name": "ring"}, run__eval_every=1)
    found = run_sequentially(Study(validate(tables), b"8 bytes."))
    shown = [fact for fact in found.facts if fact[0] == "sent" and fact[3] == "PUSH"]
    assert shown and {fact[7] for fact in shown} == {0}
