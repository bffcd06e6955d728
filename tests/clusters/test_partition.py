"""Partitions of graphs whose parts are known."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse
from sklearn.metrics import adjusted_rand_score

from dice._clusters import partition


def cliques(n=4, size=6, between=0.05):
    weights = np.kron(np.eye(n), np.ones((size, size))) + between
    np.fill_diagonal(weights, 0)
    return sparse.csr_matrix(weights), np.repeat(np.arange(n), size)


@pytest.mark.parametrize(("method", "flavor"), [("leiden", "igraph"), ("louvain", "igraph"), ("leiden", "leidenalg")])
def test_cliques_are_found_and_a_low_resolution_joins_them(method, flavor):
    weights, known = cliques()
    graph = partition.as_graph(weights)
    assert graph.ecount() == (len(known) * (len(known) - 1)) // 2
    if flavor == "leidenalg":
        pytest.importorskip("leidenalg")
    found = [partition.communities(graph, one, method=method, flavor=flavor) for one in (1.0, 0.01)]
    assert adjusted_rand_score(found[0], known) == 1
    assert len(np.unique(found[1])) == 1
    again = partition.communities(graph, 1.0, method=method, flavor=flavor)
    np.testing.assert_array_equal(found[0], again)


def test_weights_count_and_not_edges_alone():
    """Two cliques that many weak edges join stay apart; with strong edges they are one."""
    apart, known = cliques(2, between=0.05)
    together, _ = cliques(2, between=1.0)
    assert adjusted_rand_score(partition.communities(partition.as_graph(apart), 0.3), known) == 1
    assert len(np.unique(partition.communities(partition.as_graph(together), 0.3))) == 1


def test_neighbours_are_the_nearest_cells():
    cells = np.random.default_rng(0).normal(size=(80, 4))
    found, distances = partition.nearest(cells, 6)
    between = np.linalg.norm(cells[:, None] - cells, axis=2)
    np.testing.assert_allclose(distances, np.sort(between, axis=1)[:, :6], atol=1e-3)
    np.testing.assert_allclose(np.take_along_axis(between, found, 1), distances, atol=1e-3)
