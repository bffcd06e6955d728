"""The boundary between two groups: which edges across it survive the cells' own uncertainty."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dice._docs import shared
from dice._errors import InputError
from dice._plot.colors import read_groups
from dice._plot.figure import PANEL, finish, panels
from dice._plot.layout import connectivities, graph_rep, layout
from dice._plot.panels import (
    RASTERIZE_ABOVE,
    add_colorbar,
    dots,
    plain,
    point_size,
    scatter,
    scatter_reference,
    style_map,
)

if TYPE_CHECKING:
    import os

    from anndata import AnnData
    from matplotlib.axes import Axes
    from matplotlib.collections import LineCollection
    from numpy.typing import NDArray

    from dice._plot.colors import Colors, Palette
    from dice._plot.layout import Coordinates

    #: Two cells each (n, 2), and the weights (n,) of the edges between them.
    Edges = tuple[NDArray[np.intp], NDArray[np.float64]]

ACROSS = "#1A1A1A"


@shared
def boundary(
    adata: AnnData,
    groupby: str,
    *,
    groups: tuple[str, str] | None = None,
    neighbors_key: str = "dice_neighbors",
    use_rep: str | None = None,
    n_neighbors: int = 15,
    random_state: int = 0,
    size: float | None = None,
    color_map: str = "plasma_r",
    palette: Palette | None = None,
    show: bool | None = None,
    save: str | os.PathLike[str] | None = None,
    return_fig: bool = False,
) -> Any:
    """Draw the edges between two groups of cells by their confidence, beside those within the groups.

    The weight of an edge of :func:`dice.tl.neighbors` is its mean connectivity over posterior samples:
    near 1 if the cells are neighbours whatever the noise, near 0 if only few samples say so. Groups
    that are apart have few and weak edges across.

    Parameters
    ----------
    adata
        Annotated data with a neighbour graph.
    groupby
        Column of ``obs`` with the groups, for example clusters.
    groups
        Two of them; None takes the two with the largest sum of weights across.
    neighbors_key
        Neighbour graph in ``uns``, as of :func:`dice.tl.neighbors` or :func:`scanpy.pp.neighbors`.
    use_rep
        Key of ``obsm`` to draw; None takes that of the graph, and lays the graph out.
    {umap}
    color_map
        Matplotlib's colour map for the weights.
    {palette}
    {figure}

    Returns
    -------
    None, the figure with ``return_fig=True``, or the list of axes with ``show=False``. Sets, unless
    `adata` is a view, the coordinates as :func:`dice.pl.comparison` does:
    ``adata.obsm["X_dice_umap"]`` (n_obs, 2) float32 and ``adata.uns["X_dice_umap"]``.

    Examples
    --------
    >>> import dice, scanpy as sc
    >>> cells, _ = dice.datasets.mismatch(n_reference=300)
    >>> sc.pp.neighbors(cells, use_rep="U_true", key_added="mine")
    >>> figure = dice.pl.boundary(cells, "cell_type", neighbors_key="mine", return_fig=True)
    >>> figure.axes[1].get_xlabel()
    'weight of an edge'
    """
    colors = read_groups(adata, groupby, palette)
    graph = connectivities(adata, neighbors_key)
    pair = _heaviest(graph, colors) if groups is None else _codes(colors, groups, groupby)
    rep = graph_rep(adata, neighbors_key) if use_rep is None else use_rep
    if rep is None:
        raise InputError(f"The neighbours {neighbors_key!r} do not say what they are of: set use_rep to a key of obsm.")
    options: dict[str, Any] = {"n_neighbors": n_neighbors, "random_state": random_state}
    where = layout(adata, rep, neighbors_key=neighbors_key if use_rep is None else None, **options)
    within_a, within_b, across = _edges(graph, *(colors.values == code for code in pair))

    inks = [list((colors.labels or {}).items())[code] for code in pair]
    figure, axes = panels(2, ncols=2, size=(PANEL + 0.4, PANEL), margin=0.5, square=False)
    # A few edges between near copies of a cell would otherwise stretch the scale for all others.
    weights = np.concatenate([weights for _, weights in (within_a, within_b, across)])
    top = float(np.quantile(weights, 0.99)) if len(weights) else 1.0
    lines = _draw_map(axes[0], where, colors, pair, across, size=size, color_map=color_map, top=top)
    style_map(axes[0], title=" and ".join(name for name, _ in inks), n_cells=adata.n_obs)
    add_colorbar(axes[0], lines, label="weight of an edge across")
    axes[0].legend(handles=dots(dict(inks)), loc="upper center", bbox_to_anchor=(0.5, -0.1), frameon=False, fontsize=9)
    axes[1].set(xlim=(0, top), ylim=(0, 1.02))
    names = [f"within {name}" for name, _ in inks] + ["across"]
    _draw_weights(axes[1], names, [within_a, within_b, across], [ink for _, ink in inks] + [ACROSS])
    return finish(figure, axes, show=show, save=save, return_fig=return_fig)


def _codes(colors: Colors, groups: Any, groupby: str) -> tuple[int, int]:
    """Positions of two groups among the labels."""
    names = list(colors.labels or {})
    wanted = [str(name) for name in groups] if isinstance(groups, list | tuple) else []
    absent = [name for name in wanted if name not in colors.legend or name not in names]
    if absent or len(set(wanted)) != 2:
        raise InputError(f"groups={groups!r} are not two groups of adata.obs[{groupby!r}]: name two of {names}.")
    return names.index(wanted[0]), names.index(wanted[1])


def _heaviest(graph: Any, colors: Colors) -> tuple[int, int]:
    """The two groups with the largest sum of weights across."""
    from scipy import sparse

    known = np.flatnonzero(~colors.missing)
    codes = colors.values[known].astype(int)
    if len(np.unique(codes)) < 2:
        raise InputError(f"adata.obs[{colors.name!r}] has no two groups: set groupby to a column with several.")
    member = sparse.csr_matrix((np.ones(len(known)), (known, codes)), shape=(len(colors.values), codes.max() + 1))
    sums = np.asarray((member.T @ graph @ member).todense(), dtype=np.float64)
    np.fill_diagonal(sums, -1)
    # Groups that no cell has are no candidates, whatever their empty sums.
    empty = np.setdiff1d(np.arange(len(sums)), codes)
    sums[empty] = sums[:, empty] = -1
    first, second = np.unravel_index(int(np.argmax(sums)), sums.shape)
    return int(first), int(second)


def _edges(graph: Any, in_a: NDArray[np.bool_], in_b: NDArray[np.bool_]) -> tuple[Edges, Edges, Edges]:
    """Edges within the first group, within the second and across, each of them once."""
    from scipy import sparse

    upper = sparse.triu(graph, k=1).tocoo()
    i, j = upper.row, upper.col
    kinds = (in_a[i] & in_a[j], in_b[i] & in_b[j], (in_a[i] & in_b[j]) | (in_b[i] & in_a[j]))
    found = [(np.column_stack([i, j])[kind], upper.data[kind].astype(np.float64)) for kind in kinds]
    return found[0], found[1], found[2]


def _draw_map(
    ax: Axes,
    where: Coordinates,
    colors: Colors,
    pair: tuple[int, int],
    across: Edges,
    *,
    size: float | None,
    color_map: str,
    top: float,
) -> LineCollection:
    """Both groups in their colours over the edges between them, the surest last; the others in grey."""
    from matplotlib.collections import LineCollection

    ours = np.isin(colors.values, pair)
    scatter_reference(ax, where[~ours], label="others")
    area = point_size(len(where)) if size is None else size
    scatter(ax, where[ours], label=colors.name, size=area, zorder=3, color=colors.rgb(np.flatnonzero(ours)))
    cells, weights = across
    order = np.argsort(weights, kind="stable")
    lines = LineCollection(list(where[cells[order]]), array=weights[order], cmap=color_map, linewidths=0.6, zorder=2)
    lines.set(clim=(0, top), alpha=0.8, rasterized=len(order) > RASTERIZE_ABOVE, label="across")
    ax.add_collection(lines)
    # The boundary is between these two: the rest of the map, and strays, would only make it small.
    low, high = np.quantile(where[ours], (0.03, 0.97), axis=0)
    margin = 0.15 * float((high - low).max()) or 1.0
    ax.set(xlim=(low[0] - margin, high[0] + margin), ylim=(low[1] - margin, high[1] + margin))
    return lines


def _draw_weights(ax: Axes, names: list[str], kinds: list[Edges], inks: list[str]) -> None:
    """Share of the edges of each kind that are at least as heavy."""
    for name, (_, weights), ink in zip(names, kinds, inks, strict=True):
        x = np.concatenate([[0.0], np.sort(weights)])
        share = np.linspace(1, 0, len(x)) if len(weights) else np.full(1, np.nan)
        label = f"{name}: {len(weights):,} edges"
        ax.step(x, share, where="pre", color=ink, linewidth=1.8, label=label)
    ax.set_box_aspect(1)
    ax.set_xlabel("weight of an edge", fontsize=9)
    ax.set_ylabel("share of edges at least as heavy", fontsize=9)
    ax.legend(frameon=False, fontsize=9, loc="upper center", bbox_to_anchor=(0.5, -0.16))
    plain(ax)
