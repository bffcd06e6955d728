"""Learn a label model from a reference. It is stored in the prior and used for all queries."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from anndata import AnnData
from numpy.typing import NDArray

from dice import _log
from dice._data.batches import batch_columns
from dice._data.read import names as names_of
from dice._data.read import record
from dice._errors import InputError
from dice._keys import PriorKeys
from dice._labels.batch_evidence import batch_evidence, widest_batches
from dice._labels.card import make_card
from dice._labels.cells import LabelCells
from dice._labels.model import MOST_CELLS, MOST_COMPONENTS, REPRESENTATIONS, Candidate, LabelModel
from dice._labels.novelty import within_groups
from dice._labels.views import label_moments, leading_directions
from dice._model.arrays import subsample
from dice._model.logistic import (
    GENE_ITERATIONS,
    GENE_STRENGTH,
    LATENT_STRENGTH,
    Logistic,
    f1_scores,
    fit_logistic,
)
from dice._model.prior import LearnedPrior
from dice._query.query import Query
from dice._query.reference import Labelled, ReferenceQuery, as_query, labels_of, read_reference
from dice._types import Codes, Floats
from dice.options import Options

#: Approximate maximum number of cells for the gene classifier. Their expression is dense in memory.
MAX_GENE_CELLS = 5000
#: Classifiers also train on thinned copies of all cells, down to this share of the typical depth. Accuracy / macro-F1
#: on 14 pairs of technologies: .823 / .769 with and .820 / .752 without (one seed; see docs/labels.md).
LEAST_DEPTH = 0.05
#: Iterations of the regressions on latents.
LATENT_ITERATIONS = 50


def learn_labels(reference: AnnData, prior: Any, labelled: Labelled, seed: int, who: str = "reference") -> LabelModel:
    """Learn the label model from all labelled cells except calibration cells."""
    whole, thin = _cells(reference, prior, labelled, who)
    fit = labelled.cells("train", "validation")
    calibration, n_labels = subsample(labelled.cells("calibration"), MOST_CELLS), len(labelled.names)
    rows, _ = _sample(fit, labelled.codes[fit], seed)
    genes = whole.genes(np.concatenate([rows, calibration]))
    known, held_out = genes[: len(rows)], genes[len(rows) :]
    shallow = None if thin is None else thin.genes(rows)
    with _log.progress(total=len(REPRESENTATIONS), desc="Learning labels", unit="fit") as bar:
        candidates = {}
        for name in REPRESENTATIONS[:2]:
            latents, thinned = (None if cells is None else _latents(cells, name) for cells in (whole, thin))
            assert latents is not None
            classifier = _fit(latents[fit], None if thinned is None else thinned[fit], labelled.codes[fit], n_labels)
            candidates[name] = Candidate(classifier, classifier.logits(latents[calibration]))
            bar.update()
        classifier = _fit(known, shallow, labelled.codes[rows], n_labels, genes=True)
        candidates["genes"] = Candidate(classifier, classifier.logits(held_out))
        bar.update()
    y, codes, card = whole.y[fit], labelled.codes[fit], card_of(reference, prior, labelled)
    means, variances = label_moments(known, labelled.codes[rows], n_labels)
    model = LabelModel(
        names=labelled.names,
        candidates=candidates,
        counts=np.bincount(codes, minlength=n_labels).astype(np.float32),
        centres=_means(y, codes, n_labels),
        whiten=within_groups(y, codes).astype(np.float32),
        calibration_codes=labelled.codes[calibration],
        calibration_y=whole.y[calibration],
        gene_means=means,
        gene_variances=variances,
        **_anchors(known, labelled.codes[rows], means, seed),
        batch_evidence=np.zeros(2, np.float32),
        card=card,
    )
    components = (known - model.anchors.centre.astype(np.float32)) @ model.anchor_basis
    evidence, entries = _evidence(reference, whole.y[rows] / whole.scale, components, rows, labelled, seed)
    return replace(model, batch_evidence=evidence, card=card | _scores(model) | entries)


def _evidence(
    reference: AnnData, latents: Floats, components: Floats, rows: Codes, labelled: Labelled, seed: int
) -> tuple[Floats, dict[str, Any]]:
    """Return the label errors between batches of the reference (2,), and their entries for the card."""
    codes = labelled.codes[rows]
    columns = {name: batches[rows] for name, batches in batch_columns(reference).items() if name != labelled.key}
    name = widest_batches(latents, columns, codes)
    if name is None:
        return np.zeros(2, np.float32), {}
    found = batch_evidence(latents, components, codes, columns[name], len(labelled.names), seed)
    return found, {"batches": name, "batch_errors": int(found[0]), "batch_errors_expected": round(float(found[1]), 1)}


def _fit(x: Floats, thinned: Floats | None, codes: Codes, n_labels: int, *, genes: bool = False) -> Logistic:
    """Fit a classifier to cells and, if there are counts, to their thinned copies."""
    if thinned is not None:
        x, codes = np.concatenate([x, thinned]), np.concatenate([codes, codes])
    strength, iterations = (GENE_STRENGTH, GENE_ITERATIONS) if genes else (LATENT_STRENGTH, LATENT_ITERATIONS)
    return fit_logistic(x, codes, n_labels, strength=strength, max_iter=iterations)


def _latents(cells: LabelCells, name: str) -> Floats:
    return np.asarray((cells.clean if name == "denoised" else cells.y) / cells.scale)


def _cells(
    reference: AnnData, prior: LearnedPrior, labelled: Labelled, who: str
) -> tuple[LabelCells, LabelCells | None]:
    """Return the reference cells and, if there are counts, their thinned copies; else None."""
    options = Options(
        rho=0.0, uncertainty=False, shift=False, check=False, layer=prior.params.get("layer"),
        counts_layer=prior.params.get("counts_layer"),
    )  # fmt: skip
    own = Query.of(reference, prior, options, who=who)  # type: ignore[arg-type]
    whole = as_query(reference, own, labelled.roles, depths=np.empty(0, np.float32))
    if not own.measured or whole.counts is not None:
        return LabelCells.of(whole), None
    depths = prior.typical + np.linspace(np.log(LEAST_DEPTH), 0, 1000, dtype=np.float32)
    return LabelCells.of(whole), LabelCells.of(_at_depths(whole, depths))


def _at_depths(cells: ReferenceQuery, depths: Floats) -> ReferenceQuery:
    return replace(cells, reader=replace(cells.reader, depths=depths))


def _anchors(x: Floats, codes: Codes, means: Floats, seed: int) -> dict[str, Any]:
    """Return a sample of cells as leading components. Rare labels are over-represented."""
    rows, _ = _sample(np.arange(len(x)), codes, seed, most=MOST_CELLS)
    counts = np.bincount(codes, minlength=len(means))
    centre = (counts / counts.sum()) @ means
    centred = x[rows] - centre.astype(np.float32)
    n_components = max(min(MOST_COMPONENTS, len(rows) // 2, x.shape[1] // 2), 1)
    basis = leading_directions(centred, n_components, seed)
    return {"anchor_codes": codes[rows], "anchor_scores": centred @ basis, "anchor_basis": basis}


def _means(values: Floats, codes: Codes, n_labels: int) -> Floats:
    """Return the mean (C, p) of every label; zero for labels without cells."""
    sums = np.zeros((n_labels, values.shape[1]))
    np.add.at(sums, codes, values)
    return (sums / np.maximum(np.bincount(codes, minlength=n_labels), 1)[:, None]).astype(np.float32)


def _scores(model: LabelModel) -> dict[str, Any]:
    """Return accuracy and F1 per label on calibration cells, for the mean of all classifiers."""
    probabilities, codes = model.calibration(), model.calibration_codes
    f1 = [None if np.isnan(score) else round(score, 4) for score in f1_scores(probabilities, codes)]
    right = round(float((probabilities.argmax(1) == codes).mean()), 4)
    return {"held_out": len(codes), "accuracy": right, "f1": f1}


def _sample(rows: Codes, codes: Codes, seed: int, most: int = MAX_GENE_CELLS) -> tuple[Codes, Codes]:
    """Return about `most` random cells and their labels, with about 50 cells or more of each label if it has them."""
    if len(rows) <= most:
        return rows, codes
    rng = np.random.default_rng(seed)
    counts = np.bincount(codes)
    share = np.maximum(most / len(rows), np.minimum(1, 50 / np.maximum(counts, 1)))[codes]
    kept = np.flatnonzero(rng.random(len(rows)) < share)
    return rows[kept], codes[kept]


def read_or_learn(
    reference: object, prior: Any, labels_key: str | None, prior_key: str, seed: int
) -> tuple[LabelModel, list[str] | None]:
    """Return the label model and the colours of labels, from the prior or learned from the reference cells."""
    stored, trained = prior.labels, prior.params.get("labels_key")
    key = trained if labels_key is None else labels_key
    if key is None:
        raise InputError(
            "The prior was trained without labels: pass `labels_key`, the column of labels in reference.obs."
        )
    columns = set(names_of(reference, "obs")) if isinstance(reference, AnnData) and reference.n_obs else set()
    lost = stored is not None and key == trained and key not in columns
    if isinstance(reference, AnnData) and PriorKeys(prior_key).split in columns and not lost:
        labelled = read_reference(reference, key, prior_key)
        if stored is None or key != trained or not _same_labels(stored.card, labelled):
            _log.info(f"Learning the labels in reference.obs[{key!r}].")
            stored = learn_labels(reference, prior, labelled, seed)
        known = None if labelled.colors is None else dict(zip(labelled.names, labelled.colors, strict=True))
        return stored, None if known is None else [known[name] for name in stored.names]
    if stored is None or key != trained:
        raise InputError(
            f"The prior holds {'no labels' if stored is None else f'only the labels {trained!r}'}: pass the reference "
            f"with its cells, or call dice.tl.train_prior(reference, labels_key={key!r}) with a positive "
            "calibration_fraction."
        )
    colors = stored.card.get("colors")
    listed = isinstance(colors, list) and len(colors) == len(stored.names)
    return stored, [str(color) for color in colors] if listed else None


def labels_to_learn(reference: AnnData, roles: NDArray[np.int8], labels_key: str | None) -> Labelled | None:
    """Return the labels to learn. Return None, with a warning, if no training or calibration cell has a label."""
    if labels_key is None:
        return None
    labelled = labels_of(reference, labels_key, roles.astype(np.intp), "adata")
    for role in ("train", "calibration"):
        if not len(labelled.cells(role)):
            _log.warn(
                f"No cell with a label in adata.obs[{labels_key!r}] has the role {role!r}, so the prior will not hold "
                "labels: label more cells, or pass training=dice.Training(calibration_fraction=0.1)."
            )
            return None
    return labelled


def card_of(reference: AnnData, prior: Any, labelled: Labelled) -> dict[str, Any]:
    """Return the card of a reference."""
    counts = np.bincount(labelled.codes[labelled.codes >= 0], minlength=len(labelled.names))
    title = record(reference, "title")
    return make_card(
        labelled.key, labelled.names, counts.tolist(), n_cells=reference.n_obs, n_genes=len(prior.genes),
        source=title if isinstance(title, str) else None, colors=labelled.colors,
    )  # fmt: skip


def _same_labels(card: Mapping[str, Any], labelled: Labelled) -> bool:
    """Return whether the reference still has the labels of its prior. Their order does not matter."""
    counts = np.bincount(labelled.codes[labelled.codes >= 0], minlength=len(labelled.names))
    learned = card.get("label_cells")
    if not isinstance(learned, list) or len(learned) != len(card["labels"]):
        return False
    return dict(zip(card["labels"], learned, strict=True)) == dict(zip(labelled.names, counts.tolist(), strict=True))


def warn_of_unlearned(model: LabelModel) -> None:
    """Warn about labels that are never predicted because all of their cells are calibration cells."""
    never = [name for name, n in zip(model.names, model.counts, strict=True) if not n]
    if never:
        _log.warn(f"All cells of the labels {never[:5]} are calibration cells, so these labels are never predicted.")
