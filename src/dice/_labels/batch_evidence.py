"""Observed and expected numbers of wrong labels when batches of the reference label each other.

Each batch in turn is the query, and the other batches are the reference. Its cells are labelled by a short version of
the views: regressions on latents and on leading components, as measured and standardised by the moments of the batch.
The number of wrong labels, and the number expected from the averaged probabilities, are summed over batches.
"""

from __future__ import annotations

import numpy as np

from dice._labels.views import LabelMoments, OwnScale, composition_of, label_moments, standardized_classifier
from dice._model.arrays import explained_by_batches
from dice._model.logistic import GENE_STRENGTH, LATENT_STRENGTH, fit_logistic
from dice._types import Codes, Floats

#: Maximum number of cells on each side, maximum number of query batches, and minimum number of cells per batch.
SIDE_CELLS, MOST_EVIDENCE, EVIDENCE_CELLS = 1500, 5, 50
ITERATIONS = 25


def widest_batches(latents: Floats, columns: dict[str, Codes], labels: Codes) -> str | None:
    """Return the batch column that explains most variance of the latents (n, k) within labels (n,)."""
    shares = {name: explained_by_batches(latents, codes, labels) for name, codes in columns.items()}
    return max(shares, key=lambda name: shares[name]) if shares else None


def batch_evidence(
    latents: Floats, components: Floats, labels: Codes, batches: Codes, n_labels: int, seed: int
) -> Floats:
    """Return the numbers of wrong and of expected wrong labels (2,), with the largest batches as queries.

    Parameters
    ----------
    latents, components
        Scaled latents (n, k) and leading components (n, r) of the reference cells.
    labels, batches
        Label and batch (n,) of every cell.
    n_labels
        Number of labels.
    seed
        Seed for sampling cells.
    """
    rng, total = np.random.default_rng(seed), np.zeros(2)
    components = components / max(float(components.std()), 1e-12)
    sizes = np.bincount(batches)
    for batch in np.argsort(-sizes, kind="stable")[:MOST_EVIDENCE]:
        inside, outside = (_sample(np.flatnonzero(own), rng) for own in (batches == batch, batches != batch))
        # Labels missing from the other batches would always be wrong, regardless of the shift.
        inside = inside[np.isin(labels[inside], labels[outside])]
        if len(inside) < EVIDENCE_CELLS or len(np.unique(labels[outside])) < 2:
            continue
        probabilities = _by_views(latents, components, labels, inside, outside, n_labels)
        wrong = (probabilities.argmax(1) != labels[inside]).sum()
        total += [wrong, (1 - probabilities.max(1)).sum()]
    return total.astype(np.float32)


def _by_views(
    latents: Floats, components: Floats, labels: Codes, inside: Codes, outside: Codes, n_labels: int
) -> Floats:
    """Return mean probabilities (n, C) of the cells `inside` a batch, learned from the cells `outside`."""
    codes = labels[outside]
    known = [
        fit_logistic(x[outside], codes, n_labels, strength=strength, max_iter=ITERATIONS)
        for x, strength in ((latents, LATENT_STRENGTH), (components, GENE_STRENGTH))
    ]
    measured = [classifier(x[inside]) for classifier, x in zip(known, (latents, components), strict=True)]
    counts = np.bincount(codes, minlength=n_labels).astype(np.float64)
    moments = LabelMoments(*label_moments(components[outside], codes, n_labels), counts)
    composition = composition_of(np.mean(measured, axis=0), moments.composition)
    own = OwnScale.of(components[inside], moments, composition)
    return np.mean([*measured, standardized_classifier(known[1], own)(components[inside])], axis=0)


def _sample(cells: Codes, rng: np.random.Generator) -> Codes:
    """Return at most `SIDE_CELLS` random cells, sorted."""
    return cells if len(cells) <= SIDE_CELLS else np.sort(rng.choice(cells, SIDE_CELLS, replace=False))
