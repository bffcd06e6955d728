"""Figures of a report: every plot that the results of a query allow."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from dice._plot.colors import read_colors
from dice.pl._boundary import boundary
from dice.pl._comparison import comparison
from dice.pl._novelty import novelty
from dice.pl._reliability import reliability
from dice.pl._scree import scree
from dice.pl._training import training
from dice.pl._transfer import transfer
from dice.pl._uncertainty import uncertainty

if TYPE_CHECKING:
    import os

    from anndata import AnnData

    from dice._core.prior.prior import Prior

DPI = 110


def draw_figures(
    adata: AnnData,
    keys: list[str],
    *,
    color: str | None,
    reference: AnnData | Prior | str | os.PathLike[str] | None,
    truth_key: str | None,
    options: Mapping[str, Any],
) -> Iterator[tuple[str, bytes]]:
    """Captions and PNG files of all figures whose slots are there."""
    import matplotlib.pyplot as plt

    groups = color if color is not None and read_colors(adata, color).labels is not None else None
    plots: dict[str, Callable[..., Any]] = {
        "The cells before and after denoising": partial(comparison, adata, use_rep=keys, color=color, **options)
    }
    for name, plot, caption in (
        ("dice_uncertainty", uncertainty, "Uncertainty: posterior standard deviation of every cell"),
        ("dice_novelty", novelty, "Novelty: cells that the reference does not know"),
    ):
        if name in adata.obs or name in adata.obsm:
            plots[caption] = partial(plot, adata, groupby=groups, use_rep=keys[-1], **options)
    for key in [key for key in adata.uns if key.endswith("_dice") and f"{key}_set" in adata.obsm]:
        labels: dict[str, Any] = {"labels_key": key.removesuffix("_dice")}
        plots[f"Labels {key}: what cells were called, and how many labels their sets hold"] = partial(
            transfer, adata, groupby=truth_key, **labels
        )
        if truth_key is not None:
            plots[f"Labels {key}: reliability and coverage"] = partial(
                reliability, adata, truth_key=truth_key, **labels
            )
    if groups is not None and "dice_neighbors" in adata.uns and len(read_colors(adata, groups).legend) > 1:
        plots["The closest two groups: weights of the edges between them"] = partial(
            boundary, adata, groups, use_rep=keys[-1], **options
        )
    prior = adata if reference is None and "dice" in adata.uns else reference
    if prior is not None:
        plots["Training of the prior"] = partial(training, prior)
        plots["Spectrum of the reference"] = partial(scree, prior)
    for caption, draw in plots.items():
        figure = draw(return_fig=True)
        stream = io.BytesIO()
        figure.savefig(stream, format="png", dpi=DPI, bbox_inches="tight")
        plt.close(figure)
        yield caption, stream.getvalue()
