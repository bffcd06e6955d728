"""Transfer features from a reference to a query, with intervals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from anndata import AnnData

from dice import _log
from dice._data.checks import read_batches, read_roles
from dice._data.features import FEWEST_MEASURED, Features
from dice._data.read import column_names
from dice._data.write import Slots
from dice._errors import InputError
from dice._features.model import FeatureModel, Judged
from dice._features.regress import CANDIDATES, View
from dice._keys import FeatureKeys
from dice._model.arrays import subsample
from dice._model.counts import WHOLE_SHARE
from dice._query.query import Query
from dice._query.reference import as_query, cells_of
from dice._query.shift import DOUBTFUL, measure_shift
from dice._types import Codes, Floats, Mask

#: Number of posterior samples per cell.
N_SAMPLES = 5
#: Maximum number of reference cells of each role, evenly spaced, and number of folds in which they are held out.
MOST_FITTED, FOLDS = 20_000, 5
#: Factor of the intervals if the query differs from the reference. Protein staining varies between batches, and
#: expression does not show it. Over 25 pairs of sites and batches (bmmc, Liu; one seed), intervals with a coverage of
#: .90 in the reference had .50 to .88 (mean .75) in the query, and had to be 1.1 to 2.7 times as wide (median 1.6) for
#: .90. A factor of 1.5 is enough for .85 on 21 of the 25.
WIDER = 1.5


@dataclass(frozen=True)
class PredictedFeatures:
    """Predictions (n, F) for a query, half widths of their intervals (n, F), the model, and figures of the call."""

    mean: Floats
    half: Floats
    model: FeatureModel
    params: dict[str, Any]


def predict_features(
    query: Query, reference: AnnData, features: Features, batch_key: str | None, alpha: float, prior_key: str
) -> PredictedFeatures:
    """Learn features from reference cells, read with the query's genes and depth, and predict the query."""
    seed, roles = query.options.random_state, read_roles(reference, prior_key)
    train, validation, calibration = (
        subsample(cells_of(roles, features.known, role), MOST_FITTED) for role in ("train", "validation", "calibration")
    )
    fit = np.concatenate([train, validation])
    if len(fit) < 2:
        raise InputError(
            "The training cells of the prior have no measured features: call dice.tl.train_prior on a reference with "
            "measured features."
        )
    folds = _folds(fit, seed) if batch_key is None else _by_batch(reference, batch_key, fit, seed)
    _check_known(features, fit, folds, batch_key)
    share = _depth_share(query)
    known, new = _view(as_query(reference, query, roles, share=share)), _view(query)
    model = FeatureModel.learn(known, features.values, fit, calibration, folds, alpha)
    # Training cells are projected with cross-fitted loadings, so that they are comparable to the query.
    auc = measure_shift(query, new.y, known.y[calibration if len(calibration) else fit], seed)
    widened = WIDER if auc > DOUBTFUL and batch_key is None else 1.0
    mean, half = model(new)
    half *= np.float32(widened)
    # A cell without expression gets the mean and the interval of a constant prediction.
    empty = query.latents.empty
    mean[empty], half[empty] = model.centre, widened * model.judged.marginal_width / 2
    _warn(model.judged, auc, widened, features.names, batch_key, alpha)
    params = {"n_cells": len(fit) + len(calibration), "n_samples": N_SAMPLES, "depth_share": share}
    return PredictedFeatures(mean, half, model, params | {"shift_auc": auc, "widened": widened})


def _folds(cells: Codes, seed: int, batches: Codes | None = None) -> list[tuple[Codes, Codes]]:
    """Return pairs of training and test cells, with whole batches (n,) in a fold if they are given."""
    rng = np.random.default_rng(seed)
    if batches is None:
        cells, fold = rng.permutation(cells), np.arange(len(cells)) % FOLDS
    else:
        different, of_cell = np.unique(batches, return_inverse=True)
        fold = (rng.permutation(len(different)) % FOLDS)[of_cell]
    tests = [fold == number for number in range(FOLDS)]
    return [(cells[~test], cells[test]) for test in tests if test.any() and not test.all()]


def _by_batch(reference: AnnData, batch_key: str, fit: Codes, seed: int) -> list[tuple[Codes, Codes]]:
    """Return pairs of training and test cells from different batches of the reference."""
    folds = _folds(fit, seed, read_batches(reference, batch_key, "reference").codes[fit].astype(np.intp))
    if not folds:
        raise InputError(
            f"reference.obs[{batch_key!r}] holds a single batch, which cannot be held out: pass "
            "reference_batch_key=None."
        )
    return folds


def _check_known(features: Features, fit: Codes, folds: list[tuple[Codes, Codes]], batch_key: str | None) -> None:
    """Raise an error for features with too few measured cells, or with none after a batch is held out."""
    known = ~np.isnan(features.values)
    few = known[fit].sum(0) < FEWEST_MEASURED
    if few.any():
        raise InputError(
            f"{few.sum()} features are measured in fewer than {FEWEST_MEASURED} training cells of the prior, for "
            f"example {_examples(features.names, few)}: leave them out, or call dice.tl.train_prior on cells that have "
            "them."
        )
    alone = np.any([~known[train].any(0) for train, _ in folds], axis=0)
    if alone.any():
        raise InputError(
            f"{alone.sum()} features are measured in too few batches of reference.obs[{batch_key!r}] to hold one out, "
            f"for example {_examples(features.names, alone)}: leave them out, or pass reference_batch_key=None."
        )


def _depth_share(query: Query) -> float:
    """Return the share of counts that thins a typical reference cell to the median depth of the query."""
    depths = query.latents.log_depth
    if not query.measured or np.isnan(depths).all():
        return 1.0
    share = float(np.exp(np.nanmedian(depths) - query.prior.typical))
    return share if share < WHOLE_SHARE else 1.0


def _view(query: Query) -> View:
    """Return the inputs of the candidates: cells without their shift, scaled."""
    scale, posterior, offsets = query.prior.latent_scale, query.posterior, query.plan.offsets
    y = query.latents.y
    y = y if offsets is None else y - offsets.of(y, slice(None))
    return View(y / scale, posterior.mean / scale, posterior.samples / scale)


def _warn(judged: Judged, auc: float, widened: float, names: list[str], batch_key: str | None, alpha: float) -> None:
    """Warn about features that should not be used, and about a query that differs from the reference."""
    constant, unbounded = np.isnan(judged.correlation), np.isinf(judged.width)
    unrelated = judged.useless & ~constant
    if constant.any():
        _log.warn(
            f"{constant.sum()} features hardly vary in the reference, for example {_examples(names, constant)}: do not "
            "use them."
        )
    if unbounded.any():
        _log.warn(
            f"{unbounded.sum()} features are measured in too few cells for alpha={alpha:g}, for example "
            f"{_examples(names, unbounded)}: their intervals are infinite; pass a larger alpha."
        )
    if unrelated.any():
        _log.warn(
            f"{unrelated.sum()} of {len(names)} features cannot be predicted from expression, for example "
            f"{_examples(names, unrelated)}: their intervals are as wide as without a prediction; do not use them."
        )
    if auc > DOUBTFUL:
        done = f"intervals are {widened:g} times as wide as in the reference"
        done = done if batch_key is None else "intervals are calibrated between batches of the reference"
        _log.warn(
            f"The query differs from its reference (AUC {auc:.2f}): {done}, and their coverage may still "
            f"be below {1 - alpha:.0%}."
        )


def _examples(names: list[str], mask: Mask) -> list[str]:
    return [names[i] for i in np.flatnonzero(mask)[:5]]


def feature_slots(keys: FeatureKeys, adata: AnnData, names: list[str], found: PredictedFeatures, record: Any) -> Slots:
    """Return the results of feature transfer as slots of an AnnData object."""
    frame = {"index": adata.obs_names, "columns": column_names(names)}
    judged, weights = found.model.judged, found.model.weights
    mixed = {"candidate": np.array(CANDIDATES), "weight": weights.mean(0), "weights": weights.astype(np.float32)}
    table = {
        "name": np.array(frame["columns"], dtype=str),
        "correlation": judged.correlation,
        "width": 2 * found.half.mean(0) if len(found.half) else judged.width,
        "held_out_width": judged.width,
        "marginal_width": judged.marginal_width,
        "useless": judged.useless,
        "n_cells": judged.n_cells,
    }
    return Slots(
        obsm={
            keys.mean: pd.DataFrame(found.mean, **frame),
            keys.low: pd.DataFrame(found.mean - found.half, **frame),
            keys.high: pd.DataFrame(found.mean + found.half, **frame),
        },
        uns={keys.uns: record | {"features": table, "candidates": mixed}},
    )
