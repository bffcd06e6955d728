"""The boundary between two groups: which edges across it survive the cells' own uncertainty."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np
from anndata import AnnData

from dice._data import read
from dice._data.colors import Colors, Palette, read_groups
from dice._data.layout import layout, umap_options
from dice._docs import shared
from dice._errors import InputError
from dice._plot import draw
from dice._plot.figure import PANEL, finish, panels
from dice._types import Codes, Floats, Mask, Seed

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import LineCollection

#: Two cells each (n, 2), and the weights (n,) of the edges between them.
Edges = tuple[Codes, Floats]
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
    random_state: Seed = 0,
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
    that are apart have few and weak edges across, or none, which the picture then says.

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
    {size}
    color_map
        Matplotlib's colour map for the weights.
    {palette}
    {figure}

    Returns
    -------
    {coordinates}

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
    graph, of = read.neighbors(adata, neighbors_key)
    pair = _heaviest(graph, colors) if groups is None else _codes(colors, groups)
    rep = of if use_rep is None else use_rep
    if rep is None:
        raise InputError(f"The neighbours {neighbors_key!r} do not say what they are of: set use_rep to a key of obsm.")
    laid_out = neighbors_key if use_rep is None else None
    where = layout(adata, rep, neighbors_key=laid_out, **umap_options(n_neighbors, random_state))
    edges = _edges(graph, *(colors.codes == code for code in pair))

    inks = dict(list((colors.labels or {}).items())[code] for code in pair)
    figure, axes = panels(2, ncols=2, size=(PANEL + 0.4, PANEL), margin=0.5, square=False)
    # A few edges between near copies of a cell would otherwise stretch the scale for all others.
    weights = np.concatenate([weights for _, weights in edges])
    top = float(np.quantile(weights, 0.99)) if len(weights) else 1.0
    ours, area = np.isin(colors.codes, pair), draw.point_size(len(where), size)
    lines = _draw_map(axes[0], where, colors, ours, edges[-1], area=area, color_map=color_map, top=top)
    draw.style_map(axes[0], title=" and ".join(inks), n_cells=adata.n_obs)
    if len(edges[-1][1]):
        draw.add_colorbar(axes[0], lines, label="weight of an edge across")
    else:
        axes[0].text(0.5, 0.02, "no edges across", transform=axes[0].transAxes, ha="center", fontsize=9)
    axes[0].legend(handles=draw.dots(inks), loc="upper center", bbox_to_anchor=(0.5, -0.1), frameon=False, fontsize=9)
    axes[1].set(xlim=(0, top), ylim=(0, 1.02))
    names = [*(f"within {name}" for name in inks), "across"]
    _draw_weights(axes[1], names, [weights for _, weights in edges], [*inks.values(), ACROSS])
    return finish(figure, axes, show=show, save=save, return_fig=return_fig)


def _codes(colors: Colors, groups: Any) -> tuple[int, int]:
    """Positions of two groups among the labels."""
    wanted = [str(name) for name in groups] if isinstance(groups, list | tuple) else []
    known = [name for name in colors.names if name in colors.legend]
    if len(set(wanted)) != 2 or not set(wanted) <= set(known):
        raise InputError(
            f"groups={groups!r} are not two groups of adata.obs[{colors.name!r}]: name two of {colors.names}."
        )
    return colors.names.index(wanted[0]), colors.names.index(wanted[1])


def _heaviest(graph: Any, colors: Colors) -> tuple[int, int]:
    """The two groups with the largest sum of weights across."""
    from scipy import sparse

    known = np.flatnonzero(~colors.missing)
    # Groups that no cell has are no candidates, whatever their empty sums.
    found, codes = np.unique(colors.codes[known], return_inverse=True)
    if len(found) < 2:
        raise InputError(f"adata.obs[{colors.name!r}] has no two groups: set groupby to a column with several.")
    member = sparse.csr_matrix((np.ones(len(known)), (known, codes)), shape=(len(colors.values), len(found)))
    sums = np.asarray((member.T @ graph @ member).todense(), dtype=np.float64)
    np.fill_diagonal(sums, -1)
    first, second = np.unravel_index(int(np.argmax(sums)), sums.shape)
    return int(found[first]), int(found[second])


def _edges(graph: Any, in_a: Mask, in_b: Mask) -> list[Edges]:
    """Edges within the first group, within the second and across, each of them once."""
    from scipy import sparse

    upper = sparse.triu(graph, k=1).tocoo()
    i, j = upper.row, upper.col
    chosen = (in_a[i] & in_a[j], in_b[i] & in_b[j], (in_a[i] & in_b[j]) | (in_b[i] & in_a[j]))
    return [(np.column_stack([i, j])[edges], upper.data[edges].astype(np.float64)) for edges in chosen]


def _draw_map(
    ax: Axes, where: Floats, colors: Colors, ours: Mask, across: Edges, *, area: float, color_map: str, top: float
) -> LineCollection:
    """Both groups in their colours over the edges between them, the surest last; the others in grey."""
    from matplotlib.collections import LineCollection

    draw.scatter_reference(ax, where[~ours], label="others")
    inks = colors.rgb(np.flatnonzero(ours))
    draw.scatter(ax, where[ours], label=colors.name, size=area, zorder=3, color=inks)
    cells, weights = across
    order = np.argsort(weights, kind="stable")
    lines = LineCollection(list(where[cells[order]]), array=weights[order], cmap=color_map, linewidths=0.6, zorder=2)
    lines.set(clim=(0, top), alpha=0.8, rasterized=len(order) > draw.RASTERIZE_ABOVE, label="across")
    ax.add_collection(lines)
    # The boundary is between these two: the rest of the map, and strays, would only make it small.
    low, high = np.quantile(where[ours], (0.03, 0.97), axis=0)
    margin = 0.15 * float((high - low).max()) or 1.0
    ax.set(xlim=(low[0] - margin, high[0] + margin), ylim=(low[1] - margin, high[1] + margin))
    return lines


def _draw_weights(ax: Axes, names: list[str], weights: list[Floats], inks: list[str]) -> None:
    """Share of the edges within a group, or across, that are at least as heavy."""
    for name, found, ink in zip(names, weights, inks, strict=True):
        x = np.concatenate([[0.0], np.sort(found)])
        share = np.linspace(1, 0, len(x)) if len(found) else np.full(1, np.nan)
        ax.step(x, share, where="pre", color=ink, linewidth=1.8, label=f"{name}: {len(found):,} edges")
    if not any(map(len, weights)):
        ax.text(0.5, 0.5, "no edges", transform=ax.transAxes, ha="center", va="center", fontsize=9)
    ax.set_box_aspect(1)
    ax.legend(frameon=False, fontsize=9, loc="upper center", bbox_to_anchor=(0.5, -0.16))
    draw.plain(ax, x="weight of an edge", y="share of edges at least as heavy")
