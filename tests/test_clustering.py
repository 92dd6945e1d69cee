"""k-means, labels that persist, and merging: exact where it can be, and against scikit-learn where it cannot."""

import numpy as np
import pytest
import torch

from pflsim.clustering.geometry import absolute_distances, cosines, gram, squared_distances
from pflsim.clustering.kmeans import costs, kmeans
from pflsim.clustering.labels import NONE, aligned, means
from pflsim.clustering.merging import halves, merged
from pflsim.clustering.uploads import last_uploads, remember
from pflsim.rng import stream


def points(*numbers):
    return [torch.tensor([number], dtype=torch.float64) for number in numbers]


def blobs(n=40, groups=4, d=30, dtype=torch.float32):
    rng = stream(4, "blobs")
    centres = 3 * rng.normal(size=(groups, d))
    return [torch.from_numpy(centres[j % groups] + rng.normal(size=d)).to(dtype) for j in range(n)]


def rng():
    return stream(1, "k-means")


def same_partition(a, b):
    return len(set(zip(a, b, strict=True))) == len(set(a)) == len(set(b))


def test_kmeans_finds_planted_clusters_and_their_inertia():
    found = kmeans(blobs(), 4, rng())
    assert same_partition(found.labels.tolist(), [j % 4 for j in range(40)])
    centres = means(blobs(), found.labels, 4)
    by_hand = sum(
        float((u.double() - centres[k].double()).square().sum()) for u, k in zip(blobs(), found.labels, strict=True)
    )
    assert found.inertia == pytest.approx(by_hand, rel=1e-6)


@pytest.mark.parametrize("K", [2, 3, 6, 12])
def test_kmeans_is_as_good_as_that_of_scikit_learn(K):
    from sklearn.cluster import KMeans

    theirs = KMeans(K, n_init=10, random_state=0).fit(torch.stack(blobs()).double().numpy())
    assert kmeans(blobs(), K, rng()).inertia <= 1.02 * theirs.inertia_


def test_kmeans_gives_the_same_labels_again_and_draws_from_the_given_stream():
    first, again = kmeans(blobs(), 9, rng()), kmeans(blobs(), 9, rng())
    assert np.array_equal(first.labels, again.labels) and first.inertia == again.inertia
    assert any(
        not np.array_equal(first.labels, kmeans(blobs(), 9, stream(seed, "k-means")).labels) for seed in range(2, 6)
    )


def test_every_point_is_alone_where_there_are_no_more_points_than_clusters():
    found = kmeans(points(1.0, 1.0 + 1e-15, 1.0 + 2e-12), 3, rng())
    assert found.labels.tolist() == [0, 1, 2] and found.inertia == 0.0


def test_equal_points_are_one_point_and_clusters_without_points_do_not_exist():
    found = kmeans(points(2.0, 5.0, 2.0, 0.0, -0.0), 7, rng())
    assert found.labels.tolist() == [0, 1, 0, 2, 2]
    assert kmeans(points(3.0, 3.0, 3.0), 2, rng()).labels.tolist() == [0, 0, 0]


def test_a_tie_goes_to_the_first_cluster_also_where_a_product_was_rounded():
    warm = points(0.1, 0.7)
    assert kmeans(points(0.1, 0.4, 0.7), 2, rng(), warm=warm).labels.tolist() == [0, 0, 1]
    assert kmeans(points(0.1, 0.4, 0.7), 2, rng(), warm=warm[::-1]).labels.tolist() == [1, 0, 0]


def test_an_empty_cluster_takes_the_point_that_is_farthest_from_its_centre():
    found = kmeans(points(0.0, 1.0, 2.0, 10.0), 2, rng(), warm=points(0.0, 500.0))
    assert found.labels.tolist() == [0, 0, 0, 1]


def test_clusters_go_on_from_the_centres_of_before():
    labels = kmeans(points(0.0, 1.0, 10.0, 11.0), 2, rng(), warm=points(10.5, 0.5)).labels
    assert labels.tolist() == [1, 1, 0, 0]


def test_the_iterations_are_counted_with_the_one_that_changes_nothing():
    line = points(0.0, 1.0, 2.0, 10.0)
    assert kmeans(line, 2, rng(), warm=points(1.0, 10.0)).iterations == 1
    assert kmeans(line, 2, rng(), warm=points(0.0, 1.0)).iterations == 2, "1 and 2 go to 0 at once"


def test_a_weighted_point_counts_as_so_many_points():
    plain = kmeans(points(0.0, 0.0, 0.0, 1.0, 5.0), 1, rng()).inertia
    assert kmeans(points(0.0, 1.0, 5.0), 1, rng(), weights=[3.0, 1.0, 1.0]).inertia == pytest.approx(plain, rel=1e-14)
    assert plain == pytest.approx(3 * 1.44 + 0.04 + 3.8**2, rel=1e-14)


def test_a_point_without_weight_still_has_a_cluster():
    assert kmeans(points(0.0, 1.0, 50.0), 2, rng(), weights=[1.0, 1.0, 0.0]).labels.shape == (3,)


def test_small_differences_between_long_vectors_keep_their_digits():
    far = torch.full((1000,), 1e6, dtype=torch.float64)
    found = kmeans([far, far + 1e-3, far + 1.0], 2, rng())
    assert found.labels[0] == found.labels[1] != found.labels[2]
    assert found.inertia == pytest.approx(1000 * 1e-6 / 2, rel=1e-6)


def test_the_cost_of_more_clusters_is_never_higher_and_0_for_as_many_as_points():
    found = costs([*blobs(15), *blobs(15)], 20, rng(), weights=[float(j + 1) for j in range(30)])
    assert (np.diff(found) <= 0.0).all() and found[0] > found[3] > 0.0
    assert found[14:].tolist() == [0.0] * 6 and found[13] > 0.0


def test_labels_keep_their_numbers_by_what_they_share_and_then_by_distance():
    old, centres = np.array([0, 0, 1, 1, 2, NONE]), points(0.0, 10.0, 20.0)
    where = points(0.0, 1.0, 10.0, 11.0, 20.0, 21.0)
    assert aligned(np.array([2, 2, 0, 0, 1, 1]), old, where, centres).tolist() == [0, 0, 1, 1, 2, 2]
    nobody = np.full(6, NONE)
    assert aligned(np.array([1, 1, 2, 2, 0, 0]), nobody, where, centres).tolist() == [0, 0, 1, 1, 2, 2]


def test_one_more_shared_client_counts_more_than_all_distances():
    where = points(0.0, 0.0, 0.0, 1000.0)
    old, centres = np.array([1, 1, 0, 0]), points(0.0, 1000.0)
    assert aligned(np.array([0, 0, 0, 1]), old, where, centres).tolist() == [1, 1, 1, 0]


def test_fewer_clusters_than_before_keep_the_numbers_of_the_nearest():
    assert aligned(np.array([0, 0]), np.full(2, NONE), points(19.0, 21.0), points(0.0, 10.0, 20.0)).tolist() == [2, 2]


def test_means_are_summed_in_float64_and_an_empty_cluster_has_none():
    u = [torch.tensor([1e8], dtype=torch.float32), torch.tensor([1.0], dtype=torch.float32)]
    mean, nothing = means([*u, -u[0]], np.array([0, 0, 0]), 2)
    assert mean.dtype == torch.float32 and float(mean) == pytest.approx(1 / 3, rel=1e-6)
    assert nothing is None
    assert float(means(u, np.array([0, 0]), 1, [0.0, 3.0])[0]) == 1.0


def test_inner_products_do_not_depend_on_the_pieces_in_which_they_are_summed():
    long = [torch.from_numpy(stream(j, "long").normal(size=40_000)) for j in range(3)]
    whole = torch.stack(long) - long[0]
    np.testing.assert_allclose(gram(long, long[0]), (whole @ whole.T).numpy(), rtol=1e-12, atol=1e-9)
    np.testing.assert_allclose(absolute_distances(long)[0, 1], float((long[0] - long[1]).abs().sum()), rtol=1e-12)


def test_angles_and_distances_by_hand():
    products = gram([torch.tensor(v).double() for v in ([3.0, 0.0], [0.0, 2.0], [-1.0, 0.0], [0.0, 0.0])])
    assert cosines(products).tolist() == [[1, 0, -1, 0], [0, 1, 0, 0], [-1, 0, 1, 0], [0, 0, 0, 1]]
    assert squared_distances(products)[0].tolist() == [0.0, 13.0, 16.0, 9.0]


@pytest.mark.parametrize("linkage", ["ward", "complete", "average", "single"])
def test_merging_stops_at_the_threshold(linkage):
    distances = np.abs(np.subtract.outer([0.0, 1.0, 10.0, 11.5], [0.0, 1.0, 10.0, 11.5]))
    labels, heights = merged(distances, linkage, 2.0)
    assert labels.tolist() == [0, 0, 1, 1]
    assert heights[:2].tolist() == pytest.approx([1.0, 1.5])
    assert merged(distances, linkage, 0.0)[0].tolist() == [0, 1, 2, 3]
    assert merged(distances, linkage, 1e30)[0].tolist() == [0, 0, 0, 0]
    assert halves(distances, linkage).tolist() == [0, 0, 1, 1]


def test_a_single_point_is_a_cluster_and_equal_distances_still_make_two_halves():
    assert merged(np.zeros((1, 1)), "ward", 1.0)[0].tolist() == [0]
    assert len(set(halves(np.ones((5, 5)) - np.eye(5), "complete").tolist())) == 2


def test_last_uploads_are_the_newest_ones_and_expire():
    all = {"x": torch.zeros(2)}
    assert last_uploads(all) == []
    for client, value in [(2, 1.0), (0, 2.0), (2, 3.0)]:
        all = remember(all, {client: torch.full((2,), value)}, 4)
    assert [(i, float(u[0])) for i, u in last_uploads(all)] == [(0, 2.0), (2, 3.0)]
    assert [i for i, _ in last_uploads(all, max_age=0)] == [2]
