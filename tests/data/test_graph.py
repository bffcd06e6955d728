"""Neighbour graphs and maps against what they are by definition."""

from __future__ import annotations

import anndata as ad
import numpy as np
import pytest
from scipy import sparse

from dice._data import graph
from dice._errors import InputError


def embedding(n=60, k=3, seed=0):
    return np.random.default_rng(seed).normal(size=(n, k)).astype(np.float32)


def stored(values):
    return ad.AnnData(shape=(len(values), 0), obsm={"X_dice": values})


def test_the_average_of_graphs_is_that_of_every_edge():
    """Weights are averaged over all graphs, lengths over the graphs that have the edge; weak edges are dropped."""
    rng = np.random.default_rng(0)
    edges = [rng.random((8, 8)) < 0.4 for _ in range(3)]
    weights = [np.where(edge, rng.uniform(0.1, 1, (8, 8)), 0) for edge in edges]
    weights[0][0, 1], weights[1][0, 1], weights[2][0, 1] = 2 * graph.MIN_WEIGHT, 0, 0
    weights[0][0, 2], weights[1][0, 2], weights[2][0, 2] = 6 * graph.MIN_WEIGHT, 0, 0
    lengths = [np.where(edge, rng.uniform(1, 2, (8, 8)), 0) for edge in edges]
    pairs = [(sparse.csr_matrix(one), sparse.csr_matrix(two)) for one, two in zip(weights, lengths, strict=True)]
    mean, length = graph.average_graph(pairs)
    expected = np.mean(weights, axis=0)
    assert expected[0, 1] < graph.MIN_WEIGHT < expected[0, 2]
    np.testing.assert_allclose(mean.toarray(), np.where(expected < graph.MIN_WEIGHT, 0, expected), rtol=1e-6)
    n = np.sum([one > 0 for one in lengths], axis=0)
    np.testing.assert_allclose(length.toarray(), np.sum(lengths, axis=0) / np.maximum(n, 1), rtol=1e-6)


def test_a_graph_has_two_cells_or_more_and_positive_symmetric_weights():
    good = sparse.csr_matrix(np.array([[0, 1.0], [1, 0]]))
    assert graph.neighbor_graph(good, 15).ecount() == 1
    odd = [[[0, -1.0], [-1, 0]], [[0, np.nan], [np.nan, 0]], [[0, np.inf], [np.inf, 0]], [[0, 1.0], [0.5, 0]]]
    for values in odd:
        with pytest.raises(InputError, match="undirected weighted graph"):
            graph.neighbor_graph(sparse.csr_matrix(np.array(values)), 15)
    assert graph.neighbor_graph(embedding(2), 15).vcount() == 2
    with pytest.raises(InputError, match="two cells or more, got 1"):
        graph.neighbor_graph(embedding(1), 15)


def test_every_cell_is_beside_its_own_place_on_a_map():
    """A cell of the map is placed on itself, a cell between two on the line between them, far ones among the others."""
    cells = embedding(120)
    drawn = graph.Map(cells)
    assert drawn.coordinates.shape == (120, 2)
    np.testing.assert_allclose(drawn.place(cells), drawn.coordinates, atol=1e-3)
    new = embedding(5, seed=1)
    near = np.linalg.norm(new[:, None] - cells, axis=2)
    order = near.argsort(1)[:, : graph.MAP_NEIGHBORS]
    weights = 1 / np.take_along_axis(near, order, 1)
    expected = (weights[..., None] * drawn.coordinates[order]).sum(1) / weights.sum(1)[:, None]
    np.testing.assert_allclose(drawn.place(new), expected, rtol=1e-4)
    assert drawn.place(new[:0]).shape == (0, 2)


def test_a_map_does_not_depend_on_the_order_of_the_cells():
    cells, order = embedding(50), np.random.default_rng(1).permutation(50)
    np.testing.assert_array_equal(graph.Map(cells).coordinates[order], graph.Map(cells[order]).coordinates)


@pytest.mark.parametrize(("n", "k"), [(0, 3), (1, 3), (3, 3), (3, 1), (4, 2)])
def test_a_handful_of_cells_is_drawn_by_its_first_two_latents(n, k):
    cells = embedding(n, k)
    drawn = graph.Map(cells)
    first = np.pad(cells[:, :2], ((0, 0), (0, max(2 - k, 0))))
    assert np.array_equal(drawn.coordinates, first) == (n < graph.MIN_CELLS_UMAP)
    if n < graph.MIN_CELLS_UMAP:
        np.testing.assert_array_equal(drawn.place(cells[::-1]), first[::-1])


def test_a_map_is_kept_as_long_as_its_cells_are_the_same(monkeypatch):
    made = []
    original = graph.Map.__init__
    monkeypatch.setattr(graph.Map, "__init__", lambda self, values: made.append(1) or original(self, values))
    one, other = stored(embedding(30)), stored(embedding(30, seed=1))
    first = graph.reference_map(one, "X_dice")
    assert graph.reference_map(one, "X_dice") is first
    assert graph.reference_map(other, "X_dice") is not first
    assert len(made) == 2
    shown = graph.layout(one, "X_dice")
    np.testing.assert_array_equal(shown, graph.layout(one, "X_dice"))
    np.testing.assert_array_equal(shown[4:9], graph.layout(one[4:9].copy(), "X_dice"))
    assert len(made) == 3
    on_other = graph.layout(one, "X_dice", graph.reference_map(other, "X_dice"))
    assert not np.allclose(on_other, shown)
    one.obsm["X_dice"] = one.obsm["X_dice"] + 1
    graph.layout(one, "X_dice")
    assert len(made) == 4
    with pytest.raises(InputError, match="has 2 dimensions, not 3"):
        graph.layout(stored(embedding(30, 2)), "X_dice", graph.reference_map(other, "X_dice"))


def test_the_umap_of_a_user_is_kept():
    cells = stored(embedding(30))
    graph.write_umap(cells, "X_dice")
    np.testing.assert_array_equal(cells.obsm["X_umap"], graph.layout(cells, "X_dice"))
    own = np.ones((30, 2))
    cells.obsm["X_umap"] = own
    graph.write_umap(cells, "X_dice")
    np.testing.assert_array_equal(cells.obsm["X_umap"], own)
