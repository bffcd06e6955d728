"""Colours for a column of a data set. The first ten are safe for colour-blind readers."""

import textwrap
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from anndata import AnnData

from dice._data import read
from dice._errors import InputError
from dice._types import Codes, Floats, Mask

MISSING, REFERENCE = "#B8B8B8", "#E4E4E4"
UNASSIGNED = "unassigned"
SEQUENTIAL = "viridis"
#: Ten colour-blind safe colours, then 92 more. Each further colour is as far as possible in CIELAB from all colours
#: before it, stands out on white and differs from grey. The smallest distance in the first 37 colours is 22 (in
#: scanpy's palette 15).
ALL_COLORS = tuple(
    f"#{code}"
    for code in textwrap.wrap(
        "0072B2E69F00009E73CC79A756B4E9D55E00999933332288882255117733FF3366DD77FF664422EE99770077FF55BB33881111"
        "DD2299AA99EE007777996600880088554477445500CC556699AA7799BB00FF554400BBBB77BB663399FF2255338855BB558800"
        "AA8855FF77DDAA5533CC11668844443355AABBAA00FF66AA00BB66CC8888BB22009977FFDD99448844888888BBBB0033FF8855"
        "5588660088AA885577BB4499CC77CCFF888800447766884400881177BB99881133776622FF88AA0044BBBB44BB6611997777DD"
        "77330099BB44880066AA8800AA5500EE8811FF6688CC5588DD66557766AA88AAEE11550000BBDDCCAA55229988667700CC99CC"
        "556633FF88CCBB4422996644FF3388556699AA6677663388BB0099AA0066007755664400AA55DDBB88EE888844889900BB7744", 6
    )
)  # fmt: skip
#: Colours that are safe for colour-blind readers: those of Okabe and Ito without black and without yellow, which is not
#: visible on white, and four of Paul Tol's colours.
SAFE, MOST_COLORS = ALL_COLORS[:10], len(ALL_COLORS)


@dataclass(frozen=True)
class Colors:
    """The colours of the cells of a scatter plot, and their legend."""

    name: str
    #: Codes of the labels, or the numbers themselves. Missing values are NaN.
    values: Floats
    #: Colour by label, in the order of the categories; None for numbers.
    labels: Mapping[str, str] | None = None

    @property
    def missing(self) -> Mask:
        return np.isnan(self.values)

    @property
    def names(self) -> list[str]:
        return list(self.labels or {})

    @property
    def codes(self) -> Codes:
        """Positions among `names`, -1 where the label is missing."""
        return np.where(self.missing, -1, self.values).astype(np.intp)

    @property
    def legend(self) -> dict[str, str]:
        """Colour of every label that cells have, then of missing labels. Empty for numbers."""
        return {} if self.labels is None else {name: color for name, color, _ in self.groups}

    @property
    def groups(self) -> list[tuple[str, str, Mask]]:
        """Name, colour and cells of every label that cells have, then of missing labels."""
        entries = [*(self.labels or {}).items(), ("NA", MISSING)]
        codes = self.codes % len(entries)
        return [(*entries[code], codes == code) for code in np.unique(codes)]


def read_colors(adata: AnnData, key: str, *, argument: str = "color", step: str | None = None) -> Colors:
    """Return colours for a column of ``obs`` or a gene. Errors name the `argument`, or the call (`step`) to run."""
    column = read.column(adata, key, argument=argument, step=step)
    if pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_bool_dtype(column):
        numbers = column.to_numpy(dtype=np.float64, na_value=np.nan)
        return Colors(key, np.where(np.isfinite(numbers), numbers, np.nan))
    labels = pd.Categorical(column)
    codes = np.where(labels.codes < 0, np.nan, labels.codes)
    return Colors(key, codes, _by_label(list(map(str, labels.categories)), read.record(adata, f"{key}_colors")))


def read_numbers(adata: AnnData, key: str, *, step: str | None) -> Colors:
    """Return colours for a column of numbers. `step` is the call that writes the column."""
    numbers = read_colors(adata, key, argument="key", step=step)
    if numbers.labels is not None:
        raise InputError(f"adata.obs[{key!r}] must hold numbers, got labels: set key to a column of numbers.")
    return numbers


def read_groups(adata: AnnData, key: str, *, argument: str = "groupby") -> Colors:
    """Return colours for a column of labels. Errors name the `argument`."""
    groups = read_colors(adata, key, argument=argument)
    if groups.labels is None:
        raise InputError(f"adata.obs[{key!r}] must hold labels, got numbers: set {argument} to a column of labels.")
    return groups


def _by_label(names: list[str], stored: Any) -> dict[str, str]:
    """Return the colour of every label: the colours that scanpy has stored, or else distinct colours."""
    from matplotlib.colors import to_hex

    enough = stored is not None and len(stored) >= len(names)
    colors = [to_hex(color) for color in stored[: len(names)]] if enough else distinct(len(names))
    # Unassigned cells are grey, like cells without a label.
    return dict(zip(names, colors, strict=True)) | ({UNASSIGNED: MISSING} if UNASSIGNED in names else {})


def distinct(n: int) -> list[str]:
    """Return `n` colours: colour-blind safe colours, then colours that differ most from these, then repeats."""
    return [ALL_COLORS[i % len(ALL_COLORS)] for i in range(n)]


def are_colors(values: Iterable[str]) -> bool:
    """Return whether all values are colours. Files may hold other values."""
    from matplotlib.colors import is_color_like

    return all(is_color_like(value) for value in values)
