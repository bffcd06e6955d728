"""Choose and compute the views of a query (see :mod:`dice._labels.views`), and let the query teach itself.

The self-taught view is a regression on the query's latents, learned from its most certain cells of each label. A shift
moves the cells of a type together, so certain cells help to label uncertain cells next to them. Each cell is predicted
by a regression that was fitted without it, because otherwise the regression would confirm its errors.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np

from dice._errors import InputError
from dice._labels import views
from dice._labels.cells import LabelCells
from dice._labels.model import REPRESENTATIONS, LabelModel
from dice._labels.views import MATCHED, LabelMoments, OwnScale, Profiles
from dice._model.arrays import LATENT_STRENGTH, Logistic, fit_logistic, softmax
from dice._model.offsets import Offsets
from dice._types import Codes, Floats, Mask
from dice.options import Classifier, Shift

#: Share of the cells of each label that are used for teaching, and the minimum number of teaching cells per label.
CERTAIN, FEWEST_TAUGHT = 0.7, 5
#: Number of folds. Each fold is predicted from the others.
TAUGHT_FOLDS = 5
#: Largest weight of the regression, and the number of teaching cells of a label at which the weight is half of it.
WEIGHT, HALF_WEIGHT = 0.5, 20.0
#: A label that at least this many cells have before self-teaching is never lost by it.
KEPT_CELLS = 5
#: Number of nearest cells in a tissue whose labels are averaged.
TISSUE_NEIGHBORS = 10
#: Function from standardised genes (n, d) and positions (n,) of cells to probabilities (n, C).
LabelView: TypeAlias = Callable[[Floats, Codes], Floats]


@dataclass(frozen=True)
class Views:
    """The views of a query under a label model."""

    cells: LabelCells
    model: LabelModel
    #: Weights of the classifiers, by representation; they sum to 1.
    weights: Mapping[str, float]
    #: Offsets of the views that do not change the reference; None for cells as measured.
    offsets: Mapping[str, Offsets | None]
    #: Names of the views that match query and reference.
    matched: tuple[str, ...] = ()

    @cached_property
    def gene_classifier(self) -> Logistic:
        """The gene classifier, for the query's genes."""
        return self.cells.observed(self.model.classifiers["genes"])

    @cached_property
    def moments(self) -> LabelMoments:
        """Moments of the query's genes in every label."""
        return self.model.moments(self.cells.query.match.prior)

    def keeping(self) -> dict[str, LabelView]:
        """Return the views that do not change the reference."""
        return {name: self._by_classifiers(*self.cells.without(offsets)) for name, offsets in self.offsets.items()}

    def matching(self, weights: Floats, composition: Floats) -> dict[str, LabelView]:
        """Return the views that match query and reference at one composition (C,).

        `weights` (m,) are weights of the sampled query cells. The method ``_name`` makes the view ``name``.
        """
        own = OwnScale.of(self.cells.sample, self.moments, composition, weights)
        return {name: getattr(self, f"_{name}")(own, weights, composition) for name in self.matched}

    def _centered(self, _: OwnScale, weights: Floats, composition: Floats) -> LabelView:
        """Return the view of cells moved to the mean of the reference. `weights` (m,) weight the sampled cells."""
        expected, rows = composition @ self.model.centres, self.cells.sampled
        # Denoising preserves means, so noisy and clean latents of a label have the same mean.
        away, clean_away = (views.excess_of_mean(z[rows], expected, weights) for z in (self.cells.y, self.cells.clean))
        return self._by_classifiers(self.cells.y - away, self.cells.clean - clean_away, away)

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
        """Return the view of the cosines between cells and mean profiles of the labels, both centred."""
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

    def _by_classifiers(self, y: Floats, clean: Floats, away: Floats | None) -> LabelView:
        """Return the view that averages all classifiers, for cells (n, k) without the shift `away`."""
        total, weight = self._by_latents(y, clean), self.weights.get("genes", 0.0)
        if not weight:
            return lambda _, rows: total[rows]
        classifier = self.gene_classifier
        # An offset lies in the span of the loadings. The residual of the genes does not change.
        carried = self.cells.query.likelihood.loadings.T @ classifier.slopes
        moved = np.zeros((1, 1)) if away is None else -np.atleast_2d(away) @ carried
        moved = np.broadcast_to(moved, total.shape)
        return lambda x, rows: total[rows] + weight * softmax(classifier.logits(x) + moved[rows])


def views_of(cells: LabelCells, model: LabelModel, classifier: Classifier, shift: Any) -> tuple[Views, dict[str, Any]]:
    """Return the views to compute, and the record of the offsets."""
    kinds = REPRESENTATIONS if classifier.representation == "auto" else (classifier.representation,)
    weights = model.weights(kinds, by_loss=cells.prior.is_panel)
    kept: dict[str, Offsets | None] = {"measured": None}
    matched: tuple[str, ...] = ()
    record: dict[str, Any] = {"strategy": "none"}
    strategy = shift.strategy if isinstance(shift, Shift) else "stored"
    if strategy in MATCHED:
        _check_matched(classifier, shift)
        matched = (strategy,)
    elif strategy == "auto":
        # A panel has too few genes for soft clusters, and a small reference too few cells.
        if not cells.prior.is_panel and cells.prior.soft_clusters is not None:
            kept["clusters"], record = cells.query.find_shift(Shift("clusters", shift.batch_key))
        # The cosines of few genes at few counts are mostly noise.
        matched = tuple(name for name in MATCHED if name != "profiles" or not cells.prior.is_panel)
        matched = matched if len(kinds) > 1 else ("centered",)
    elif shift is not False:
        offsets, record = cells.query.find_shift(shift)
        kept = {strategy: offsets}
    return Views(cells, model, weights, kept, matched), record


def _check_matched(classifier: Classifier, shift: Shift) -> None:
    """Refuse arguments that do not fit a view that matches query and reference."""
    strategy, kind = shift.strategy, classifier.representation
    if shift.batch_key is not None:
        raise InputError(f"shift={strategy!r} matches the query as a whole: pass it without batch_key.")
    if strategy != "centered" and kind not in ("auto", "genes"):
        raise InputError(f"`classifier` must be 'auto' or 'genes' with shift={strategy!r}, got {kind!r}.")


def taught(cells: LabelCells, probabilities: Floats, rows: Codes) -> Floats:
    """Return the probabilities (n, C) of cells `rows` after self-teaching on scaled latents, or genes of a panel."""
    if cells.prior.is_panel:
        genes = cells.genes(rows)
        latents = (genes - genes.mean(0)) / np.maximum(genes.std(0), 1e-6)
    else:
        latents = np.concatenate([cells.clean[rows], cells.y[rows]], axis=1, dtype=np.float32) / np.float32(
            cells.prior.latent_scale
        )
    # The fold of a cell depends only on its name.
    parts = (cells.query.seeds[rows] % TAUGHT_FOLDS).astype(np.intp)
    return teach(probabilities, latents, parts, np.isin(rows, cells.sampled))


def teach(probabilities: Floats, latents: Floats, parts: Codes, among: Mask) -> Floats:
    """Return probabilities (n, C) of the views averaged with those of the self-taught regression.

    The regression is on scaled latents (n, p). `parts` (n,) is the fold of every cell, from 0 to `TAUGHT_FOLDS` - 1.
    `among` (n,) is a mask of the cells that may be used for teaching.
    """
    labels, teaching = probabilities.argmax(1), among.copy()
    teaching[teaching] = certain_cells(probabilities[teaching])
    own = probabilities.copy()
    for part in range(TAUGHT_FOLDS):
        learned = teaching & (parts != part)
        if len(np.unique(labels[learned])) > 1 and (parts == part).any():
            predict = fit_logistic(
                latents[learned], labels[learned], probabilities.shape[1], strength=LATENT_STRENGTH, max_iter=40
            )
            own[parts == part] = predict(latents[parts == part])
    n_teaching = np.bincount(labels[teaching], minlength=probabilities.shape[1])
    share = (WEIGHT * n_teaching / (n_teaching + HALF_WEIGHT))[labels][:, None]
    return with_all_labels((1 - share) * probabilities + share * own, probabilities)


def certain_cells(probabilities: Floats) -> Mask:
    """Return a mask (n,) of the most certain cells of each label."""
    labels, best = probabilities.argmax(1), probabilities.max(1)
    chosen = np.zeros(len(labels), dtype=bool)
    for label in np.unique(labels):
        mine = np.flatnonzero(labels == label)
        n = min(max(int(np.ceil(CERTAIN * len(mine))), FEWEST_TAUGHT), len(mine))
        chosen[mine[np.argsort(-best[mine], kind="stable")[:n]]] = True
    return chosen


def with_all_labels(taught: Floats, probabilities: Floats) -> Floats:
    """Restore labels that several cells had by the views, but no cell has after self-teaching."""
    before, n_labels = probabilities.argmax(1), taught.shape[1]
    given = np.bincount(before, minlength=n_labels) >= KEPT_CELLS
    # Restoring a label may remove the last cells of another label, hence the loop.
    while (lost := given & (np.bincount(taught.argmax(1), minlength=n_labels) == 0)).any():
        taught = np.where(lost[before][:, None], probabilities, taught)
    return taught


def with_tissue(probabilities: Floats, positions: Floats) -> tuple[Floats, float]:
    """Average probabilities (n, C) with those of the nearest cells in a tissue. Return them and the neighbours' weight.

    The weight is Cohen's kappa of the labels of cells and of their neighbours: 0 if neighbours agree by chance alone.
    """
    from sklearn.neighbors import NearestNeighbors

    n_neighbors = min(TISSUE_NEIGHBORS, len(positions) - 1)
    if n_neighbors < 1:
        return probabilities, 0.0
    nearest = NearestNeighbors(n_neighbors=n_neighbors).fit(positions).kneighbors(return_distance=False)
    around = probabilities[nearest].mean(1)
    given = [np.eye(probabilities.shape[1])[values.argmax(1)] for values in (probabilities, around)]
    agreed, chance = (given[0] * given[1]).sum(1).mean(), given[0].mean(0) @ given[1].mean(0)
    # If all cells have one label, agreement is chance.
    weight = float(np.clip((agreed - chance) / max(1 - chance, 1e-12), 0, 1))
    return (probabilities + weight * around) / (1 + weight), weight
