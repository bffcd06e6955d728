"""Texts of parameters that several docstrings share, written once."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TypeVar

F = TypeVar("F", bound=Callable[..., object])

#: A line ``{name}`` among the parameters of a docstring stands for one of these.
TEXTS = {
    "umap": """
n_neighbors
    Neighbours that UMAP looks at.
random_state
    Seed of UMAP.
size
    Area of a point; None fits it to the number of cells.""",
    "palette": """
palette
    Colours of the labels: a list, a mapping from label to colour, or the name of a matplotlib
    colour map.""",
    "figure": """
show
    Show the figure. None shows it where it can be shown; False returns the axes instead.
save
    Path to save the figure to; its ending tells the format.
return_fig
    Return the figure.""",
}


def shared(function: F) -> F:
    """Put the shared texts into the docstring of a function, where :func:`help` and Sphinx find them."""
    if function.__doc__ is not None:  # None under ``python -OO``
        # Python 3.13 takes the indentation away by itself, older ones do not.
        text = inspect.cleandoc(function.__doc__)
        for name, entries in TEXTS.items():
            text = text.replace(f"\n{{{name}}}", entries)
        function.__doc__ = text
    return function
