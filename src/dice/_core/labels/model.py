"""What a reference teaches about labels, without any of its cells: classifiers, and what they said of held-out cells.

Everything here is linear before the softmax, so that the logits of held-out cells are all that is needed to weigh the
classifiers, to calibrate sets, and to know what both would be if the cells were moved.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dice._core.labels.classify import Logistic
from dice._core.labels.novelty import Groups
from dice._errors import PriorFormatError
from dice._types import Codes, Floats

#: What cells are classified by: scaled noisy latents, scaled clean latents, standardised genes.
REPRESENTATIONS = ("projection", "denoised", "genes")
#: Cells of each kind that are kept at most, and labels that a model can have.
MOST_CELLS, MOST_LABELS = 2000, 10_000
_COMMON = ("counts", "centres", "whiten", "held_out_codes", "calibration_codes", "calibration_y")
_EACH = ("slopes", "offset", "means", "held_out", "calibration")


@dataclass(frozen=True)
class Candidate:
    """One classifier of C labels, and its logits."""

    classifier: Logistic
    #: Mean logits (C, C) of the cells of every label that it was fitted to.
    means: Floats
    #: Logits (v, C) of held-out cells, by the same classifier fitted without them, and (m, C) of calibration cells.
    held_out: Floats
    calibration: Floats


@dataclass(frozen=True, eq=False)
class LabelModel:
    """Classifiers of a reference's labels, one for each of `REPRESENTATIONS`, and what is usual among its cells."""

    names: list[str]
    candidates: Mapping[str, Candidate]
    #: Cells (C,) of every label that were learned from, and their mean latents (C, k) in PCA units.
    counts: Floats
    centres: Floats
    #: Rotation and scaling (k, k) after which labels scatter alike in all directions.
    whiten: Floats
    held_out_codes: Codes
    calibration_codes: Codes
    #: Latents (m, k) of the calibration cells in PCA units.
    calibration_y: Floats
    #: What is told about the reference: labels with their numbers of cells, accuracy and F1, source, date, versions.
    card: Mapping[str, Any]

    def groups(self, latent_scale: float) -> Groups:
        """The labels as groups that a cell may be unlike."""
        used, predict = np.flatnonzero(self.counts > 0), self.candidates["projection"].classifier
        means, counts = self.centres[used] @ self.whiten, self.counts[used]
        return Groups(self.whiten, means, predict, latent_scale, counts, used)

    def to_arrays(self) -> dict[str, NDArray[np.float32]]:
        """All but names and card, which are text."""
        arrays = {name: getattr(self, name) for name in _COMMON}
        for name, candidate in self.candidates.items():
            parts = {**vars(candidate.classifier), **vars(candidate)}
            arrays |= {f"{name}_{part}": parts[part] for part in _EACH}
        return {name: np.asarray(array, np.float32) for name, array in arrays.items()}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Any], card: Mapping[str, Any], n_latent: int, n_genes: int) -> LabelModel:
        """Check stored arrays, then build the model."""
        names = _labels_of(card)
        v, m = (np.size(arrays.get(f"{part}_codes", ())) for part in ("held_out", "calibration"))
        shapes = _shapes(len(names), n_latent, n_genes, v, m)
        if set(arrays) != set(shapes):
            raise PriorFormatError("The stored prior's 'labels' have missing or unknown entries.")
        for name, shape in shapes.items():
            array = arrays[name]
            sound = isinstance(array, np.ndarray) and array.dtype == np.float32 and array.shape == shape
            if not sound or not np.isfinite(array).all() or np.abs(array).max(initial=0) > 1e12:
                raise PriorFormatError(f"The stored prior's 'labels/{name}' are not finite float32 of shape {shape}.")
        codes = {}
        for name in ("held_out_codes", "calibration_codes"):
            codes[name] = arrays[name].astype(np.intp)
            if (codes[name] != arrays[name]).any() or (codes[name] < 0).any() or (codes[name] >= len(names)).any():
                raise PriorFormatError(f"The stored prior's 'labels/{name}' are no codes of its labels.")
        candidates = {}
        for name in REPRESENTATIONS:
            each = {part: arrays[f"{name}_{part}"] for part in _EACH}
            candidates[name] = Candidate(Logistic(each.pop("slopes"), each.pop("offset")), **each)
        common = {name: arrays[name] for name in _COMMON} | codes
        return cls(names=names, candidates=candidates, card=card, **common)


def _labels_of(card: Mapping[str, Any]) -> list[str]:
    names = card.get("labels")
    listed = isinstance(names, list) and 1 < len(names) <= MOST_LABELS and all(isinstance(n, str) for n in names)
    if not isinstance(names, list) or not listed or len(set(names)) != len(names):
        raise PriorFormatError("The stored prior's 'card' does not list its labels.")
    return names


def _shapes(c: int, k: int, d: int, v: int, m: int) -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {"counts": (c,), "centres": (c, k), "whiten": (k, k)}
    shapes |= {"held_out_codes": (v,), "calibration_codes": (m,), "calibration_y": (m, k)}
    for name in REPRESENTATIONS:
        width = d if name == "genes" else k
        each = {"slopes": (width, c), "offset": (c,), "means": (c, c), "held_out": (v, c), "calibration": (m, c)}
        shapes |= {f"{name}_{part}": shape for part, shape in each.items()}
    return shapes
