"""Learn a label model from a reference. It is stored in the prior and used for all queries."""

from collections.abc import Mapping
from dataclasses import replace
from importlib.metadata import version
from typing import Any

import numpy as np
from anndata import AnnData
from sklearn.utils.extmath import randomized_svd

from dice import _log
from dice._data.read import record
from dice._data.recipe import batch_columns
from dice._labels import views
from dice._labels.cells import LabelCells
from dice._labels.model import MOST_CELLS, REPRESENTATIONS, Labelled, LabelModel
from dice._labels.novelty import within_groups
from dice._model.arrays import GENE_STRENGTH, LATENT_STRENGTH, Logistic, explained_by_batches, fit_logistic, subsample
from dice._query.query import Query
from dice._query.reference import as_query
from dice._types import Codes, Floats, Mask
from dice.options import Options

#: Packages whose versions are recorded.
PACKAGES = ("scdice", "torch", "numpy", "anndata")
#: Approximate maximum number of cells for the gene classifier. Their expression is dense in memory.
MAX_GENE_CELLS = 5000
#: Classifiers also train on thinned copies of all cells, down to this share of the typical depth. Accuracy / macro-F1
#: on 14 pairs of technologies: .823 / .769 with and .820 / .752 without (one seed; see docs/labels.md).
LEAST_DEPTH = 0.05
#: Panels: log depths of the cells relative to their median, and the smallest depth of copies.
PANEL_DEPTHS, LEAST_OF_PANEL = np.linspace(-np.log(3), np.log(3), 1000, dtype=np.float32), 0.1
#: Iterations of the regression on genes. Stopping early acts as a second penalty: on five pairs of technologies, 15
#: iterations were at least as accurate as 100 (mean accuracy .830 against .807, one seed) and took a fifth of the time.
GENE_ITERATIONS = 15
#: Iterations of the regressions on latents.
LATENT_ITERATIONS = 50
#: Comparison of batches: maximum number of cells in a batch and outside of it, maximum number of batches, and minimum
#: number of cells per batch.
SIDE_CELLS, MOST_EVIDENCE, EVIDENCE_CELLS = 1500, 5, 50
EVIDENCE_ITERATIONS = 25
#: Maximum number of components that stand for the genes in the comparison of batches.
MOST_COMPONENTS = 100


def learn_labels(reference: AnnData, prior: Any, labelled: Labelled, seed: int, who: str = "reference") -> LabelModel:
    """Learn the label model from all labelled cells except calibration cells."""
    batches, title = batch_columns(reference), record(reference, "title")
    copies = _cells(reference, prior, labelled, who)
    whole, (fit, possible) = copies[0], _taught_by(labelled)
    calibration, n_labels = subsample(labelled.cells("calibration"), MOST_CELLS), len(labelled.names)
    scale = prior.latent_scale
    with _log.progress(total=len(REPRESENTATIONS), desc="Learning labels", unit="fit") as bar:
        classifiers, logits = {}, {}
        for name in REPRESENTATIONS[:2]:
            latents = [(cells.y if name == "projection" else cells.clean) / scale for cells in copies]
            # Latents of a panel are a rotation of its few genes, so they need the penalty of genes.
            classifiers[name] = _fit([x[fit] for x in latents], possible, n_labels, genes=prior.is_panel)
            logits[name] = classifiers[name].logits(latents[0][calibration])
            bar.update()
        codes = _drawn(possible, classifiers["projection"](whole.y[fit] / scale), seed)
        rows, labels = fit[sampled := _sample(np.arange(len(fit)), codes, seed)], codes[sampled]
        known, held_out = np.split(whole.genes(np.concatenate([rows, calibration])), [len(rows)])
        thinned = [cells.genes(rows) for cells in copies[1:]]
        classifiers["genes"] = _fit([known, *thinned], possible[sampled], n_labels, genes=True)
        logits["genes"] = classifiers["genes"].logits(held_out)
        bar.update()
    y, counts = whole.y[fit], np.bincount(codes, minlength=n_labels).astype(np.float32)
    means, variances = views.label_moments(known, labels, n_labels)
    moments = views.LabelMoments(means.astype(np.float64), variances.astype(np.float64), counts)
    components = _components(known, labels, moments, seed)
    columns = {name: column[rows] for name, column in batches.items() if name != labelled.key}
    evidence, entries = _evidence(whole.y[rows] / scale, components, labels, columns, n_labels, seed)
    model = LabelModel(
        names=labelled.names, classifiers=classifiers, logits=logits, counts=counts,
        centres=views.label_moments(y, codes, n_labels)[0], whiten=within_groups(y, codes).astype(np.float32),
        calibration_codes=labelled.codes[calibration], calibration_y=whole.y[calibration],
        gene_means=means, gene_variances=variances, batch_evidence=evidence,
        temperature=_temperature(moments, held_out, labelled.codes[calibration], prior.projection.scale),
        card=card_of(title, prior, labelled) | entries,
    )  # fmt: skip
    return replace(model, card={**model.card, **_scores(model)})


def _taught_by(labelled: Labelled) -> tuple[Codes, Codes | Mask]:
    """Return the cells to learn from and their labels (n,), or possible labels (n, C) if some labels are coarse."""
    fit = labelled.cells("train", "validation", coarse=True)
    if labelled.tree is None or not labelled.n_coarse:
        return fit, labelled.nodes[fit]
    return fit, labelled.tree.members[labelled.nodes[fit]]


def _drawn(possible: Codes | Mask, probabilities: Floats, seed: int) -> Codes:
    """Return one label (n,) per cell, drawn from its possible labels by their probabilities (n, C)."""
    if possible.ndim == 1:
        return possible.astype(np.intp)
    reached = np.cumsum(np.where(possible, probabilities + 1e-12, 0.0), axis=1)
    drawn = np.random.default_rng(seed).random(len(reached)) * reached[:, -1]
    return (reached <= drawn[:, None]).sum(1).astype(np.intp)


def _evidence(
    latents: Floats, components: Floats, codes: Codes, columns: Mapping[str, Codes], n_labels: int, seed: int
) -> tuple[Floats, dict[str, Any]]:
    """Return the numbers of wrong and of expected wrong labels (2,) between batches, and entries for the card."""
    if not columns:
        return np.zeros(2, np.float32), {}
    # Use the batches that explain most variance of the latents within labels.
    name = max(columns, key=lambda name: explained_by_batches(latents, columns[name], codes))
    found = batch_evidence(latents, components, codes, columns[name], n_labels, seed)
    return found, {"batches": name, "batch_errors": int(found[0]), "batch_errors_expected": round(float(found[1]), 1)}


def _fit(copies: list[Floats], codes: Codes | Mask, n_labels: int, *, genes: bool) -> Logistic:
    """Fit a classifier to cells and their thinned copies, with the penalty for genes or for latents."""
    strength, iterations = (GENE_STRENGTH, GENE_ITERATIONS) if genes else (LATENT_STRENGTH, LATENT_ITERATIONS)
    labels = np.concatenate([codes] * len(copies))
    return fit_logistic(np.concatenate(copies), labels, n_labels, strength=strength, max_iter=iterations)


def _cells(reference: AnnData, prior: Any, labelled: Labelled, who: str) -> list[LabelCells]:
    """Return the reference cells and, if there are counts, copies thinned to smaller depths.

    For a panel, the cells themselves are also thinned, to depths that are typical of a query.
    """
    options = Options(rho=0.0, uncertainty=False, shift=False, check=False, layer=prior.params.get("layer"))
    own = Query.of(reference, prior, options, who=who)
    whole = as_query(reference, own, labelled.roles, depths=np.empty(0, np.float32))
    if not own.measured:
        return [LabelCells.of(whole)]
    # Depths are relative to the target sum, which is the median depth of the query for a panel.
    panel = prior.is_panel
    typical, least = (0.0, LEAST_OF_PANEL) if panel else (prior.typical, LEAST_DEPTH)
    thin = typical + np.linspace(np.log(least), 0, 1000, dtype=np.float32)
    return [LabelCells.of(replace(whole, depths=depths)) for depths in (PANEL_DEPTHS if panel else whole.depths, thin)]


def _temperature(moments: views.LabelMoments, held_out: Floats, codes: Codes, scale: Floats) -> Floats:
    """Return the temperature (1,) of cosines between calibration cells (m, d) with labels (m,) and label profiles."""
    present = (moments.counts > 0) / (moments.counts > 0).sum()
    mean, deviation = moments.of(present)
    profiles = views.Profiles.of(views.OwnScale(mean, deviation, mean, deviation), moments, scale)
    return np.array([profiles.learn_temperature(held_out, codes)], np.float32)


def _components(x: Floats, codes: Codes, moments: views.LabelMoments, seed: int) -> Floats:
    """Return leading components (n, r) of cells (n, d). Cells of rare labels count more."""
    rows = _sample(np.arange(len(x)), codes, seed, most=MOST_CELLS)
    centred = x - (moments.composition @ moments.mean).astype(np.float32)
    n_components = max(min(MOST_COMPONENTS, len(rows) // 2, x.shape[1] // 2), 1)
    _, _, directions = randomized_svd(centred[rows], n_components, n_iter=2, random_state=seed % 2**32)
    return centred @ np.ascontiguousarray(directions.T, dtype=np.float32)


def card_of(title: Any, prior: Any, labelled: Labelled) -> dict[str, Any]:
    """Return the description of a reference: labels with numbers of cells, tree, title of the source, versions."""
    counts = np.bincount(labelled.codes[labelled.codes >= 0], minlength=len(labelled.names))
    card = {
        "labels_key": labelled.key, "labels": labelled.names, "label_cells": counts.tolist(),
        "checksum": labelled.checksum, "cells": len(labelled.roles), "genes": len(prior.genes),
        "versions": {name: version(name) for name in PACKAGES},
    }  # fmt: skip
    if isinstance(title, str):
        card["source"] = title
    if labelled.colors is not None:
        card["colors"] = labelled.colors
    return card if labelled.tree is None else card | labelled.tree.to_card()


def _scores(model: LabelModel) -> dict[str, Any]:
    """Return accuracy and F1 per label on calibration cells, for the mean of all classifiers."""
    given, codes = model.calibration().argmax(1), model.calibration_codes
    f1 = model.tree.f1(codes, given)[: len(model.names)].tolist()
    rounded = [None if np.isnan(score) else round(score, 4) for score in f1]
    return {"held_out": len(codes), "accuracy": round(float((given == codes).mean()), 4), "f1": rounded}


def _sample(rows: Codes, codes: Codes, seed: int, most: int = MAX_GENE_CELLS) -> Codes:
    """Return about `most` random cells, with about 50 cells or more of each label if possible."""
    if len(rows) <= most:
        return rows
    rng = np.random.default_rng(seed)
    counts = np.bincount(codes)
    share = np.maximum(most / len(rows), np.minimum(1, 50 / np.maximum(counts, 1)))[codes]
    return rows[rng.random(len(rows)) < share]


def batch_evidence(
    latents: Floats, components: Floats, labels: Codes, batches: Codes, n_labels: int, seed: int
) -> Floats:
    """Label the largest batches by all other batches. Return the numbers of wrong and expected wrong labels (2,).

    Cells have scaled latents (n, k), leading components (n, r), a label (n,) and a batch (n,).
    """
    rng, total = np.random.default_rng(seed), np.zeros(2)
    components = components / max(float(components.std()), 1e-12)
    sizes = np.bincount(batches)
    for batch in np.argsort(-sizes, kind="stable")[:MOST_EVIDENCE]:
        sides = (np.flatnonzero(own) for own in (batches == batch, batches != batch))
        inside, outside = (np.sort(rng.choice(one, min(len(one), SIDE_CELLS), replace=False)) for one in sides)
        # Labels missing from the other batches would always be wrong, regardless of the shift.
        inside = inside[np.isin(labels[inside], labels[outside])]
        if len(inside) < EVIDENCE_CELLS or len(np.unique(labels[outside])) < 2:
            continue
        probabilities = _by_views((latents, components), labels, inside, outside, n_labels)
        wrong = (probabilities.argmax(1) != labels[inside]).sum()
        total += [wrong, (1 - probabilities.max(1)).sum()]
    return total.astype(np.float32)


def _by_views(inputs: tuple[Floats, Floats], labels: Codes, inside: Codes, outside: Codes, n_labels: int) -> Floats:
    """Return mean probabilities (n, C) of the cells `inside` a batch, learned from the cells `outside`.

    Three classifiers are averaged: of latents, of components, and of components with matched moments.
    """
    codes, measured = labels[outside], []
    for x, strength in zip(inputs, (LATENT_STRENGTH, GENE_STRENGTH), strict=True):
        classifier = fit_logistic(x[outside], codes, n_labels, strength=strength, max_iter=EVIDENCE_ITERATIONS)
        measured.append(classifier(x[inside]))
    counts = np.bincount(codes, minlength=n_labels).astype(np.float64)
    moments = views.LabelMoments(*views.label_moments(x[outside], codes, n_labels), counts)
    own = views.OwnScale.of(x[inside], moments, views.composition_of(np.mean(measured, axis=0), moments.composition))
    return np.mean([*measured, views.standardized_classifier(classifier, own)(x[inside])], axis=0)
