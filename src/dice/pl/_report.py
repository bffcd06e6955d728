"""A page with all results of a query."""

import base64
import io
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import matplotlib.pyplot as plt
from anndata import AnnData

from dice._data import read
from dice._data.files import files_of
from dice._files import check_target
from dice._plot import Page, explorer
from dice.pl._clusters import clusters
from dice.pl._comparison import comparison
from dice.pl._distribution import distribution
from dice.pl._explore import explore
from dice.pl._prior import prior
from dice.pl._reliability import reliability
from dice.pl._transfer import transfer

if TYPE_CHECKING:
    from dice._data.store import Reference

DPI = 110


def report(
    adata: AnnData,
    path: str | os.PathLike[str],
    *,
    color: str | None = None,
    use_rep: str | Sequence[str] = ("X_dice_pca", "X_dice"),
    reference: "Reference | None" = None,
    truth_key: str | None = None,
    title: str = "dice report",
    prior_key: str = "dice",
) -> None:
    """Write a report of a query to one file: the page of :func:`dice.pl.explore` with figures, parameters and warnings.

    The page needs no network and no server. You can send it by mail and open it from a file. It contains the names of
    the cells and all of ``obs``, about 150 bytes per cell. Remove private columns before you share it.

    Parameters
    ----------
    adata
        Query after :func:`dice.tl.denoise`, and after any of the steps that follow it.
    path
        File to write, for example ``"report.html"``.
    color
        Column of ``obs`` that colours the map at first and groups the cells in the figures. None colours by the status
        of transferred labels and groups by these labels. Without transferred labels, None uses the first column of
        labels.
    use_rep
        Key or keys of ``obsm`` to switch between.
    reference
        The reference, prior or path, to show the genes behind labels and the figures of the prior. None shows no genes;
        figures then show the prior in `adata`, if `adata` has one.
    truth_key
        Column of ``obs`` with known labels, to compare with transferred labels.
    title
        Title of the page.
    prior_key
        Key of the prior in ``uns``.

    Returns
    -------
    None. Writes the file. The coordinates of the maps are stored as by :func:`dice.pl.comparison`, unless `adata` is a
    view.

    Examples
    --------
    >>> import dice
    >>> cells, _ = dice.datasets.mismatch(n_reference=300)
    >>> dice.pl.report(cells, "report.html", use_rep="U_true", color="cell_type")
    """
    check_target(path, inputs=files_of(adata, reference))
    page = explore(adata, reference, color=color, use_rep=use_rep, prior_key=prior_key)
    figures = _figures(adata, read.as_keys(use_rep), color, reference, truth_key, prior_key)
    Page(page.content | {"figures": figures}, title).save(path)


def _figures(
    adata: AnnData, keys: list[str], color: str | None, reference: Any, truth_key: str | None, prior_key: str
) -> list[dict[str, str]]:
    """Return all plots whose slots exist, as pictures with captions."""
    found: list[dict[str, str]] = []

    def add(caption: str, plot: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        figure, stream = plot(*args, return_fig=True, **kwargs), io.BytesIO()
        figure.savefig(stream, format="png", dpi=DPI)
        plt.close(figure)
        found.append({"caption": caption, "png": base64.b64encode(stream.getvalue()).decode("ascii")})

    there, records = read.names(adata, "obs", "obsm"), read.names(adata, "uns")
    columns = explorer.read_columns(adata, color)
    color = explorer.first_color(adata, columns) if color is None else color
    labelled = [column.name for column in columns if column.labels is not None]
    by_group: dict[str, Any] = {"groupby": color if color in labelled else None, "use_rep": keys[-1]}
    add("The cells before and after denoising", comparison, adata, use_rep=keys, color=color)
    if "dice_uncertainty" in there:
        add("Uncertainty: posterior standard deviation of every cell", distribution, adata, **by_group)
    if "dice_novelty" in there:
        add("Novelty: cells that are unlike the reference", distribution, adata, "dice_novelty", **by_group)
    for key in explorer.transferred(adata):
        labels = read.record(adata, key)["call"].get("labels_key", key)
        add(f"Labels {key}, and the sizes of their sets", transfer, adata, labels, groupby=truth_key, key=key)
        if truth_key is not None:
            add(f"Labels {key}: reliability and coverage", reliability, adata, labels, truth_key=truth_key, key=key)
    if "dice_cluster" in records and "dice_cluster" in there:
        add("Clusters: the tree of merges, the map, and the confidence of every cell", clusters, adata)
    source = adata if reference is None and prior_key in records else reference
    if source is not None:
        add("Spectrum of the reference, and training of the prior", prior, source, prior_key=prior_key)
    return found
