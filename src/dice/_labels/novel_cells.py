"""Test cells and groups of a query for novelty, in comparison with calibration cells."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from anndata import AnnData

from dice import _log
from dice._data.checks import read_labels, read_roles
from dice._data.read import names
from dice._data.store import Prior
from dice._errors import InputError
from dice._keys import PriorKeys
from dice._labels.cells import LabelCells
from dice._labels.conformal import benjamini_hochberg, fewest_discoveries, p_values
from dice._labels.groups import Groups, cluster, fine_groups, novelty_scores
from dice._labels.model import LabelModel
from dice._labels.novel_groups import FEWEST_GROUPS, LEAST_CELLS, LEAST_KNOWN, compare_groups, farther_groups
from dice._model.training_data import ROLES
from dice._query.query import Query
from dice._query.reference import as_query
from dice._query.shift import DOUBTFUL, measure_domain_shift, query_order
from dice._types import Codes, Floats, Mask

#: Share of reference cells that may be called unlike the reference. It is not corrected for multiple testing: with 100
#: calibration cells, a false-discovery rate of .1 calls no cell of 1,000 unless 99 have the smallest p-value.
UNLIKE_RATE = 0.01
#: False-discovery rate of novel groups in the status of labels, as in :func:`dice.tl.novelty`.
FDR = 0.1
#: Warn that the test has no power if no cell is called and a call would take at least this share of the cells. At a
#: rate of .1, this is the case with up to 100 calibration cells.
POWERLESS = 0.1
#: Reference cells are thinned if the median depth of the query is below this share of theirs. A smaller difference may
#: be due to composition.
SHALLOW = 0.7
NO_CALIBRATION = "The reference has no calibration cells: train it with dice.Training(calibration_fraction=0.1)."


def known_groups(source: object, query: Query, labels_key: str | None, prior_key: str) -> tuple[Groups, Floats, Codes]:
    """Return the known groups, the latents of calibration cells by the query's genes, and the groups of these cells."""
    if isinstance(source, AnnData) and PriorKeys(prior_key).split in names(source, "obs"):
        roles = read_roles(source, prior_key)
        calibration = roles == ROLES.index("calibration")
        if not calibration.any():
            raise InputError(NO_CALIBRATION)
        y = _read_alike(source, query, roles)
        codes = _groups(source, query.prior, labels_key)
        learned = ~calibration if codes is None else ~calibration & (codes >= 0)
        if not learned.any():
            raise InputError("All labelled cells of the reference are calibration cells: pass all of its cells.")
        groups = cluster(y[learned]) if codes is None else codes[learned]
        known = Groups.of(y[learned], groups)
        if codes is None:
            return known, y[calibration], _nearest(known, y[calibration])
        return known, y[calibration], pd.Index(np.unique(groups)).get_indexer(codes[calibration])
    labels = query.prior.labels
    if labels_key is not None and labels is not None and labels_key in ("auto", query.prior.params.get("labels_key")):
        _warn_of_missing(query)
        return labels.groups(query.prior.latent_scale)
    if labels_key not in (None, "auto"):
        raise InputError("`labels_key` needs the reference with its cells: pass the AnnData object.")
    stored = query.prior.calibration
    if stored is None or len(stored["y"]) < 2:
        raise InputError(NO_CALIBRATION)
    _warn_of_missing(query)
    y = np.asarray(stored["y"])
    known = Groups.of(y[::2], cluster(y[::2]))
    return known, y[1::2], _nearest(known, y[1::2])


def _read_alike(source: AnnData, query: Query, roles: Codes) -> Floats:
    """Return latents of the reference cells, thinned if the query is much shallower.

    Cells are thinned to the depths of random query cells. If the query is as deep as the reference, this would displace
    deep cell types, so the cells are left as they are. Training cells are read by cross-fitted loadings. With the
    prior's own loadings, single novel cells are found as well (mean AUROC of bmmc, pancreas and Baron .789, .724, .972
    instead of .775, .729, .977; two seeds), but novel groups less often (52 of 78 instead of 57).
    """
    whole = as_query(source, query, roles, depths=np.empty(0, np.float32)).latents
    depths = [latents.log_depth[~np.isnan(latents.log_depth)] for latents in (query.latents, whole)]
    if all(map(len, depths)) and np.median(depths[0]) < np.median(depths[1]) + np.log(SHALLOW):
        return np.asarray(as_query(source, query, roles).latents.y)
    return np.asarray(whole.y)


def _nearest(groups: Groups, y: Floats) -> Codes:
    return groups.predict(y / groups.scale).argmax(1).astype(np.intp)


def warn_of_doubt(query: Query, n_calibration: int, fdr: float, n_novel: int, called: CalledGroups | None) -> None:
    """Warn if the test has no power to call single cells, or if a shift prevents calls."""
    if called is not None and called.shifted:
        _log.warn(
            "No single cell is called novel, because the query differs from its reference as a whole. Look at novel "
            f"groups, which are compared with each other: groupby='auto', from {FEWEST_GROUPS} groups of {LEAST_CELLS} "
            "cells on."
        )
        return
    n_cells = int((~query.latents.empty).sum())
    fewest = fewest_discoveries(len(query.seeds), n_calibration, fdr)
    if not n_novel and fewest > 1 and fewest >= POWERLESS * n_cells:
        needed = f"unless {fewest} are more novel than all of these" if fewest <= n_cells else "in any case"
        _log.warn(
            f"With {n_calibration} calibration cells, no cell of {n_cells} can be called at fdr={fdr:g} {needed}: "
            "train the prior with a larger dice.Training(calibration_fraction=), pass fewer cells, test groups of "
            "cells (groupby=), or use the p-values in obs['dice_novelty_p']."
        )


def _warn_of_missing(query: Query) -> None:
    if not query.match.complete:
        why = "but calibration cells were projected with all genes, so p-values are too small"
        _log.warn(f"{query.match}, {why}: pass the reference with its cells.")


def _groups(reference: AnnData, prior: Prior, labels_key: str | None) -> Codes | None:
    """Return the labels to group by: those of `labels_key`, or those that the prior was trained with, or None."""
    trained = prior.params.get("labels_key")
    if labels_key == "auto" and trained not in names(reference, "obs"):
        return None
    key = trained if labels_key == "auto" else labels_key
    return None if key is None else read_labels(reference, key, "reference").codes.astype(np.intp)


@dataclass(frozen=True)
class CalledGroups:
    """Groups (G,) of query cells that are called novel, and the evidence."""

    novel: Mask
    #: P-values and displacements (G,). P-values are NaN if the query is shifted.
    p: Floats
    displacement: Floats
    #: Separation (AUC) between the reference and the cells of groups that are not called.
    auc: float

    @property
    def shifted(self) -> bool:
        return self.auc > DOUBTFUL


def call_groups(
    query: Query, y: Floats, codes: Codes, n_groups: int, known: tuple[Groups, Floats, Codes], fdr: float
) -> CalledGroups:
    """Call novel groups by comparison with calibration cells or, if the query is shifted, with each other.

    The shift is measured on cells of groups that are not called, because many cells of a new type are not a shift.
    """
    groups, calibration, labels = known
    found, excess, _ = compare_groups(groups, y, codes, calibration, labels)
    # The last groups may hold only empty cells.
    p, displaced = (np.append(values, np.full(n_groups - len(found), np.nan)) for values in (found, excess))
    novel = np.zeros(n_groups, dtype=bool)
    novel[~np.isnan(p)] = benjamini_hochberg(p[~np.isnan(p)], fdr)
    order = query_order(query)
    usual = order[~np.append(novel, False)[codes[order]]]
    # If most cells are called, the query differs as a whole.
    usual = order if len(usual) < len(order) / 2 else usual
    scale = query.prior.latent_scale
    auc = measure_domain_shift(calibration / scale, y[usual] / scale, 0).auc
    if auc > DOUBTFUL:
        far = farther_groups(groups, y, codes)
        novel = np.append(far, np.zeros(n_groups - len(far), bool))
        return CalledGroups(novel, np.full(n_groups, np.nan), displaced, auc)
    return CalledGroups(novel, p, displaced, auc)


def warn_of_untested(called: CalledGroups) -> None:
    """Warn if no group could be tested with calibration cells."""
    if not called.shifted and np.isnan(called.p).all():
        _log.warn(
            f"No group can be tested: either every group has fewer than {LEAST_CELLS} cells, or every known group has "
            f"fewer than {LEAST_KNOWN} calibration cells."
        )


def group_table(names: list[str], codes: Codes, score: Floats, called: CalledGroups) -> dict[str, Any]:
    """Return the table of groups, with the mean score of the cells in each group."""
    n_cells = np.bincount(codes[codes >= 0], minlength=len(names))
    sums = np.bincount(codes[codes >= 0], weights=score[codes >= 0], minlength=len(names))
    return {
        "group": np.array(names, dtype=str), "n_cells": n_cells, "score": sums / np.maximum(n_cells, 1),
        "displacement": called.displacement, "p": called.p, "novel": called.novel,
    }  # fmt: skip


def unlike_cells(cells: LabelCells, model: LabelModel) -> Mask:
    """Return a mask (n,) of cells in novel fine groups, and of cells more novel than 99 % of calibration cells.

    In a shifted query, single cells are not tested because all of them are far from the reference.
    """
    known = groups, calibration, _ = model.groups(cells.scale)
    codes = fine_groups(cells.y, query_order(cells.query))
    called = call_groups(cells.query, cells.y, codes, int(codes.max(initial=-1)) + 1, known, FDR)
    unlike = np.append(called.novel, False)[codes]
    if called.shifted:
        return np.asarray(unlike)
    novel, usual = novelty_scores(groups, cells.y, calibration)
    return np.asarray(unlike | (p_values(novel, usual) <= UNLIKE_RATE))
