"""The graphs that clients may form, static and changing: their edges by hand, what each promises, what is refused."""

import functools
import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pflsim.errors import DescriptionError
from pflsim.federation import Answer
from pflsim.rng import stream
from pflsim.spec import validate
from pflsim.study import Study
from pflsim.topology import Topology, components, edges, lambda_max, laplacian, mixing_matrix, spectral_gap
from tests.launching import description

CHANGING = ("random-regular-each-round", "matching", "one-peer-exponential")


def topology(name: str, clients: int, seed: int = 1, *, weights: str = "own", rounds: int = 1, **settings) -> Topology:
    labels = [(k % 5, (k + 1) % 5) for k in range(clients)]
    return Topology(name, settings, labels, np.arange(clients) + 1, seed, weights=weights, rounds=rounds)


def edges_of(name: str, clients: int, round: int = 0, **settings) -> set[tuple[int, int]]:
    return set(edges(topology(name, clients, **settings).at(round)))


def degrees(graph: np.ndarray) -> list[int]:
    return np.count_nonzero(graph, axis=1).tolist()


def refusal(name: str, clients: int, **settings) -> str:
    with pytest.raises(DescriptionError) as refused:
        topology(name, clients, **settings)
    return str(refused.value)


@pytest.mark.parametrize(
    ("name", "clients", "expected"),
    [
        ("ring", 1, set()),
        ("ring", 2, {(0, 1)}),
        ("ring", 5, {(0, 1), (1, 2), (2, 3), (3, 4), (0, 4)}),
        ("line", 4, {(0, 1), (1, 2), (2, 3)}),
        ("star", 4, {(0, 1), (0, 2), (0, 3)}),
        ("full", 4, {(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)}),
        ("torus", 4, {(0, 1), (2, 3), (0, 2), (1, 3)}),
        ("torus", 6, {(0, 1), (1, 2), (0, 2), (3, 4), (4, 5), (3, 5), (0, 3), (1, 4), (2, 5)}),
        ("exponential", 5, set(itertools.combinations(range(5), 2))),
        ("exponential", 8, {(k, o) for k in range(8) for o in range(k, 8) if (o - k) in (1, 2, 4, 6, 7)}),
    ],
)
def test_the_edges_of_a_small_graph_are_those_drawn_by_hand(name, clients, expected):
    graph = topology(name, clients).at(0)
    assert set(edges(graph)) == expected
    assert set(np.unique(graph)) <= {0.0, 1.0}


def test_a_star_has_the_centre_that_is_wanted():
    assert edges_of("star", 4, centre=2) == {(0, 2), (1, 2), (2, 3)}


def test_a_torus_has_the_rows_that_are_wanted_and_is_else_as_square_as_can_be():
    by_default, wide = topology("torus", 24).at(0), topology("torus", 24, rows=3).at(0)
    assert degrees(by_default) == degrees(wide) == [4] * 24
    assert {k for k in range(24) if by_default[0, k]} == {1, 5, 6, 18}  # 4 rows of 6
    assert {k for k in range(24) if wide[0, k]} == {1, 7, 8, 16}  # 3 rows of 8


@given(st.integers(1, 40), st.integers(0, 2**32))
def test_drawn_graphs_have_the_degrees_they_promise(clients, seed):
    even = 2 * min(2, (clients - 1) // 2)
    assert degrees(topology("regular", clients, seed, degree=even).at(0)) == [even] * clients
    world = topology("small-world", clients, seed, neighbours=even, rewiring=0.3).at(0)
    assert len(edges(world)) == clients * even // 2
    if clients > 1:
        attached = min(3, clients - 1)
        grown = topology("barabasi-albert", clients, seed, attached=attached).at(0)
        assert len(edges(grown)) == attached * (clients - attached)
        assert len(components(grown)) == 1
        assert all(own >= 1 for own in degrees(grown))


@given(st.integers(1, 40), st.integers(0, 2**32), st.integers(0, 50))
def test_a_matching_links_everybody_with_one_other_and_leaves_at_most_one_alone(clients, seed, round):
    found = degrees(topology("matching", clients, seed).at(round))
    assert sum(found) == 2 * (clients // 2)
    assert max(found) <= 1


@pytest.mark.parametrize("name", ["regular", "erdos-renyi", "small-world", "barabasi-albert", *CHANGING])
def test_a_graph_depends_on_the_seed_and_the_round_alone(name):
    one, same = topology(name, 20, 7), topology(name, 20, 7)
    for round in reversed(range(12)):  # more than are remembered, in another order
        same.at(round)
    assert all(np.array_equal(one.at(round), same.at(round)) for round in range(12))
    if name != "one-peer-exponential":
        assert not np.array_equal(one.at(0), topology(name, 20, 8).at(0))
    assert one.changes == (name in CHANGING)
    assert np.array_equal(one.at(0), one.at(1)) != one.changes


def test_a_static_graph_is_one_object_that_nobody_can_change():
    ring = topology("ring", 5)
    assert ring.at(3) is ring.at(0)
    with pytest.raises(ValueError, match="read-only"):
        ring.at(0)[0, 2] = 1.0


def test_the_coins_of_erdos_renyi_fall_as_often_as_they_shall():
    graph = topology("erdos-renyi", 200, probability=0.1).at(0)
    pairs = 200 * 199 / 2
    assert abs(len(edges(graph)) - 0.1 * pairs) < 4 * np.sqrt(pairs * 0.1 * 0.9)
    assert edges_of("erdos-renyi", 5, probability=0.0) == set()
    assert edges_of("erdos-renyi", 5, probability=1.0) == edges_of("full", 5)


def test_a_small_world_without_rewiring_is_a_ring_of_neighbourhoods():
    expected = {tuple(sorted((k, (k + distance) % 9))) for k in range(9) for distance in (1, 2)}
    assert edges_of("small-world", 9, rewiring=0.0) == expected
    assert edges_of("small-world", 40, rewiring=0.5) != edges_of("small-world", 40, rewiring=0.0)


def test_one_peer_exponential_pairs_at_distances_1_2_4_in_turn():
    rounds = [edges_of("one-peer-exponential", 6, round) for round in range(4)]
    assert rounds == [{(0, 1), (2, 3), (4, 5)}, {(0, 2), (1, 3)}, {(0, 4), (1, 5)}, {(0, 1), (2, 3), (4, 5)}]


@pytest.mark.parametrize("clients", [1, 2, 8, 64])
def test_one_peer_exponential_reaches_the_exact_mean_after_log2_n_rounds(clients):
    graph = topology("one-peer-exponential", clients)
    steps = [graph.mixing(round) for round in range(clients.bit_length() - 1)]
    whole = functools.reduce(np.matmul, steps, np.eye(clients))
    np.testing.assert_array_equal(whole, np.full((clients, clients), 1.0 / clients))


@given(st.integers(1, 70))
def test_one_peer_exponential_links_everybody_over_its_cycle(clients):
    graph = topology("one-peer-exponential", clients)
    cycle = sum(graph.at(round) for round in range(max(1, (clients - 1).bit_length())))
    assert len(components(cycle)) == 1
    assert all(max(degrees(graph.at(round))) <= 1 for round in range(8))


@given(st.integers(1, 30), st.floats(0, 1), st.integers(0, 1000))
def test_mixing_is_symmetric_doubly_stochastic_and_never_negative(clients, probability, seed):
    graph = topology("erdos-renyi", clients, seed, probability=probability)
    W = graph.mixing()
    np.testing.assert_array_equal(W, W.T)
    np.testing.assert_allclose(W.sum(axis=0), 1.0, rtol=0, atol=1e-15 * clients)
    assert W.min() >= 0.0
    linked = ~np.eye(clients, dtype=bool)
    np.testing.assert_array_equal((W > 0)[linked], (graph.at(0) > 0)[linked])


def test_mixing_weighs_an_edge_by_the_larger_of_its_degrees():
    W = topology("line", 3).mixing()
    np.testing.assert_allclose(W, [[2 / 3, 1 / 3, 0], [1 / 3, 1 / 3, 1 / 3], [0, 1 / 3, 2 / 3]], rtol=1e-15)


@pytest.mark.parametrize("clients", [4, 5, 8, 31])
def test_the_spectral_gap_of_a_ring_is_known_in_closed_form(clients):
    moduli = sorted(abs(1 / 3 + 2 / 3 * np.cos(2 * np.pi * j / clients)) for j in range(clients))
    assert topology("ring", clients).spectral_gap() == pytest.approx(1 - moduli[-2], rel=1e-8)


def test_the_spectral_gap_is_1_where_one_step_gives_everybody_the_mean_and_0_where_none_does():
    assert topology("full", 7).spectral_gap() == pytest.approx(1.0, abs=1e-12)
    assert topology("ring", 1).spectral_gap() == 1.0
    assert topology("matching", 6).spectral_gap() == pytest.approx(0.0, abs=1e-12)
    assert spectral_gap(np.array([[0.0, 1.0], [1.0, 0.0]])) == pytest.approx(0.0, abs=1e-15)  # it swaps for ever


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("star", lambda n: n),
        ("full", lambda n: n),
        ("ring", lambda n: 2 - 2 * np.cos(2 * np.pi * (n // 2) / n)),
        ("line", lambda n: 2 + 2 * np.cos(np.pi / n)),
    ],
)
@pytest.mark.parametrize("clients", [3, 8, 21])
def test_the_largest_eigenvalue_of_the_laplacian_is_known_in_closed_form(name, expected, clients):
    graph = topology(name, clients)
    assert graph.lambda_max() == pytest.approx(expected(clients), rel=1e-8)
    assert graph.lambda_max() <= graph.bound
    assert graph.bound == {"star": 2 * (clients - 1), "full": 2 * (clients - 1)}.get(name, 4)


@pytest.mark.parametrize("name", CHANGING)
def test_the_bound_of_a_graph_that_changes_holds_in_all_its_rounds(name):
    graph = topology(name, 12, weights="random", rounds=30)
    sums = [float(graph.at(round).sum(axis=1).max()) for round in range(30)]
    assert graph.bound == pytest.approx(2 * max(sums), rel=1e-8)
    assert max(lambda_max(graph.at(round)) for round in range(30)) <= graph.bound
    assert topology(name, 12, weights="random", rounds=1).bound == pytest.approx(2 * sums[0], rel=1e-8)


def test_everybody_may_be_linked_with_everybody_only_where_the_graph_changes():
    assert topology("ring", 5).linked(0) == (1, 4)
    assert topology("star", 5).linked(3) == (0,)
    assert topology("matching", 5).linked(3) == (0, 1, 2, 4)


@pytest.mark.parametrize("weights", ["equal", "similar", "weighted"])
def test_scenario_weights_on_all_edges_are_the_scenario(weights):
    np.testing.assert_array_equal(topology("full", 9, weights=weights).at(0), topology(weights, 9).at(0))


@pytest.mark.parametrize("weights", ["equal", "similar", "weighted", "random"])
def test_scenario_weights_lie_on_the_edges_of_the_file_alone(weights):
    everywhere, on_ring = topology("full", 9, weights=weights).at(0), topology("ring", 9, weights=weights).at(0)
    np.testing.assert_array_equal(on_ring, np.where(topology("ring", 9).at(0) > 0, everywhere, 0.0))


def test_uniform_and_metropolis_weights_follow_from_the_edges():
    np.testing.assert_array_equal(topology("equal", 4, weight=0.2, weights="uniform").at(0), topology("full", 4).at(0))
    star = topology("star", 4, weights="metropolis").at(0)
    assert star[0].tolist() == [0.0, 0.25, 0.25, 0.25]
    np.testing.assert_array_equal(star, mixing_matrix(star) - np.diag(mixing_matrix(star).diagonal()))


def test_a_pair_weighs_the_same_whenever_it_is_linked():
    graph, weighs = topology("matching", 4, weights="random"), {}
    for round in range(20):
        for pair in edges(graph.at(round)):
            assert weighs.setdefault(pair, graph.at(round)[pair]) == graph.at(round)[pair]
    assert len(set(weighs.values())) > 2


@pytest.mark.parametrize(
    ("name", "clients", "settings", "said"),
    [
        ("regular", 7, {"degree": 3}, "topology.degree = 3: must be even, because 7 clients are an odd number"),
        ("regular", 4, {"degree": 4}, "topology.degree = 4: must be from 0 to 3, for 4 clients"),
        ("regular", 4, {"degree": -2}, "topology.degree = -2: must be from 0 to 3"),
        ("random-regular-each-round", 5, {"degree": 3}, "topology.degree = 3: must be even"),
        ("torus", 7, {}, "run.clients = 7: a torus needs rows and columns"),
        ("torus", 12, {"rows": 5}, "topology.rows = 5: must be one of 2, 3, 4, 6, to have 12 clients in a grid"),
        ("torus", 12, {"rows": 0}, "topology.rows = 0: must be one of"),
        ("star", 4, {"centre": 4}, "topology.centre = 4: must be a client's number, from 0 to 3"),
        ("erdos-renyi", 4, {"probability": 1.1}, "topology.probability = 1.1: must be from 0 to 1"),
        ("erdos-renyi", 4, {"probability": float("nan")}, "topology.probability = nan: must be from 0 to 1"),
        ("small-world", 9, {"neighbours": 3}, "topology.neighbours = 3: must be an even number"),
        ("small-world", 4, {"neighbours": 4}, "topology.neighbours = 4: must be an even number"),
        ("small-world", 9, {"rewiring": -0.1}, "topology.rewiring = -0.1: must be a probability"),
        ("barabasi-albert", 4, {"attached": 4}, "topology.attached = 4: must be from 1 to 3"),
        ("barabasi-albert", 4, {"attached": 0}, "topology.attached = 0: must be from 1 to 3"),
        ("ring", 4, {"degree": 2}, "topology.degree = 2: unknown key"),
        ("matching", 4, {"round": 2}, "topology.round = 2: unknown key"),
    ],
)
def test_settings_that_make_no_graph_are_refused_with_what_would_be_right(name, clients, settings, said):
    assert said in refusal(name, clients, **settings)


def test_unknown_weights_are_refused_with_those_that_are_known():
    with pytest.raises(DescriptionError, match=r"topology.weights = 'metropolys': .*did you mean 'metropolis'\?"):
        validate(description(topology={"name": "ring", "weights": "metropolys"}))


def test_a_graph_in_parts_is_warned_of_unless_it_changes():
    assert topology("erdos-renyi", 3, probability=0.0).warnings == ["the graph is not connected: 3 components, 0; 1; 2"]
    assert topology("matching", 6).warnings == []


EDGES = "k,l,weight\n0,1,0.5\n1,2,\n"
MATRIX = "0,0.5,0\n0.5,0,1\n0,1,0\n"
WEIGHTS = [[0.0, 0.5, 0.0], [0.5, 0.0, 1.0], [0.0, 1.0, 0.0]]


@pytest.mark.parametrize("text", [EDGES, EDGES + "\n1,0,0.5\n", MATRIX, "\n" + MATRIX, "\ufeff" + MATRIX,
                                  "k , l,weight,note\r\n0,1, 0.5,near\r\n2,1,1,\r\n"])  # fmt: skip
def test_a_file_has_edges_or_a_matrix(text, tmp_path):
    path = tmp_path / "graph.csv"
    path.write_text(text, encoding="utf-8", newline="")
    np.testing.assert_array_equal(topology("file", 3, file=str(path)).at(0), WEIGHTS)


def test_edges_without_a_column_of_weights_weigh_1(tmp_path):
    (tmp_path / "graph.csv").write_text("k,l\n0,2\n")
    assert topology("file", 3, file=str(tmp_path / "graph.csv")).at(0).tolist() == [[0, 0, 1], [0, 0, 0], [1, 0, 0]]


def test_a_matrix_may_be_an_array_of_any_real_type(tmp_path):
    for dtype in (np.float32, np.float64):
        np.save(tmp_path / "graph.npy", np.array(WEIGHTS, dtype=dtype))
        np.testing.assert_array_equal(topology("file", 3, file=str(tmp_path / "graph.npy")).at(0), WEIGHTS)
    np.save(tmp_path / "graph.npy", np.array(WEIGHTS) > 0)
    np.testing.assert_array_equal(topology("file", 3, file=str(tmp_path / "graph.npy")).at(0), np.array(WEIGHTS) > 0)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("k,l\n0,1\n1,3\n", "line 3: l = '3' must be the number of a client, from 0 to 2"),
        ("k,l\n0,1\n-1,2\n", "line 3: k = '-1' must be the number of a client"),
        ("k,l\n0,1.0\n", "line 2: l = '1.0' must be the number of a client"),
        ("k,l\n1,1\n", "line 2: client 1 cannot be its own neighbour"),
        ("k,l\n1,\n", "line 2: has no l"),
        ("k,l,weight\n0,1,x\n", "line 2: weight = 'x' must be a number"),
        ("k,l,weight\n0,1,-1\n", "line 2: weight = -1 must be a finite number from 0"),
        ("k,l,weight\n0,1,nan\n", "line 2: weight = nan must be a finite number from 0"),
        ("k,l,weight\n0,1,2\n1,2,1\n1,0,3\n", "line 4: the edge 1,0 has another weight on line 2"),
        ("0,1\n1,2\n", "line 1: has 2 numbers, not 3, one for each client; a list of edges begins with the line k,l"),
        ("0,1,0\n1,0,0\n", "has 2 lines, not 3, one for each client"),
        ("", "has 0 lines, not 3"),
        ("0,1,0\n1,0,a\n0,1,0\n", "line 2: could not convert string to float: 'a'"),
        ("0,1,0\n1,0,1\n\n0,2,0\n", "line 2, column 3: 1 must be equal to 2 at line 4, column 2"),
        ("0,1,0\n1,3,1\n0,1,0\n", "line 2, column 2: 3 must be 0: no client is its own neighbour"),
        ("0,-1,0\n-1,0,1\n0,1,0\n", "line 1, column 2: -1 must be from 0 to 1e+09"),
        ("0,nan,0\nnan,0,1\n0,1,0\n", "line 1, column 2: nan must be from 0 to 1e+09"),
    ],
)
def test_a_file_that_is_no_graph_is_refused_with_its_line(text, said, tmp_path):
    path = tmp_path / "graph.csv"
    path.write_text(text)
    refused = refusal("file", 3, file=str(path))
    assert refused.startswith(f"topology.file = {str(path)!r}: ")
    assert said in refused


def test_a_file_that_cannot_be_read_is_refused_with_the_reason(tmp_path):
    (tmp_path / "text.npy").write_text("0,1\n1,0\n")
    np.save(tmp_path / "small.npy", np.zeros((2, 2)))
    np.save(tmp_path / "uneven.npy", np.triu(np.ones((3, 3)), 1))
    (tmp_path / "latin.csv").write_bytes(b"\xff\xfe\xff")
    for file, said in [
        ("none.csv", "cannot be read: [Errno 2]"),
        ("none.npy", "cannot be read as a .npy array: [Errno 2]"),
        ("text.npy", "cannot be read as a .npy array"),
        ("small.npy", "must be real numbers of shape (3, 3), not float64 (2, 2)"),
        ("uneven.npy", "row 0, column 1: 1 must be equal to 0 at row 1, column 0"),
        ("latin.csv", "cannot be read: 'utf-8' codec"),
        ("graph.txt", "must end in .csv"),
    ]:
        assert said in refusal("file", 3, file=str(tmp_path / file))


def words(*given: object) -> np.ndarray:
    return np.full((4, 4), "a")


def only_in_the_first_round(labels: object, sizes: object, rng: object, round: int) -> np.ndarray:
    return np.zeros((4, 4)) if round == 0 else np.ones((4, 4))


def test_a_users_topology_that_makes_no_graph_is_refused_also_in_a_later_round():
    assert "topology.name = 'tests.test_graphs:words': must make real numbers, not <U1" in refusal(f"{HERE}:words", 4)
    late = topology(f"{HERE}:only_in_the_first_round", 4)
    assert late.changes
    with pytest.raises(DescriptionError, match="no client is its own neighbour"):
        late.at(1)


HERE = "tests.test_graphs"


def test_a_study_has_the_topology_that_its_description_names():
    tables = description(topology={"name": "ring", "weights": "equal"}, run__clients=6)
    federation = Study(validate(tables), b"8 bytes.").federation
    assert federation.topology is not None and federation.graph is federation.topology.at(5)
    assert federation.graph[0].tolist() == [0, 0.5, 0, 0, 0, 0.5]
    assert federation.lambda_max == federation.topology.lambda_max()


def test_fedu_on_a_changing_graph_pulls_along_the_edges_of_the_round():
    tables = description(topology={"name": "matching"}, algorithm={"name": "fedu"}, run__clients=6, run__rounds=9)
    study = Study(validate(tables), b"8 bytes.")
    federation = study.federation
    assert federation.lambda_max == federation.topology.bound == 2.0
    w = torch.from_numpy(stream(1, "models").normal(size=(6, study.network.layout.dimension))).float()
    answers = [Answer(k, {"w": w[k]}, {"w": w[k]}, 0, 1) for k in range(6)]
    c = 0.1 * 3 / np.ceil(federation.sizes / 10).mean() * 0.01  # mu R eta_r, R in epochs
    steps = [np.eye(6) - c * laplacian(federation.topology.at(number)) for number in (0, 4)]
    for number, step in zip((0, 4), steps, strict=True):
        after = study.method.server_step({"w": w}, answers, study.round(number))["w"]
        np.testing.assert_allclose(after.numpy(), step @ w.double().numpy(), rtol=1e-6, atol=1e-7)
    assert np.abs((steps[0] - steps[1]) @ w.double().numpy()).max() > 1e-4


def test_the_facts_of_a_graph_are_told_in_plain_numbers():
    assert topology("star", 5, weights="equal").facts() == {
        "name": "star",
        "weights": "equal",
        "changes": False,
        "nodes": 5,
        "edges": 4,
        "least_degree": 1,
        "mean_degree": 1.6,
        "largest_degree": 4,
        "components": 1,
        "lambda_max": 2.5,
        "spectral_gap": 0.2,
    }
