"""One page with everything that a run has to say."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from dice._errors import InputError
from dice._files import atomic
from dice._plot.colors import read_colors
from dice._plot.layout import layout
from dice._plot.page import Explorer, bullets, page, picture, table
from dice.pl._comparison import TITLES
from dice.pl._report_figures import draw_figures

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Sequence

    from anndata import AnnData

    from dice._core.prior.prior import Prior

#: Columns that are shown beside a cell whenever it is pointed at, and what their names end with.
HOVER = ("dice_uncertainty", "dice_novelty")
HOVER_ENDS = ("_dice", "_dice_prob", "_dice_set")


def report(
    adata: AnnData,
    path: str | os.PathLike[str],
    *,
    color: str | None = None,
    use_rep: str | Sequence[str] = ("X_dice_pca", "X_dice"),
    reference: AnnData | Prior | str | os.PathLike[str] | None = None,
    truth_key: str | None = None,
    title: str = "dice report",
    max_cells: int = 100_000,
    n_neighbors: int = 15,
    random_state: int = 0,
) -> None:
    """Write one self-contained page about a denoised query: a map to explore, figures, parameters and warnings.

    The page needs no network and no server: it can be sent to somebody and opened from a file. Its map switches between
    the representations, colours the cells by any column of ``obs``, and shows label, probability, prediction set and
    uncertainty of the cell that is pointed at. It holds the names of the cells and all of ``obs``; drop columns first
    that shall not be passed on.

    Parameters
    ----------
    adata
        Query, as of :func:`dice.tl.denoise` and, where they were called, the steps after it.
    path
        File to write, for example ``"report.html"``.
    color
        Column of ``obs`` that colours the map first and groups the figures; None takes transferred labels, or else the
        first column of labels.
    use_rep
        Key or keys of ``obsm`` to switch between.
    reference
        Where the prior is, for the figures of its training and spectrum; None takes the prior inside `adata`, if any.
    truth_key
        Column of ``obs`` with known labels, to judge transferred ones.
    title
        Title of the page.
    max_cells
        The map holds a random choice of so many cells where there are more.
    n_neighbors
        Neighbours that UMAP looks at.
    random_state
        Seed of UMAP and of that choice.

    Returns
    -------
    None. Writes the file, and sets the coordinates of the maps unless `adata` is a view, as :func:`dice.pl.comparison`
    does.

    Examples
    --------
    >>> import dice
    >>> cells, _ = dice.datasets.mismatch(n_reference=300)
    >>> dice.pl.report(cells, "report.html", use_rep="U_true", color="cell_type")
    """
    keys = [use_rep] if isinstance(use_rep, str) else list(use_rep)
    if not keys:
        raise InputError("use_rep is empty: name at least one key of adata.obsm.")
    options: dict[str, Any] = {"n_neighbors": n_neighbors, "random_state": random_state}
    color = _first_color(adata) if color is None else color
    explorer = _explorer(adata, keys, color, max_cells, options)
    figures = draw_figures(adata, keys, color=color, reference=reference, truth_key=truth_key, options=options)
    content = page(
        explorer,
        title=title,
        summary=_summary(adata, explorer),
        warnings=_warnings(adata),
        figures="".join(picture(png, caption) for caption, png in figures),
        genes=_genes(adata),
        parameters=_parameters(adata),
    )
    with atomic(path) as draft:
        draft.write_text(content, encoding="utf-8")


def _first_color(adata: AnnData) -> str | None:
    """Transferred labels, or else the first column of labels with more than one and not too many of them."""
    labels = [key for key in adata.obs if not _is_number(adata, key)]
    transferred = [key for key in labels if key.endswith("_dice") and key in adata.uns]
    groups = [key for key in labels if 1 < adata.obs[key].nunique() <= 100]
    return next(iter([*transferred, *groups, *labels]), None)


def _is_number(adata: AnnData, key: str) -> bool:
    return read_colors(adata, key).labels is None


def _explorer(
    adata: AnnData, keys: list[str], color: str | None, max_cells: int, options: Mapping[str, Any]
) -> Explorer:
    maps = {TITLES.get(key, key): layout(adata, key, **options) for key in keys}
    cells: Any = slice(None)
    if adata.n_obs > max_cells:
        choice = np.random.default_rng(options["random_state"]).choice(adata.n_obs, max_cells, replace=False)
        cells = np.sort(choice)
    columns = [read_colors(adata, key) for key in [*adata.obs, *_lazy_columns(adata)]]
    if color is not None and color not in {column.name for column in columns}:
        columns.append(read_colors(adata, color))
    chosen = [type(c)(c.name, c.values[cells], c.labels, c.colormap) for c in columns]
    hover = [c.name for c in chosen if c.name in HOVER or c.name.endswith(HOVER_ENDS)]
    where = {name: coordinates[cells] for name, coordinates in maps.items()}
    return Explorer(list(adata.obs_names[cells]), where, chosen, hover, color)


def _lazy_columns(adata: AnnData) -> list[str]:
    return [key for key in HOVER if key not in adata.obs and key in adata.obsm]


def _summary(adata: AnnData, explorer: Explorer) -> str:
    shown = len(explorer.names)
    cells = (
        f"{adata.n_obs:,} cells" if shown == adata.n_obs else f"{adata.n_obs:,} cells ({shown:,} of them on the map)"
    )
    return f"{cells}, {adata.n_vars:,} genes."


def _records(adata: AnnData) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """What the calls left in ``uns``, without the coordinates of plots."""
    for key, record in adata.uns.items():
        if (
            isinstance(record, Mapping)
            and {"params", "call"} & set(record)
            and not key.endswith(("_umap", "_umap_reference"))
        ):
            yield key, record


def _warnings(adata: AnnData) -> str:
    found = [str(text) for _, record in _records(adata) for text in np.ravel(record.get("warnings", []))]
    if not found:
        return '<p class="quiet">No warnings.</p>'
    return f'<section class="warnings"><h2>Warnings</h2>{bullets(dict.fromkeys(found))}</section>'


def _genes(adata: AnnData) -> str:
    rows = []
    for key, record in _records(adata):
        genes = record.get("genes")
        if isinstance(genes, Mapping):
            rows.append((key, genes.get("text", "")))
            missing = [str(gene) for gene in np.ravel(genes.get("missing", []))]
            if missing:
                rows.append(("not in the query", ", ".join(missing)))
    return table(rows) if rows else "<p>No gene report.</p>"


def _parameters(adata: AnnData) -> str:
    parts = [
        f"<h3>{escape(key)}: {what}</h3>" + table((name, _plain(value)) for name, value in sorted(record[part].items()))
        for key, record in _records(adata)
        for part, what in (("params", "what was decided"), ("call", "what was asked for"))
        if isinstance(record.get(part), Mapping)
    ]
    return "".join(parts) or "<p>No parameters.</p>"


def _plain(value: Any) -> str:
    if isinstance(value, float | np.floating):
        return f"{value:.6g}"
    return ", ".join(map(str, value)) if isinstance(value, np.ndarray | list | tuple) else str(value)
