"""Learning labels from a reference: once, for every query that will come."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from anndata import AnnData
from numpy.typing import NDArray

from dice import _log
from dice._anndata.read import names as names_of
from dice._anndata.read import record
from dice._core.evenly import evenly
from dice._core.labels.card import make_card
from dice._core.labels.classify import GENE_STRENGTH, LATENT_STRENGTH, Logistic, f1_scores, fit_logistic, softmax
from dice._core.labels.model import MOST_CELLS, REPRESENTATIONS, Candidate, LabelModel
from dice._core.labels.novelty import within_groups
from dice._core.prior.prior import LearnedPrior
from dice._errors import InputError
from dice._keys import PriorKeys
from dice._query.held_out import folds_of
from dice._query.query import Query
from dice._query.reference import Labelled, ReferenceQuery, as_query, labels_of, read_reference
from dice._query.represented import Represented
from dice._types import Codes, Floats
from dice.options import Options

#: Cells that a classifier of genes is fitted to at most: they are dense in memory.
MAX_GENE_CELLS = 5000
#: Classifiers also see every cell with fewer counts, down to this share of the typical depth. Accuracy / macro-F1 on 14
#: pairs of technologies .823 / .769 with and .820 / .752 without (one seed; docs/labels.md has shallow queries).
LEAST_DEPTH = 0.05


def learn_labels(reference: AnnData, prior: Any, labelled: Labelled, seed: int, who: str = "reference") -> LabelModel:
    """Fit the classifiers to all labelled cells but those of the calibration; see what they say of held-out ones."""
    whole, thin = _cells(reference, prior, labelled, who)
    fit, calibration = labelled.cells("train", "validation"), labelled.cells("calibration")
    calibration = evenly(calibration, MOST_CELLS)
    folds = list(folds_of(labelled.cells("train"), labelled.cells("validation"), seed))
    tested = np.concatenate([test for _, test in folds])
    candidates = {}
    with _log.progress(total=len(REPRESENTATIONS) * (1 + len(folds)), desc="Learning labels", unit="fit") as bar:
        for name in REPRESENTATIONS:
            features = _Features(name, whole, thin, fit, seed, bar.update)
            classifier = features.fit(fit, labelled)
            candidates[name] = Candidate(
                classifier,
                _means(classifier.logits(features.of(fit)), labelled.codes[fit], len(labelled.names)),
                np.concatenate([features.fit(train, labelled).logits(features.of(test)) for train, test in folds]),
                classifier.logits(features.of(calibration)),
            )
    y, codes, card = whole.y[fit], labelled.codes[fit], card_of(reference, prior, labelled)
    # Many held-out cells say no more than some; those that are kept are spread evenly.
    kept = evenly(np.arange(len(tested)), MOST_CELLS)
    candidates = {name: replace(candidate, held_out=candidate.held_out[kept]) for name, candidate in candidates.items()}
    model = LabelModel(
        names=labelled.names,
        candidates=candidates,
        counts=np.bincount(codes, minlength=len(labelled.names)).astype(np.float32),
        centres=_means(y, codes, len(labelled.names)),
        whiten=within_groups(y, codes),
        held_out_codes=labelled.codes[tested][kept],
        calibration_codes=labelled.codes[calibration],
        calibration_y=whole.y[calibration],
        card=card,
    )
    return replace(model, card=card | _scores(model))


class _Features:
    """One representation of the reference's cells, whole and with fewer counts."""

    def __init__(
        self, name: str, whole: Represented, thin: Represented | None, fit: Codes, seed: int, tell: Callable[[], object]
    ) -> None:
        self.name, self.whole, self.thin, self.seed, self.tell = name, whole, thin, seed, tell
        self.known = None if name == "genes" else whole.latents(name)
        self.shallow = None if name == "genes" or thin is None else thin.latents(name)

    def of(self, rows: Codes) -> Floats:
        return self.whole.genes(rows) if self.known is None else self.known[rows]

    def fit(self, rows: Codes, labelled: Labelled) -> Logistic:
        """The classifier of some cells."""
        codes, strength = labelled.codes[rows], LATENT_STRENGTH
        if self.known is None:
            rows, codes = _some(rows, codes, self.seed)
            strength = GENE_STRENGTH
        x = self.of(rows)
        if self.thin is not None:
            fewer = self.thin.genes(rows) if self.shallow is None else self.shallow[rows]
            x, codes = np.concatenate([x, fewer]), np.concatenate([codes, codes])
        fitted = fit_logistic(x, codes, len(labelled.names), strength=strength)
        self.tell()
        return fitted


def _cells(
    reference: AnnData, prior: LearnedPrior, labelled: Labelled, who: str
) -> tuple[Represented, Represented | None]:
    """The reference's cells with all of its genes, as they are, and with fewer counts where they are counts."""
    options = Options(
        rho=0.0, uncertainty=False, shift=False, check=False, layer=prior.params.get("layer"),
        counts_layer=prior.params.get("counts_layer"),
    )  # fmt: skip
    own = Query.of(reference, prior, options, who=who)  # type: ignore[arg-type]
    whole = as_query(reference, own, labelled.roles, depths=np.empty(0, np.float32))
    if not own.measured or whole.counts is not None:
        return Represented.of(whole), None
    depths = prior.typical + np.linspace(np.log(LEAST_DEPTH), 0, 1000, dtype=np.float32)
    return Represented.of(whole), Represented.of(_at(whole, depths))


def _at(cells: ReferenceQuery, depths: Floats) -> ReferenceQuery:
    return replace(cells, reader=replace(cells.reader, depths=depths))


def _means(values: Floats, codes: Codes, n_labels: int) -> Floats:
    """Mean (C, p) of every label; zero where it has no cells."""
    sums = np.zeros((n_labels, values.shape[1]))
    np.add.at(sums, codes, values)
    return (sums / np.maximum(np.bincount(codes, minlength=n_labels), 1)[:, None]).astype(np.float32)


def _scores(model: LabelModel) -> dict[str, Any]:
    """Accuracy, and F1 of every label, of the mean of all classifiers on held-out cells."""
    probabilities = np.mean([softmax(candidate.held_out) for candidate in model.candidates.values()], axis=0)
    codes = model.held_out_codes
    if not len(codes):
        return {"held_out": 0}
    f1 = [None if np.isnan(score) else round(score, 4) for score in f1_scores(probabilities, codes)]
    right = round(float((probabilities.argmax(1) == codes).mean()), 4)
    return {"held_out": len(codes), "accuracy": right, "f1": f1}


def _some(rows: Codes, codes: Codes, seed: int) -> tuple[Codes, Codes]:
    """At most `MAX_GENE_CELLS` cells, the rare classes whole."""
    if len(rows) <= MAX_GENE_CELLS:
        return rows, codes
    rng = np.random.default_rng(seed)
    counts = np.bincount(codes)
    share = np.maximum(MAX_GENE_CELLS / len(rows), np.minimum(1, 50 / np.maximum(counts, 1)))[codes]
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
