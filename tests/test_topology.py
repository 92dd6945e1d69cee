"""Graphs between clients: what the four scenarios look like, and what is refused."""

import itertools

import numpy as np
import pytest

from pflsim import catalogue
from pflsim.errors import DescriptionError
from pflsim.rng import stream
from pflsim.topology import Topology, checked, components, lambda_max, laplacian

LABELS = [(0, 1), (1, 2), (1, 2), (5, 6)]
SIZES = np.array([100, 20, 300, 10])

TOO_FEW = {
    *itertools.product(["regular", "random-regular-each-round", "small-world"], range(1, 5)),  # of degree 4
    *itertools.product(["barabasi-albert"], range(1, 3)),
    *itertools.product(["torus"], [1, 2, 3, 5, 17]),  # no rows and columns
}
"""Topologies with their default settings, and numbers of clients for which these cannot be."""


def graph_of(name, labels=LABELS, sizes=SIZES, **settings):
    return catalogue.find("topologies", name, "topology")(labels, sizes, stream(1, "graph"), **settings)


@pytest.mark.parametrize("name", [name for name in catalogue.names("topologies") if name != "file"])
@pytest.mark.parametrize("clients", [1, 2, 3, 4, 5, 6, 17, 24])
def test_every_topology_is_symmetric_non_negative_and_without_loops(name, clients):
    labels = [(i % 10, (i + 1) % 10) for i in range(clients)]
    if (name, clients) in TOO_FEW:
        with pytest.raises(DescriptionError, match=str(clients)):
            Topology(name, {}, labels, np.arange(clients) + 5, 1)
        return
    graph = Topology(name, {}, labels, np.arange(clients) + 5, 1).at(0)
    assert graph.dtype == np.float64
    checked(graph, clients)
    assert graph.max(initial=0.0) <= 1.0


def test_similar_weighs_a_pair_by_the_labels_it_shares():
    expected = [[0, 0.5, 0.5, 0], [0.5, 0, 1, 0], [0.5, 1, 0, 0], [0, 0, 0, 0]]
    np.testing.assert_array_equal(graph_of("similar"), expected)


def test_equal_gives_every_pair_the_same_weight():
    graph = graph_of("equal", weight=0.25)
    assert graph.sum() == 12 * 0.25


def test_weighted_cuts_the_small_clients_off_from_each_other():
    graph = graph_of("weighted")  # 1 and 3 have the fewest samples
    np.testing.assert_array_equal(graph, [[0, 0.5, 1, 0.5], [0.5, 0, 0.5, 0], [1, 0.5, 0, 0.5], [0.5, 0, 0.5, 0]])


def test_random_stretches_the_weights_from_0_to_1():
    pairs = graph_of("random")[np.triu_indices(4, 1)]
    assert (pairs.min(), pairs.max()) == (0.0, 1.0)


def test_random_uniform_drops_the_weights_below_the_threshold():
    labels = [(0,)] * 40
    pairs = graph_of("random", labels, np.ones(40), draw="uniform")[np.triu_indices(40, 1)]
    assert 0 < (pairs == 0).sum() < len(pairs)
    assert pairs[pairs > 0].min() >= 0.25


@pytest.mark.parametrize(
    ("entry", "value", "reason"),
    [
        ((0, 1), 0.5, "must be equal"),
        ((0, 0), 1.0, "no client is its own neighbour"),
        ((2, 2), np.nan, "finite"),
    ],
)
def test_a_matrix_that_is_no_graph_is_refused(entry, value, reason):
    graph = np.zeros((3, 3))
    graph[entry] = value
    with pytest.raises(DescriptionError, match=reason):
        checked(graph, 3)


def test_a_negative_weight_is_refused():
    with pytest.raises(DescriptionError, match="must not be negative"):
        checked(np.array([[0.0, -1.0], [-1.0, 0.0]]), 2)


def test_a_graph_of_the_wrong_size_is_refused():
    with pytest.raises(DescriptionError, match="one row and one column per client"):
        checked(np.zeros((2, 2)), 3)


def test_a_disconnected_graph_is_allowed_and_its_components_are_named():
    assert components(graph_of("similar")) == [(0, 1, 2), (3,)]
    assert checked(graph_of("similar"), 4) == ["the graph is not connected: 2 components, 0, 1, 2; 3"]
    assert checked(graph_of("equal"), 4) == []


@pytest.mark.parametrize("clients", [2, 5, 30])
def test_the_laplacian_of_the_complete_graph_has_largest_eigenvalue_a_times_n(clients):
    graph = graph_of("equal", [(0,)] * clients, np.ones(clients), weight=0.5)
    assert lambda_max(graph) == pytest.approx(0.5 * clients, rel=1e-12)


def test_the_largest_eigenvalue_of_a_star_is_its_number_of_nodes():
    graph = np.zeros((6, 6))
    graph[0, 1:] = graph[1:, 0] = 1.0
    assert lambda_max(graph) == pytest.approx(6.0, rel=1e-12)


def test_the_rows_of_a_laplacian_sum_to_zero_and_its_form_is_the_sum_over_pairs():
    graph = graph_of("random")
    L, w = laplacian(graph), np.array([1.0, -2.0, 0.5, 3.0])
    np.testing.assert_allclose(L.sum(axis=1), 0.0, atol=1e-15)
    by_pairs = sum(graph[k, m] * (w[k] - w[m]) ** 2 for k in range(4) for m in range(4)) / 2
    assert w @ L @ w == pytest.approx(by_pairs, rel=1e-12)


def test_the_all_ones_laplacian_is_n_times_the_idempotent_matrix_of_mocha():
    """E49: Omega = I - 11^T / N is idempotent, tr(W Omega W^T) = sum ||w_k - mean||^2, and L = N Omega."""
    N = 7
    omega = np.eye(N) - np.ones((N, N)) / N
    W = stream(3, "models").normal(size=(4, N))  # one column per client
    np.testing.assert_allclose(omega @ omega, omega, atol=1e-15)
    spread = ((W - W.mean(axis=1, keepdims=True)) ** 2).sum()
    assert np.trace(W @ omega @ W.T) == pytest.approx(spread, rel=1e-12)
    np.testing.assert_allclose(laplacian(1.0 - np.eye(N)), N * omega, atol=1e-14)
