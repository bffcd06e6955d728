"""Transfer features from a reference to a query, with conformal intervals.

The expected error of a cell is called its spread. Each error in held-out cells is divided by the spread of its cell. A
quantile of these ratios is the half width of the intervals in units of the spread. Coverage is exact for exchangeable
cells, whatever the spread. A good spread makes intervals narrow where predictions are certain.
"""

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
from anndata import AnnData
from numpy.typing import NDArray

from dice import _log
from dice._data.checks import read_batches, read_roles
from dice._data.features import FEWEST_MEASURED, Features
from dice._data.read import column_names
from dice._data.write import Slots
from dice._errors import InputError
from dice._features.regress import CANDIDATES, Candidates, Spread, View, blend_values, conformal_quantile, mixed
from dice._keys import FeatureKeys
from dice._model.arrays import DOUBTFUL, correlations, separation, subsample
from dice._model.counts import WHOLE_SHARE
from dice._model.training_data import ROLES
from dice._query.query import Query
from dice._query.reference import as_query
from dice._types import Codes, Floats, Mask

#: Number of posterior samples per cell.
N_SAMPLES = 5
#: Maximum number of reference cells of each role, evenly spaced.
MOST_FITTED = 20_000
#: Factor by which intervals are widened if the query differs from the reference. Protein staining varies between
#: batches, and expression does not show this. Over 25 pairs of sites and batches (bmmc, Liu; one seed), intervals with
#: a coverage of .90 in the reference had a coverage of .50 to .88 (mean .75) in the query. For .90 they had to be 1.1
#: to 2.7 times as wide (median 1.6). A factor of 1.5 gives at least .85 on 21 of the 25 pairs.
WIDER = 1.5
#: A feature is useless if two conditions hold: its intervals have at least this share of the width for a constant
#: prediction, and its correlation is at most the correlation that gives this share for normal errors. The width alone
#: is not enough: if few cells have a protein, the interval of a constant prediction is narrow, because it leaves out
#: these cells. The probability that a useless feature has a smaller correlation in the query than another feature was
#: .99, .95 and .92 with both conditions, and .91, .90 and .69 with the width alone (Liu, Liu 1 -> 3 and bmmc 1-3 -> 4;
#: one seed).
USELESS = 0.9
#: Number of cells to predict at once.
CHUNK = 4096
#: Number of cross-validation folds.
FOLDS = 5
#: Pairs (training cells, test cells), one for each fold.
Folds: TypeAlias = list[tuple[Codes, Codes]]


@dataclass(frozen=True)
class Judged:
    """Quality of the predictions of features (F,) in held-out cells."""

    #: Correlation of predicted and measured values; NaN for features that do not vary.
    correlation: Floats
    #: Mean width of the intervals, and width of the intervals of a constant prediction.
    held_out_width: Floats
    marginal_width: Floats
    #: Number of held-out cells with a value.
    n_cells: Codes

    @property
    def useless(self) -> Mask:
        """Mask (F,) of features that cannot be predicted and should not be used."""
        alike = ~(self.held_out_width < USELESS * self.marginal_width)
        unknown = np.isnan(self.correlation) | np.isinf(self.held_out_width)
        return unknown | (alike & ~(self.correlation > np.sqrt(1 - USELESS**2)))


class FeatureModel:
    """Model that predicts features (n, F) of cells, with intervals.

    The model is fitted to the reference cells `fit`. NaN means that a feature was not measured. Errors on the test
    cells of `folds` determine the weights of candidates and the spread. The intervals are calibrated on these errors
    and on the errors of the `calibration` cells. The `calibration` cells alone may be too few.
    """

    def __init__(self, cells: View, values: Floats, fit: Codes, calibration: Codes, folds: Folds, alpha: float) -> None:
        self.centre, scale = np.nanmean(values[fit], axis=0), np.nanstd(values[fit], axis=0)
        # Features that vary less than the precision of float32 are treated as constant.
        varies = scale > 1e-6 * np.abs(self.centre)
        self.scale = np.where(varies, scale, 1.0)
        # From here on, features are standardised.
        values = (values - self.centre) / self.scale * varies
        parts = [Candidates(cells[train], values[train])(cells[test]) for train, test in folds]
        predicted, doubts = (np.concatenate(part, axis=1) for part in zip(*parts, strict=True))
        truth = values[np.concatenate([test for _, test in folds])]
        self.weights = blend_values(predicted - truth)
        self.spread = Spread(truth - mixed(self.weights, predicted), doubts)
        self.candidates = Candidates(cells[fit], values[fit])
        if len(calibration):
            more = self.candidates(cells[calibration])
            predicted, doubts = (np.concatenate(both, axis=1) for both in zip((predicted, doubts), more, strict=True))
            truth = np.concatenate([truth, values[calibration]])
        found, size = mixed(self.weights, predicted), self.spread(doubts)
        #: Half widths (F,) of the intervals in units of the spread.
        self.factor = conformal_quantile(np.abs(truth - found) / size, alpha)
        width, marginal = self.factor * size.mean(0), conformal_quantile(np.abs(truth), alpha)
        self.judged = Judged(
            correlations(found, truth), 2 * width * self.scale, 2 * marginal * self.scale, (~np.isnan(truth)).sum(0)
        )

    def __call__(self, cells: View) -> tuple[Floats, Floats]:
        """Return predictions (n, F) and half widths of their intervals (n, F)."""
        mean, half = np.empty((2, len(cells), len(self.scale)), np.float32)
        for start in range(0, len(cells), CHUNK):
            rows = slice(start, start + CHUNK)
            predicted, doubts = self.candidates(cells[rows])
            mean[rows] = self.centre + self.scale * mixed(self.weights, predicted)
            half[rows] = self.scale * self.factor * self.spread(doubts)
        return mean, half


def predict_features(
    query: Query, reference: AnnData, features: Features, batch_key: str | None, alpha: float, prior_key: str
) -> tuple[FeatureModel, Floats, Floats, dict[str, Any]]:
    """Learn features from reference cells, which are read with the query's genes and depth, and predict the query.

    Return the model, predictions (n, F), half widths of their intervals (n, F), and numbers about the call.
    """
    seed, roles = query.options.random_state, read_roles(reference, prior_key)
    train, validation, calibration = (
        subsample(np.flatnonzero((roles == role) & features.known), MOST_FITTED) for role in range(len(ROLES))
    )
    fit = np.concatenate([train, validation])
    if len(fit) < 2:
        raise InputError("No training cell of the prior has features: call dice.tl.train_prior on cells with features.")
    batches = None if batch_key is None else read_batches(reference, batch_key, "reference").codes[fit]
    folds = folds_of(fit, seed, batches)
    _check_folds(features, fit, folds, batch_key)
    share = _depth_share(query)
    known, new = _view(as_query(reference, query, roles, share=share)), _view(query)
    model = FeatureModel(known, features.values, fit, calibration, folds, alpha)
    # Training cells are corrected for their influence on the loadings, so that they are comparable to the query.
    auc = separation(known.y[calibration if len(calibration) else fit], new.y[query.expressing], seed)
    widened = WIDER if auc > DOUBTFUL and batch_key is None else 1.0
    mean, half = model(new)
    half *= np.float32(widened)
    # A cell without expression gets the mean and the interval of a constant prediction.
    empty = query.latents.empty
    mean[empty], half[empty] = model.centre, widened * model.judged.marginal_width / 2
    _warn(model.judged, auc, widened, features.names, batch_key, alpha)
    params = {"n_cells": len(fit) + len(calibration), "n_samples": N_SAMPLES, "depth_share": share}
    return model, mean, half, params | {"shift_auc": auc, "widened": widened}


def folds_of(cells: Codes, seed: int, batches: NDArray[np.integer] | None = None) -> Folds:
    """Split `cells` into folds of training and test cells. With `batches` (n,), a fold holds out whole batches."""
    rng = np.random.default_rng(seed)
    if batches is None:
        cells, fold = rng.permutation(cells), np.arange(len(cells)) % FOLDS
    else:
        different, of_cell = np.unique(batches, return_inverse=True)
        fold = (rng.permutation(len(different)) % FOLDS)[of_cell]
    tests = [fold == number for number in range(FOLDS)]
    return [(cells[~test], cells[test]) for test in tests if test.any() and not test.all()]


def _check_folds(features: Features, fit: Codes, folds: Folds, batch_key: str | None) -> None:
    """Raise an error if there is a single batch, or if a feature was measured in too few cells or in one batch only."""
    if not folds:
        raise InputError(
            f"reference.obs[{batch_key!r}] holds a single batch, which cannot be held out: pass "
            "reference_batch_key=None."
        )
    known = ~np.isnan(features.values)
    few, advice = known[fit].sum(0) < FEWEST_MEASURED, "call dice.tl.train_prior on cells that have them"
    alone = np.any([~known[train].any(0) for train, _ in folds], axis=0)
    for lacking, where, otherwise in (
        (few, f"fewer than {FEWEST_MEASURED} training cells of the prior", advice),
        (alone, f"too few batches of reference.obs[{batch_key!r}] to hold one out", "pass reference_batch_key=None"),
    ):
        if lacking.any():
            some = np.array(features.names)[lacking][:5].tolist()
            raise InputError(
                f"{lacking.sum()} features are measured in {where}, for example {some}: leave them out, or {otherwise}."
            )


def _depth_share(query: Query) -> float:
    """Return the share of counts to keep, so that a typical reference cell has the median depth of the query."""
    depths = query.latents.log_depth
    if not query.measured or np.isnan(depths).all():
        return 1.0
    share = float(np.exp(np.nanmedian(depths) - query.prior.typical))
    return share if share < WHOLE_SHARE else 1.0


def _view(query: Query) -> View:
    """Return the inputs of the candidates: cells in scaled units, without the shift."""
    scale, posterior, offsets = query.prior.latent_scale, query.posterior, query.plan.offsets
    y = query.latents.y if offsets is None else query.latents.y - offsets.of(query.latents.y, slice(None))
    return View(y / scale, posterior.mean / scale, posterior.samples / scale)


def _warn(judged: Judged, auc: float, widened: float, names: list[str], batch_key: str | None, alpha: float) -> None:
    """Warn about features that should not be used, and about a query that differs from the reference."""
    constant, unbounded = np.isnan(judged.correlation), np.isinf(judged.held_out_width)
    infinite = "their intervals are infinite; pass a larger alpha"
    useless = "their intervals are as wide as without a prediction; do not use them"
    for mask, problem, advice in (
        (constant, "features hardly vary in the reference", "do not use them"),
        (unbounded, f"features are measured in too few cells for alpha={alpha:g}", infinite),
        (judged.useless & ~constant, f"of {len(names)} features cannot be predicted from expression", useless),
    ):
        if mask.any():
            _log.warn(f"{mask.sum()} {problem}, for example {np.array(names)[mask][:5].tolist()}: {advice}.")
    if auc > DOUBTFUL:
        wider, between = f"{widened:g} times as wide as in the reference", "calibrated between batches of the reference"
        _log.warn(
            f"The query differs from its reference (AUC {auc:.2f}): intervals are "
            f"{wider if batch_key is None else between}, but may contain fewer than {1 - alpha:.0%} of the values."
        )


def feature_slots(
    keys: FeatureKeys, adata: AnnData, names: list[str], model: FeatureModel, mean: Floats, half: Floats, record: Any
) -> Slots:
    """Return predictions (n, F), their intervals and the quality of the model as slots to write into `adata`."""
    frame, judged, weights = {"index": adata.obs_names, "columns": column_names(names)}, model.judged, model.weights
    candidates = {"candidate": np.array(CANDIDATES), "weight": weights.mean(0), "weights": weights.astype(np.float32)}
    width = 2 * half.mean(0) if len(half) else judged.held_out_width
    table = {"name": np.array(frame["columns"], dtype=str), "width": width, "useless": judged.useless, **vars(judged)}
    values = {keys.mean: mean, keys.low: mean - half, keys.high: mean + half}
    obsm = {key: pd.DataFrame(part, **frame) for key, part in values.items()}
    return Slots(obsm=obsm, uns={keys.uns: record | {"features": table, "candidates": candidates}})
