"""From a column of a data set to colours that everybody can tell apart."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from anndata import AnnData

from dice._data import read
from dice._errors import InputError
from dice._types import Codes, Floats, Mask

if TYPE_CHECKING:
    from matplotlib.colors import Colormap

Palette = str | Sequence[str] | Mapping[str, str]

MISSING, REFERENCE = "#B8B8B8", "#E4E4E4"
#: What has no label or no value is grey, or else what no label looks like: stored colours may have greys.
ABSENT = (MISSING, "#1A1A1A", "#E600E6")
UNASSIGNED = "unassigned"
SEQUENTIAL = "viridis"
#: Distance of two colours in red, green and blue, each from 0 to 1, that are easily confused in small dots.
NEAR = 0.25
#: The safe colours, and 92 more, each as far as can be from all before it in CIELAB, among those that stand out on
#: white and differ from grey. Of 37, the two nearest are 22 apart; of scanpy's 15, and seven of scanpy's 28 are greys.
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
#: Okabe and Ito's colours without black, and without yellow, which is not seen on white; then four of Paul Tol's: safe
#: for colour-blind readers.
SAFE, MOST_COLORS = ALL_COLORS[:10], len(ALL_COLORS)


@dataclass(frozen=True)
class Colors:
    """What a scatter plot needs to colour its cells and to explain the colours."""

    name: str
    #: Codes of the labels, or the numbers themselves; missing ones are NaN.
    values: Floats
    #: Colour by label, in the order of the categories; None for numbers.
    labels: Mapping[str, str] | None = None
    colormap: str = SEQUENTIAL

    @property
    def missing(self) -> Mask:
        return np.isnan(self.values)

    @property
    def absent(self) -> str:
        """The colour of cells without a value, which no label has."""
        return absent_color(color for name, color in (self.labels or {}).items() if name != UNASSIGNED)

    @property
    def names(self) -> list[str]:
        return list(self.labels or {})

    @property
    def codes(self) -> Codes:
        """Positions among `names`, -1 where the label is missing."""
        return np.where(self.missing, -1, self.values).astype(np.intp)

    @property
    def legend(self) -> dict[str, str]:
        """Colour of every label that cells have, and of missing ones last; empty for numbers."""
        if self.labels is None:
            return {}
        entries = [*self.labels.items(), ("NA", self.absent)]
        return dict(entries[code] for code in np.unique(self.codes % len(entries)))

    @property
    def groups(self) -> list[tuple[str, str, Mask]]:
        """Name, colour and cells of every label that cells have, missing ones last."""
        entries = [*(self.labels or {}).items(), ("NA", self.absent)]
        codes = self.codes % len(entries)
        return [(*entries[code], codes == code) for code in np.unique(codes)]

    def rgb(self, cells: Codes) -> list[str]:
        """Colours of labelled cells."""
        by_code = list((self.labels or {}).values())
        return [by_code[code] for code in self.codes[cells]]


def read_colors(
    adata: AnnData, key: str, palette: Palette | None = None, *, argument: str = "color", step: str | None = None
) -> Colors:
    """Return colours for a column of ``obs`` or a gene. `argument` and `step` are named in errors."""
    column = read.column(adata, key, argument=argument, step=step)
    if pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_bool_dtype(column):
        numbers = column.to_numpy(dtype=np.float64, na_value=np.nan)
        numbers = np.where(np.isfinite(numbers), numbers, np.nan)
        return Colors(key, numbers, colormap=_colormap(palette).name)
    labels = pd.Categorical(column)
    codes = np.where(labels.codes < 0, np.nan, labels.codes)
    names = [str(label) for label in labels.categories]
    stored = read.record(adata, f"{key}_colors") if palette is None else palette
    return Colors(key, codes, dict(zip(names, _assign(names, stored, palette), strict=True)))


def read_numbers(adata: AnnData, key: str, color_map: str, *, step: str | None) -> Colors:
    """Colours for a number per cell that the call `step` writes."""
    numbers = read_colors(adata, key, color_map, argument="key", step=step)
    if numbers.labels is not None:
        raise InputError(f"adata.obs[{key!r}] holds labels: set key to a column of numbers.")
    return numbers


def read_groups(adata: AnnData, key: str, palette: Palette | None = None, *, argument: str = "groupby") -> Colors:
    """Colours for a column of labels, which `argument` asks for."""
    groups = read_colors(adata, key, palette, argument=argument)
    if groups.labels is None:
        raise InputError(f"adata.obs[{key!r}] holds no labels: set {argument} to a column of labels.")
    return groups


def _assign(names: list[str], stored: Any, palette: Palette | None) -> list[str]:
    """One colour per label: the caller's, those stored beside the data, or safe ones."""
    from matplotlib.colors import to_hex

    if isinstance(stored, Mapping):
        absent = [name for name in names if name not in stored]
        if absent:
            raise InputError(f"palette has no colour for {absent[:5]}: add them, or leave it out.")
        return [to_hex(stored[name]) for name in names]
    if isinstance(stored, str):
        return _sample(stored, len(names))
    if stored is not None and len(stored) >= len(names):
        colors = [to_hex(color) for color in list(stored)[: len(names)]]
    else:
        colors = distinct(len(names))
    if palette is not None:
        if len(palette) < len(names):
            message = f"palette has {len(palette)} colours for {len(names)} labels: add colours, or leave it out."
            raise InputError(message)
        return colors
    # What has no label looks like what has no value.
    own = absent_color(color for name, color in zip(names, colors, strict=True) if name != UNASSIGNED)
    return [own if name == UNASSIGNED else color for name, color in zip(names, colors, strict=True)]


def _sample(name: str, n: int) -> list[str]:
    from matplotlib.colors import ListedColormap, to_hex

    found = _colormap(name)
    # Qualitative maps list few colours in a chosen order; all others are spread over their range.
    listed = isinstance(found, ListedColormap) and n <= found.N < 256
    return [to_hex(found(i if listed else i / max(n - 1, 1))) for i in range(n)]


def _colormap(palette: Palette | None) -> Colormap:
    """The colour map that a palette names; numbers ignore the colours of labels."""
    from matplotlib import colormaps

    name = palette if isinstance(palette, str) else SEQUENTIAL
    if name not in colormaps:
        raise InputError(f"The palette must be a colour map of matplotlib, such as 'viridis', got {name!r}.")
    return colormaps[name]


def distinct(n: int) -> list[str]:
    """Return `n` colours: first colour-blind safe ones, then those farthest from all before, then repeats."""
    return [ALL_COLORS[i % len(ALL_COLORS)] for i in range(n)]


def absent_color(colors: Iterable[str]) -> str:
    """A colour for cells without a label: the first that no label's colour is near, or else the farthest."""
    from matplotlib.colors import to_rgb

    others = np.array([to_rgb(color) for color in colors]).reshape(-1, 3)
    apart = [np.linalg.norm(others - to_rgb(color), axis=1).min(initial=2.0) for color in ABSENT]
    return next((color for color, far in zip(ABSENT, apart, strict=True) if far >= NEAR), ABSENT[int(np.argmax(apart))])


def are_colors(values: Iterable[str]) -> bool:
    """Whether all of these are colours; what a file holds in their place may be anything."""
    from matplotlib.colors import is_color_like

    return all(is_color_like(value) for value in values)
