"""Colours that are far from each other, and from white: as many as there are labels."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import product

import numpy as np

from dice._types import Floats, Mask

#: Lightness (0 to 100) and chroma of colours that are seen on white and are no greys: pastels are lighter, greys have a
#: chroma below 10, and what has more than this glares beside the others.
LIGHTNESS, CHROMA = (28.0, 72.0), (28.0, 80.0)
#: Colours nearer than this (CIE 1976) are easily confused in small dots; just noticeable is 2.3.
ALIKE = 25.0
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
    good = np.flatnonzero(apart >= ALIKE)
    return choices[int(good[0]) if len(good) else int(apart.argmax())]
