"""Texts of parameters that several docstrings share, written once."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TypeVar

F = TypeVar("F", bound=Callable[..., object])

#: A line ``{name}`` among the parameters of a docstring stands for one of these.
SHARED_TEXTS = {
    "umap": """
n_neighbors
    Neighbours that UMAP looks at.
random_state
    Seed of UMAP, or a :class:`numpy.random.Generator` to draw it from.""",
    "size": """
size
    Area of a point; None fits it to the number of cells.""",
    "palette": """
palette
    Colours of the labels: a list, a mapping from label to colour, or the name of a matplotlib
    colour map.""",
    "reference_map": """
reference_rep
    Key of ``reference.obsm`` to fit the map on.""",
    "prior": """
reference
    The reference after :func:`dice.tl.train_prior`, a prior, or the path of a file with either.
prior_key
    Key of the prior in ``uns``.""",
    "panel": """
title
    Title of the panel.
ax
    Axes to draw into.""",
    "transferred": """
key
    Key of the transferred labels; None is ``f"{labels_key}_dice"``.""",
    "figure": """
show
    Show the figure. None shows it where it can be shown; False returns the axes instead.
save
    Path to save the figure to; its ending tells the format.
return_fig
    Return the figure.""",
    "axes": """
None, the figure with ``return_fig=True``, or the list of axes with ``show=False``.""",
    "coordinates": """
None, the figure with ``return_fig=True``, or the list of axes with ``show=False``. Sets, unless `adata` is a view, the
coordinates as :func:`dice.pl.comparison` does: ``adata.obsm[f"{use_rep}_umap"]`` (n_obs, 2) float32 and
``adata.uns[f"{use_rep}_umap"]``.""",
}


def shared(function: F) -> F:
    """Put the shared texts into the docstring of a function, where :func:`help` and Sphinx find them."""
    if function.__doc__ is not None:  # None under ``python -OO``
        # Python 3.13 takes the indentation away by itself, older ones do not.
        text = inspect.cleandoc(function.__doc__)
        for name, entries in SHARED_TEXTS.items():
            text = text.replace(f"\n{{{name}}}", entries)
        function.__doc__ = text
    return function
