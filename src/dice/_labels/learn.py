"""Learning labels from a reference: once, for every query that will come."""

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

#: Cells that genes are looked at in: they are dense in memory.
MAX_GENE_CELLS = 5000
#: Classifiers also see every cell with fewer counts, down to this share of the typical depth. Accuracy / macro-F1 on 14
#: pairs of technologies .823 / .769 with and .820 / .752 without (one seed; docs/labels.md has shallow queries).
LEAST_DEPTH = 0.05
#: Iterations of regressions on latents.
LATENT_ITERATIONS = 50


def learn_labels(reference: AnnData, prior: Any, labelled: Labelled, seed: int, who: str = "reference") -> LabelModel:
    """Learn all that labels of queries need, from all labelled cells but those of the calibration."""
    whole, thin = _cells(reference, prior, labelled, who)
    fit = labelled.cells("train", "validation")
    calibration, n_labels = subsample(labelled.cells("calibration"), MOST_CELLS), len(labelled.names)
    rows, _ = _some(fit, labelled.codes[fit], seed)
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
    evidence, told = _evidence(reference, whole.y[rows] / whole.scale, components, rows, labelled, seed)
    return replace(model, batch_evidence=evidence, card=card | _scores(model) | told)


def _evidence(
    reference: AnnData, latents: Floats, components: Floats, rows: Codes, labelled: Labelled, seed: int
) -> tuple[Floats, dict[str, Any]]:
    """How often labels are wrong where the reference's batches are queries of each other, and what is told of it."""
    codes = labelled.codes[rows]
    columns = {name: batches[rows] for name, batches in batch_columns(reference).items() if name != labelled.key}
    name = widest_batches(latents, columns, codes)
    if name is None:
        return np.zeros(2, np.float32), {}
    found = batch_evidence(latents, components, codes, columns[name], len(labelled.names), seed)
    return found, {"batches": name, "batch_errors": int(found[0]), "batch_errors_expected": round(float(found[1]), 1)}


def _fit(x: Floats, thinned: Floats | None, codes: Codes, n_labels: int, *, genes: bool = False) -> Logistic:
    """A classifier of cells as they are and, where they are counts, with fewer of them."""
    if thinned is not None:
        x, codes = np.concatenate([x, thinned]), np.concatenate([codes, codes])
    strength, iterations = (GENE_STRENGTH, GENE_ITERATIONS) if genes else (LATENT_STRENGTH, LATENT_ITERATIONS)
    return fit_logistic(x, codes, n_labels, strength=strength, max_iter=iterations)


def _latents(cells: LabelCells, name: str) -> Floats:
    return np.asarray((cells.clean if name == "denoised" else cells.y) / cells.scale)


def _cells(
    reference: AnnData, prior: LearnedPrior, labelled: Labelled, who: str
) -> tuple[LabelCells, LabelCells | None]:
    """The reference's cells with all of its genes, as they are, and with fewer counts where they are counts."""
    options = Options(
        rho=0.0, uncertainty=False, shift=False, check=False, layer=prior.params.get("layer"),
        counts_layer=prior.params.get("counts_layer"),
    )  # fmt: skip
    own = Query.of(reference, prior, options, who=who)  # type: ignore[arg-type]
    whole = as_query(reference, own, labelled.roles, depths=np.empty(0, np.float32))
    if not own.measured or whole.counts is not None:
        return LabelCells.of(whole), None
    depths = prior.typical + np.linspace(np.log(LEAST_DEPTH), 0, 1000, dtype=np.float32)
    return LabelCells.of(whole), LabelCells.of(_at(whole, depths))


def _at(cells: ReferenceQuery, depths: Floats) -> ReferenceQuery:
    return replace(cells, reader=replace(cells.reader, depths=depths))


def _anchors(x: Floats, codes: Codes, means: Floats, seed: int) -> dict[str, Any]:
    """Some cells by their leading components; those of rare labels are kept."""
    rows, _ = _some(np.arange(len(x)), codes, seed, most=MOST_CELLS)
    counts = np.bincount(codes, minlength=len(means))
    centre = (counts / counts.sum()) @ means
    centred = x[rows] - centre.astype(np.float32)
    n_components = max(min(MOST_COMPONENTS, len(rows) // 2, x.shape[1] // 2), 1)
    basis = leading_directions(centred, n_components, seed)
    return {"anchor_codes": codes[rows], "anchor_scores": centred @ basis, "anchor_basis": basis}


def _means(values: Floats, codes: Codes, n_labels: int) -> Floats:
    """Mean (C, p) of every label; zero where it has no cells."""
    sums = np.zeros((n_labels, values.shape[1]))
    np.add.at(sums, codes, values)
    return (sums / np.maximum(np.bincount(codes, minlength=n_labels), 1)[:, None]).astype(np.float32)


def _scores(model: LabelModel) -> dict[str, Any]:
    """Accuracy, and F1 of every label, of the mean of all classifiers on calibration cells."""
    probabilities, codes = model.calibration(), model.calibration_codes
    f1 = [None if np.isnan(score) else round(score, 4) for score in f1_scores(probabilities, codes)]
    right = round(float((probabilities.argmax(1) == codes).mean()), 4)
    return {"held_out": len(codes), "accuracy": right, "f1": f1}


def _some(rows: Codes, codes: Codes, seed: int, most: int = MAX_GENE_CELLS) -> tuple[Codes, Codes]:
    """About as many cells as asked for at the most, and at least 50 of every label that has them."""
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
    """What is known about labels, and their colours: stored in the prior, or learned now from the reference's cells."""
    stored, trained = prior.labels, prior.params.get("labels_key")
    key = trained if labels_key is None else labels_key
    if key is None:
        raise InputError("The prior was trained without labels: name the reference's labels with labels_key=.")
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
            f"The prior alone knows {'no labels' if stored is None else f'the labels {trained!r} only'}: pass the "
            f"reference with its cells, or train it with dice.tl.train_prior(reference, labels_key={key!r}) and cells "
            "for calibration."
        )
    colors = stored.card.get("colors")
    listed = isinstance(colors, list) and len(colors) == len(stored.names)
    return stored, [str(color) for color in colors] if listed else None


def labels_to_learn(reference: AnnData, roles: NDArray[np.int8], labels_key: str | None) -> Labelled | None:
    """Labels that a prior will be able to tell; None, and why, where there are none to learn or to check by."""
    if labels_key is None:
        return None
    labelled = labels_of(reference, labels_key, roles.astype(np.intp), "adata")
    for role in ("train", "calibration"):
        if not len(labelled.cells(role)):
            _log.warn(
                f"No cell with a label in adata.obs[{labels_key!r}] is kept for the role {role!r}, so that the prior "
                "will not tell labels: label more cells, or pass training=dice.Training(calibration_fraction=0.1)."
            )
            return None
    return labelled


def card_of(reference: AnnData, prior: Any, labelled: Labelled) -> dict[str, Any]:
    """What is told of a reference."""
    counts = np.bincount(labelled.codes[labelled.codes >= 0], minlength=len(labelled.names))
    title = record(reference, "title")
    return make_card(
        labelled.key, labelled.names, counts.tolist(), n_cells=reference.n_obs, n_genes=len(prior.genes),
        source=title if isinstance(title, str) else None, colors=labelled.colors,
    )  # fmt: skip


def _same_labels(card: Mapping[str, Any], labelled: Labelled) -> bool:
    """Whether the reference still has the labels that its prior has learned; files may have sorted them otherwise."""
    counts = np.bincount(labelled.codes[labelled.codes >= 0], minlength=len(labelled.names))
    learned = card.get("label_cells")
    if not isinstance(learned, list) or len(learned) != len(card["labels"]):
        return False
    return dict(zip(card["labels"], learned, strict=True)) == dict(zip(labelled.names, counts.tolist(), strict=True))


def warn_of_unlearned(model: LabelModel) -> None:
    """Labels all of whose cells calibrate are never given."""
    never = [name for name, n in zip(model.names, model.counts, strict=True) if not n]
    if never:
        _log.warn(f"All cells of {never[:5]} were kept for calibration, so that these labels are never given.")
