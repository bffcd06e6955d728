"""From a column of a data set to colours that everybody can tell apart."""

from __future__ import annotations

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
from functools import cache
from itertools import product

Palette = str | Sequence[str] | Mapping[str, str]

#: Okabe and Ito's colours without black, and without yellow, which is not seen on white; then four of Paul Tol's: safe
#: for colour-blind readers.
SAFE = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#999933", "#332288", "#882255", "#117733")
MISSING, REFERENCE = "#B8B8B8", "#E4E4E4"
#: What has no label or no value is grey, or else what no label looks like: stored colours may have greys.
ABSENT = (MISSING, "#1A1A1A", "#E600E6")
UNASSIGNED = "unassigned"
SEQUENTIAL = "viridis"
#: More colours than this cannot be told apart: the two nearest of them are 15 apart in CIELAB.
MOST_COLORS = 102


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
    """Colours for a column of ``obs`` or a gene of ``X``, which `argument` asks for or the call `step` writes."""
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


def read_numbers(adata: AnnData, key: str, color_map: str, *, step: str) -> Colors:
    """Colours for a number per cell that the call `step` writes."""
    numbers = read_colors(adata, key, color_map, step=step)
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
    """`n` colours: safe ones as far as they reach, then those that are farthest from all before, then repeated.

    Of 37, the two nearest are 22 apart in CIELAB; of scanpy's 15, and seven of scanpy's 28 are greys.
    """
    chosen = spread(SAFE, min(n, MOST_COLORS))
    return [chosen[i % MOST_COLORS] for i in range(n)]


def absent_color(colors: Iterable[str]) -> str:
    """A colour for cells without a label beside those of labels."""
    return own_color(ABSENT, list(colors))


def are_colors(values: Iterable[str]) -> bool:
    """Whether all of these are colours; what a file holds in their place may be anything."""
    from matplotlib.colors import is_color_like

    return all(is_color_like(value) for value in values)


#: Lightness (0 to 100) and chroma of colours that stand out on white and differ from grey. Pastels are lighter, greys
#: have a chroma below 10, and a larger chroma glares.
LIGHTNESS, CHROMA = (28.0, 72.0), (28.0, 80.0)
#: Colours nearer than this (CIE 1976) are easily confused in small dots; just noticeable is 2.3.
ALIKE_COLORS = 25.0
#: From sRGB to XYZ for the white of screens (IEC 61966-2-1), and that white.
XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
WHITE = XYZ.sum(1)


def lab(colors: Sequence[str]) -> Floats:
    """Colours (n,) in CIELAB (n, 3), where distances are what eyes see."""
    from matplotlib.colors import to_rgb

    rgb = np.array([to_rgb(color) for color in colors]).reshape(-1, 3)
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    xyz = linear @ XYZ.T / WHITE
    f = np.where(xyz > (6 / 29) ** 3, np.cbrt(xyz), xyz * (29 / 6) ** 2 / 3 + 4 / 29)
    return np.column_stack([116 * f[:, 1] - 16, 500 * (f[:, 0] - f[:, 1]), 200 * (f[:, 1] - f[:, 2])])


@cache
def spread(first: tuple[str, ...], n: int) -> tuple[str, ...]:
    """`n` colours: the `first`, then each as far as can be from all before it."""
    from matplotlib.colors import to_hex

    steps = np.linspace(0, 1, 16)
    candidates = np.array([to_hex(rgb) for rgb in product(steps, steps, steps)])
    places = lab(list(candidates))
    chroma = np.hypot(places[:, 1], places[:, 2])
    shown = _within(places[:, 0], LIGHTNESS) & _within(chroma, CHROMA)
    candidates, places = candidates[shown], places[shown]
    found = list(first[:n])
    nearest = np.full(len(places), np.inf)
    for place in lab(found):
        nearest = np.minimum(nearest, np.linalg.norm(places - place, axis=1))
    while len(found) < n:
        best = int(nearest.argmax())
        found.append(str(candidates[best]))
        nearest = np.minimum(nearest, np.linalg.norm(places - places[best], axis=1))
    return tuple(found)


def _within(values: Floats, limits: tuple[float, float]) -> Mask:
    return (values >= limits[0]) & (values <= limits[1])


def own_color(choices: Sequence[str], others: Sequence[str]) -> str:
    """The first of the `choices` that looks like none of the `others`, or else the one that does so least."""
    if not len(others):
        return choices[0]
    apart = np.linalg.norm(lab(choices)[:, None] - lab(others), axis=-1).min(1)
    good = np.flatnonzero(apart >= ALIKE_COLORS)
    return choices[int(good[0]) if len(good) else int(apart.argmax())]
