from __future__ import annotations

import numpy as np
import pytest
import scanpy as sc
from matplotlib.colors import to_hex
from scipy import sparse

from dice import pl
from dice._errors import InputError, SlotError


def link(cells, edges, key="dice_neighbors"):
    """Graph with the given edges (i, j, weight), as tl.neighbors leaves it."""
    i, j, weights = zip(*edges, strict=True)
    half = sparse.coo_matrix((weights, (i, j)), shape=(cells.n_obs, cells.n_obs))
    cells.obsp[f"{key}_connectivities"] = (half + half.T).tocsr().astype(np.float32)
    cells.uns[key] = {"connectivities_key": f"{key}_connectivities", "params": {"use_rep": "X_dice", "method": "umap"}}


@pytest.fixture
def graph(query):
    """Cells 0, 3, 6 are B, cells 1, 4 are NK, cell 2 is T."""
    link(query, [(0, 3, 0.9), (3, 6, 0.7), (1, 4, 0.8), (0, 1, 0.1), (3, 4, 0.3), (6, 1, 0.2), (0, 2, 0.5)])
    return query


def curve(ax, start):
    return next(line for line in ax.lines if line.get_label().startswith(start))


def test_edges_across_are_drawn_once_the_surest_last(graph):
    axes = pl.boundary(graph, "cell_type", groups=("B", "NK"), use_rep="X_dice", show=False)
    lines = next(c for c in axes[0].collections if c.get_label() == "across")
    np.testing.assert_allclose(lines.get_array(), [0.1, 0.2, 0.3])
    where = graph.obsm["X_dice_umap"]
    np.testing.assert_allclose(lines.get_segments()[2], where[[3, 4]])
    points = {c.get_label(): c for c in axes[0].collections}
    assert len(points["cell_type"].get_offsets()) == 30
    assert len(points["others"].get_offsets()) == 15


def test_weights_within_and_across(graph):
    axes = pl.boundary(graph, "cell_type", groups=("B", "NK"), use_rep="X_dice", show=False)
    assert [line.get_label() for line in axes[1].lines] == [
        "within B: 2 edges",
        "within NK: 1 edges",
        "across: 3 edges",
    ]
    x, share = curve(axes[1], "across").get_data()
    np.testing.assert_allclose(x, [0, 0.1, 0.2, 0.3], rtol=1e-6)
    np.testing.assert_allclose(share, [1, 2 / 3, 1 / 3, 0])
    legend = [to_hex(handle.get_color()) for handle in axes[0].get_legend().legend_handles]
    assert [to_hex(line.get_color()) for line in axes[1].lines[:2]] == legend


def test_the_heaviest_boundary_is_the_default(graph):
    assert pl.boundary(graph, "cell_type", use_rep="X_dice", show=False)[0].get_title() == "B and NK"
    link(graph, [(0, 2, 1.0), (0, 1, 0.9)])
    assert pl.boundary(graph, "cell_type", use_rep="X_dice", show=False)[0].get_title() == "B and T"
    # A category without cells comes first, but is none of the two.
    graph.obs["cell_type"] = graph.obs["cell_type"].cat.set_categories(["none", "B", "NK", "T"])
    graph.obs.loc[graph.obs_names[9:20], "cell_type"] = np.nan
    assert pl.boundary(graph, "cell_type", use_rep="X_dice", show=False)[0].get_title() == "B and T"


def test_groups_without_an_edge_between_them(graph):
    axes = pl.boundary(graph, "cell_type", groups=("NK", "T"), use_rep="X_dice", show=False)
    axes[0].figure.canvas.draw()
    assert axes[1].lines[2].get_label() == "across: 0 edges"


def test_the_graph_is_laid_out_and_views_stay_views(query):
    sc.pp.neighbors(query, use_rep="X_dice", n_neighbors=30, key_added="mine")
    pl.boundary(query, "cell_type", neighbors_key="mine")
    assert query.uns["X_dice_umap"]["params"]["neighbors_key"] == "mine"
    view = query[:20]
    pl.boundary(view, "cell_type", neighbors_key="mine", use_rep="X_dice_pca")
    assert view.is_view


def test_sixty_groups(graph):
    graph.obs["many"] = [f"group {i:02}" for i in range(45)]
    axes = pl.boundary(graph, "many", use_rep="X_dice", show=False)
    axes[0].figure.canvas.draw()
    assert axes[0].get_title() == "group 00 and group 03"


def test_errors_name_the_fix(graph):
    with pytest.raises(SlotError, match=r"run dice\.tl\.neighbors"):
        pl.boundary(graph, "cell_type", neighbors_key="other")
    with pytest.raises(SlotError, match="set groupby to one of"):
        pl.boundary(graph, "nothing")
    with pytest.raises(InputError, match="set groupby to a column of labels"):
        pl.boundary(graph, "dice_uncertainty")
    for groups in (("B", "X"), ("B", "B")):
        with pytest.raises(InputError, match="are not two groups"):
            pl.boundary(graph, "cell_type", groups=groups)
    with pytest.raises(InputError, match="has no two groups"):
        pl.boundary(graph[:1], "cell_type")
    del graph.uns["dice_neighbors"]["params"]["use_rep"]
    with pytest.raises(InputError, match="set use_rep"):
        pl.boundary(graph, "cell_type")


def test_no_edges_are_said_to_be_none(query):
    link(query, [(0, 3, 0.9), (1, 4, 0.8)])
    axes = pl.boundary(query, "cell_type", groups=("B", "NK"), use_rep="X_dice", show=False)
    assert [text.get_text() for text in axes[0].texts] == ["no edges across"]
    # A colour bar would explain nothing.
    assert not axes[0].child_axes
    assert [line.get_label() for line in axes[1].lines][-1] == "across: 0 edges"
    assert not axes[1].texts
    link(query, [(2, 5, 0.9)])
    axes = pl.boundary(query, "cell_type", groups=("B", "NK"), use_rep="X_dice", show=False)
    assert [text.get_text() for text in axes[1].texts] == ["no edges"]


def test_edges_have_a_colour_bar(graph):
    axes = pl.boundary(graph, "cell_type", groups=("B", "NK"), use_rep="X_dice", show=False)
    assert len(axes[0].child_axes) == 1
    assert not axes[0].texts
