"""Texts that several docstrings share."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TypeVar

F = TypeVar("F", bound=Callable[..., object])

#: A line ``{name}`` among the parameters of a docstring stands for one of these.
SHARED_TEXTS = {
    "reference_map": """
reference_rep
    Key of ``reference.obsm`` that the map is computed from.""",
    "transferred": """
key
    Key of the transferred labels. None uses ``f"{labels_key}_dice"``.""",
    "figure": """
show
    Show the figure. None shows it if the backend can show figures; False returns the axes instead.
save
    Path of a file for the figure. The ending of the name sets the format.
return_fig
    Return the figure.""",
    "axes": """
None, the figure with ``return_fig=True``, or the list of axes with ``show=False``.""",
    "coordinates": """
None, the figure with ``return_fig=True``, or the list of axes with ``show=False``. Also sets the coordinates as
:func:`dice.pl.comparison` does, unless `adata` is a view: ``adata.obsm[f"{use_rep}_umap"]`` (n_obs, 2) float32 and
``adata.uns[f"{use_rep}_umap"]``.""",
}


def shared(function: F) -> F:
    """Put the shared texts into the docstring of a function, where :func:`help` and Sphinx find them."""
    if function.__doc__ is not None:  # None under ``python -OO``
        # Python removes the indentation from 3.13 on.
        text = inspect.cleandoc(function.__doc__)
        for name, entries in SHARED_TEXTS.items():
            text = text.replace(f"\n{{{name}}}", entries)
        function.__doc__ = text
    return function
