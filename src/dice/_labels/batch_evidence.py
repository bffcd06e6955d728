"""How often labels are wrong under a shift, beside how often they are expected to be, among batches of a reference.

Every batch is a query of the others. Its cells are labelled by views as a query's are, in short: regressions on latents
and on leading components, as measured and standardised by the batch's own moments. The number of wrong labels and the
number that the averaged probabilities lead to expect are summed over batches.
"""

from __future__ import annotations

import numpy as np

from dice._labels.views import LabelMoments, OwnScale, composition_of, label_moments, standardized_classifier
from dice._model.batch_effect import explained_by_batches
from dice._model.logistic import GENE_STRENGTH, LATENT_STRENGTH, fit_logistic
from dice._types import Codes, Floats

#: Cells of each side of a comparison, batches that are queries, and cells that a batch needs.
SIDE_CELLS, MOST_EVIDENCE, EVIDENCE_CELLS = 1500, 5, 50
ITERATIONS = 25


def widest_batches(latents: Floats, columns: dict[str, Codes], labels: Codes) -> str | None:
    """The column of batches (n,) that explains most of the latents (n, k) within labels (n,)."""
    shares = {name: explained_by_batches(latents, codes, labels) for name, codes in columns.items()}
    return max(shares, key=lambda name: shares[name]) if shares else None


def batch_evidence(
    latents: Floats, components: Floats, labels: Codes, batches: Codes, n_labels: int, seed: int
) -> Floats:
    """Wrong labels, and labels expected to be wrong (2,), with the largest batches as queries of all others.

    Parameters
    ----------
    latents, components
        Scaled latents (n, k) and leading components (n, r) of the reference's cells.
    labels, batches
        Their labels and batches (n,).
    n_labels
        Number of labels.
    seed
        Seed of the choice of cells.
    """
    rng, total = np.random.default_rng(seed), np.zeros(2)
    components = components / max(float(components.std()), 1e-12)
    sizes = np.bincount(batches)
    for batch in np.argsort(-sizes, kind="stable")[:MOST_EVIDENCE]:
        inside, outside = (_some(np.flatnonzero(own), rng) for own in (batches == batch, batches != batch))
        # Labels that the others lack cannot be right, and say nothing of the shift.
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
    """Mean probabilities (n, C) of cells `inside` a batch, learned from cells `outside`."""
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


def _some(cells: Codes, rng: np.random.Generator) -> Codes:
    return cells if len(cells) <= SIDE_CELLS else np.sort(rng.choice(cells, SIDE_CELLS, replace=False))
