"""Label probabilities of a query, averaged over several views (see :mod:`dice._labels.views`).

Each view is a function of cells. Two steps alternate on a sample of the query: estimate the composition, and fit the
views that depend on the composition.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np

from dice._errors import InputError
from dice._labels import views
from dice._labels.cells import LabelCells, taught, with_all_labels, with_tissue
from dice._labels.model import REPRESENTATIONS, LabelModel
from dice._labels.views import MATCHED, LabelMoments, OwnScale, Profiles, with_ratios
from dice._model.arrays import Logistic, separation, softmax
from dice._types import Codes, Floats
from dice.options import Classifier, Shift

#: Number of rounds that alternate between the composition and the matched views.
ROUNDS = 2
#: Function from standardised genes (n, d) and positions (n,) of cells to probabilities (n, C).
LabelView: TypeAlias = Callable[[Floats, Codes], Floats]


@dataclass(frozen=True)
class Views:
    """The views of a query under a label model."""

    cells: LabelCells
    model: LabelModel
    #: Weights of the classifiers, by representation; they sum to 1.
    weights: Mapping[str, float]
    #: Names of the views that match query and reference.
    matched: tuple[str, ...]

    @cached_property
    def gene_classifier(self) -> Logistic:
        """Gene classifier for the query's genes."""
        return self.cells.observed(self.model.classifiers["genes"])

    @cached_property
    def moments(self) -> LabelMoments:
        """Moments of the query's genes in every label."""
        return self.model.moments(self.cells.query.match.prior)

    def matching(self, weights: Floats, composition: Floats) -> dict[str, LabelView]:
        """Return the views that match query and reference at one composition (C,).

        `weights` (m,) are weights of the sampled query cells. The method ``_name`` makes the view ``name``.
        """
        own = OwnScale.of(self.cells.sample, self.moments, composition, weights)
        return {name: getattr(self, f"_{name}")(own, weights, composition) for name in self.matched}

    def _centered(self, _: OwnScale, weights: Floats, composition: Floats) -> LabelView:
        """Return the view of cells moved to the mean of the reference. `weights` (m,) belong to the sampled cells."""
        cells, expected, rows = self.cells, composition @ self.model.centres, self.cells.sampled
        # Denoising preserves means, so noisy and clean latents of a label have the same mean.
        away, clean_away = (views.excess_of_mean(z[rows], expected, weights) for z in (cells.y, cells.clean))
        moved = replace(cells, y=cells.y - away, clean=cells.clean - clean_away, away=away[None])
        return self.by_classifiers(moved)

    def _standardized(self, own: OwnScale, *_: Floats) -> LabelView:
        """Return the view of cells whose genes are scaled to the mean and variance of the reference.

        A panel uses all classifiers. Otherwise only genes are classified, because scaling amplifies the noise of weak
        genes, and this noise would add up in the latents.
        """
        cells, classifier = self.cells, views.standardized_classifier(self.gene_classifier, own)
        if not cells.prior.is_panel:
            return lambda x, _: classifier(x)

        def view(x: Floats, rows: Codes) -> Floats:
            y = cells.y[rows] + (own.matched(x) - x) @ cells.query.likelihood.loadings
            return self._by_latents(y, cells.cleaned(y, rows)) + self.weights.get("genes", 0.0) * classifier(x)

        return view

    def _profiles(self, own: OwnScale, *_: Floats) -> LabelView:
        """Return the view by cosines between centred cells and centred mean profiles of the labels."""
        scale = self.cells.prior.projection.scale[self.cells.query.match.prior]
        profiles = Profiles.of(own, self.moments, scale, float(self.model.temperature[0]))
        return lambda x, _: profiles(x)

    def _by_latents(self, y: Floats, clean: Floats) -> Floats:
        """Return the weighted sum (n, C) of the probabilities of classifiers on noisy and clean latents (n, k)."""
        total = np.zeros((len(y), len(self.model.names)), dtype=np.float32)
        for name, latents in (("projection", y), ("denoised", clean)):
            if name in self.weights:
                logits = self.model.classifiers[name].logits(latents / self.cells.prior.latent_scale)
                total += self.weights[name] * softmax(logits)
        return total

    def by_classifiers(self, cells: LabelCells) -> LabelView:
        """Return the view that averages all classifiers. The shift of `cells` is removed."""
        total, weight = self._by_latents(cells.y, cells.clean), self.weights.get("genes", 0.0)
        if not weight:
            return lambda _, rows: total[rows]
        classifier = self.gene_classifier
        # An offset lies in the span of the loadings. The residual of the genes does not change.
        carried = cells.query.likelihood.loadings.T @ classifier.slopes
        moved = np.broadcast_to(np.zeros((1, 1)) if cells.away is None else -cells.away @ carried, total.shape)
        return lambda x, rows: total[rows] + weight * softmax(classifier.logits(x) + moved[rows])


def views_of(
    cells: LabelCells, model: LabelModel, classifier: Classifier, shift: Any
) -> tuple[Views, dict[str, LabelView], dict[str, Any]]:
    """Return the views to compute, those that do not change the reference, and the record of the offsets."""
    kinds = REPRESENTATIONS if classifier.representation == "auto" else (classifier.representation,)
    weights = model.weights(kinds, by_loss=cells.prior.is_panel)
    kept, record = {"measured": cells}, dict[str, Any](strategy="none")
    matched: tuple[str, ...] = ()
    strategy = shift.strategy if isinstance(shift, Shift) else "stored"
    if strategy in MATCHED:
        if shift.batch_key is not None:
            raise InputError(f"shift={strategy!r} matches the query as a whole: pass it without batch_key.")
        if strategy != "centered" and "genes" not in kinds:
            raise InputError(f"`classifier` must be 'auto' or 'genes' with shift={strategy!r}, got {kinds[0]!r}.")
        matched = (strategy,)
    elif strategy == "auto":
        # A panel has too few genes for soft clusters, and a small reference too few cells.
        if not cells.prior.is_panel and cells.prior.soft_clusters is not None:
            kept["clusters"], record = cells.without(Shift("clusters", shift.batch_key))
        # The cosines of few genes at few counts are mostly noise.
        matched = tuple(name for name in MATCHED if name != "profiles" or not cells.prior.is_panel)
        matched = matched if len(kinds) > 1 else ("centered",)
    elif shift is not False:
        moved, record = cells.without(shift)
        kept = {strategy: moved}
    chosen = Views(cells, model, weights, matched)
    return chosen, {name: chosen.by_classifiers(own) for name, own in kept.items()}, record


@dataclass(frozen=True)
class Classified:
    """Labels of a query: the cells, the label model, and probabilities (n, C) averaged over views."""

    cells: LabelCells
    model: LabelModel
    probabilities: Floats
    #: Probabilities (n, C) by the view of cells as measured.
    measured: Floats
    #: Label (n, V) of every cell by every view, and its probability (n, V).
    by_view: tuple[Codes, Floats]
    #: Weights of the classifiers, by representation.
    weights: Mapping[str, float]
    #: Strength of the shift, from 0 (calibration cells can be used) to 1 (calibration cells cannot be used).
    strength: float
    #: Entries for ``.uns``: views, composition, scores of the classifiers, the offsets of a view, and params.
    record: dict[str, Any]


@dataclass(frozen=True)
class _Fitted:
    """Views fitted on a sample of the query. The view of cells as measured comes first."""

    views: Mapping[str, LabelView]
    #: Weights of the views that are averaged.
    weights: Mapping[str, float]
    #: Factors (C,) that convert probabilities to the composition of the query.
    ratios: Floats
    #: Share of the shift that the composition does not explain.
    unexplained: float = 0.0

    def __call__(self, x: Floats, rows: Codes) -> tuple[Floats, Floats, Codes, Floats]:
        """Return probabilities (n, C) by all views and as measured, and label and probability (n, V) by each view."""
        found = {name: view(x, rows) for name, view in self.views.items()}
        mean, measured = with_ratios(_mean(found, self.weights), self.ratios), next(iter(found.values()))
        labels, likely = (np.stack([pick(found[name], 1) for name in self.weights], 1) for pick in (np.argmax, np.max))
        return mean, measured.astype(np.float64), labels, likely

    def table(self, agreement: Floats, strength: float) -> dict[str, Any]:
        """Return the weight of each view before self-teaching, and its agreement (V,) with the final labels."""
        names, weights = list(self.weights), np.array(list(self.weights.values()))
        weights = strength * weights / weights.sum()
        weights[0] += 1 - strength
        table = {"view": np.array(names, dtype=str), "weight": weights, "agreement": agreement}
        return table | {"unexplained_share": self.unexplained}


def _mean(found: Mapping[str, Floats], weights: Mapping[str, float]) -> Floats:
    """Return the weighted mean (n, C) of the probabilities of views."""
    total = sum(weights.values())
    return np.asarray(sum(weight / total * found[name] for name, weight in weights.items()))


def classify(
    cells: LabelCells, model: LabelModel, classifier: Classifier, shift: Any, positions: Floats | None = None
) -> Classified:
    """Return label probabilities of all cells, from all views or from the view named by `shift`.

    With `positions` (n, 2), cells are averaged with their neighbours in the tissue.

    If the query looks like the reference, only the view of cells as measured is used. The weight of the other
    views and of the self-taught regression grows with the strength of the shift.
    """
    averaged, scale = isinstance(shift, Shift) and shift.strategy == "auto", cells.prior.latent_scale
    own, seed = cells.y[cells.query.expressing], cells.query.options.random_state
    auc = separation(model.calibration_y / scale, own / scale, seed)
    chosen, kept, offsets = views_of(cells, model, classifier, shift)
    fitted = _fit(chosen, kept, averaged)
    probabilities, measured, given, likely = cells.each(fitted)
    weight = views.shift_strength(auc) if averaged else 1.0
    if averaged and weight > 0:
        self_taught = taught(cells, probabilities, np.arange(len(cells)))
        by_views, by_all = ((1 - weight) * measured + weight * p for p in (probabilities, self_taught))
        probabilities = with_all_labels(by_all, by_views)
    elif averaged:
        probabilities = measured
    probabilities, tissue_weight = (probabilities, 0.0) if positions is None else with_tissue(probabilities, positions)
    agreed = (given == probabilities.argmax(1)[:, None])[cells.seen]
    strength = views.shift_strength(auc, int(cells.seen.sum()))
    params = {"n_calibration": len(model.calibration_codes), "shift_auc": auc, "shift_strength": strength}
    record = {
        "views": fitted.table(agreed.sum(0) / max(len(agreed), 1), weight),
        "composition": views.composition_of(probabilities[cells.seen], chosen.moments.composition),
        "candidates": model.scores(chosen.weights), "shift": offsets,
        "params": params | {"tissue_weight": tissue_weight},
    }  # fmt: skip
    return Classified(cells, model, probabilities, measured, (given, likely), chosen.weights, strength, record)


def _fit(chosen: Views, kept: dict[str, LabelView], averaged: bool) -> _Fitted:
    """Fit the matched views and the composition in turns, on a sample of the query."""
    cells, reference, rows = chosen.cells, chosen.moments.composition, chosen.cells.sampled
    ratios = np.ones_like(reference)
    if not len(rows):
        # If all cells are empty, they get the composition of the reference.
        kept = dict.fromkeys(kept, lambda _, rows: np.repeat(reference[None], len(rows), axis=0))
    if not chosen.matched or not len(rows):
        return _Fitted(kept, dict.fromkeys(kept, 1.0), ratios)
    found = {name: view(cells.sample, rows) for name, view in kept.items()}
    current = np.mean(list(found.values()), axis=0)
    share = views.unexplained_share(cells.y[rows].mean(0), chosen.model.centres, current.mean(0), reference)
    # Labels from few genes are too uncertain to weight cells by them.
    uneven = 0.0 if cells.prior.is_panel else share
    for _ in range(ROUNDS):
        matched = chosen.matching(*views.balanced(current, reference, uneven))
        found |= {name: view(cells.sample, rows) for name, view in matched.items()}
        # The weight of the view of cells as measured is the part of the shift that the composition explains.
        weights = dict.fromkeys(found, 1.0) | {"measured": 1 - share} if averaged else dict.fromkeys(matched, 1.0)
        current = _mean(found, weights)
        if averaged:
            ratios = views.label_ratios(current, reference, share)
            current = taught(cells, with_ratios(current, ratios), rows)
    return _Fitted(kept | matched, weights, ratios, share)
