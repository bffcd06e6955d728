"""Test cells and groups of a query for novelty by comparison with calibration cells."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from anndata import AnnData
from scipy import stats

from dice import _log
from dice._data.checks import has_cells, read_labels, read_roles
from dice._data.read import names
from dice._errors import InputError
from dice._labels import novelty
from dice._labels.cells import LabelCells
from dice._labels.model import LabelModel
from dice._labels.novelty import FEWEST_GROUPS, LEAST_CELLS, LEAST_KNOWN, Groups
from dice._model.arrays import DOUBTFUL, separation
from dice._model.training_data import ROLES
from dice._query.query import Query
from dice._query.reference import as_query
from dice._types import Codes, Floats, Mask

#: Share of reference cells that may be called unlike the reference. It is not corrected for multiple testing: with 100
#: calibration cells, a false-discovery rate of .1 calls no cell of 1,000 unless 99 have the smallest p-value.
UNLIKE_RATE = 0.01
#: False-discovery rate of novel groups in the status of labels, as in :func:`dice.tl.novelty`.
FDR = 0.1
#: Largest difference of two scores of equal cells.
ROUNDING = 1e-5
#: Warn that the test has no power if no cell is called novel, and if at least this share of the cells would have to be
#: novel for a call. At a rate of .1, this is the case with up to 100 calibration cells.
POWERLESS = 0.1
#: Reference cells are thinned if the median depth of the query is below this share of the reference's. A smaller
#: difference may be due to composition.
SHALLOW = 0.7


def known_groups(source: object, query: Query, labels_key: str | None, prior_key: str) -> tuple[Groups, Floats, Codes]:
    """Return known groups, and latents and groups of calibration cells. Latents use only the query's genes."""
    prior, trained = query.prior, query.prior.params.get("labels_key")
    if has_cells(source, prior_key):
        roles = read_roles(source, prior_key)
        known = trained if trained in names(source, "obs") else None
        key = known if labels_key == "auto" else labels_key
        codes = None if key is None else read_labels(source, key, "reference").codes.astype(np.intp)
        return _learned(_read_alike(source, query, roles), roles == ROLES.index("calibration"), codes)
    if len(query.match.missing):
        why = "P-values are too small, because they come from calibration cells with all genes"
        _log.warn(f"{query.match}. {why}: pass the reference with its cells.")
    if prior.labels is not None and labels_key is not None and labels_key in ("auto", trained):
        return prior.labels.groups(prior.latent_scale)
    if labels_key not in (None, "auto"):
        raise InputError("`labels_key` needs the reference with its cells: pass the AnnData object.")
    y = np.empty((0, 1)) if prior.calibration is None else np.asarray(prior.calibration["y"])
    return _learned(y, np.arange(len(y)) % 2 == 1, None)


def _learned(y: Floats, calibration: Mask, codes: Codes | None) -> tuple[Groups, Floats, Codes]:
    """Return groups of cells y (n, k), by label (n,) or by cluster, and latents and groups of calibration cells."""
    if not calibration.any():
        raise InputError("The prior has no calibration cells: train it with dice.Training(calibration_fraction=0.1).")
    if codes is None:
        groups = Groups.of(y[~calibration], novelty.cluster(y[~calibration]))
        return groups, y[calibration], groups.predict(y[calibration] / groups.scale).argmax(1)
    learned = ~calibration & (codes >= 0)
    if not learned.any():
        raise InputError("No labelled cell of the reference is a training cell: pass all cells of the reference.")
    place = pd.Index(np.unique(codes[learned])).get_indexer(codes[calibration])
    return Groups.of(y[learned], codes[learned]), y[calibration], place


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


def p_values(scores: Floats, calibration: Floats) -> Floats:
    """Return p-values in the shape of `scores`: the share of calibration scores (m,) that are at least as large.

    The score itself counts as a calibration score, so p-values are never zero. Scores within `ROUNDING` are equal.
    """
    worse = len(calibration) - np.searchsorted(np.sort(calibration), scores - ROUNDING, side="left")
    return np.asarray((worse + 1) / (len(calibration) + 1))


def discoveries(p: Floats, alpha: float) -> Mask:
    """Return a mask (n,) of the discoveries at a false-discovery rate of at most `alpha` (Benjamini-Hochberg)."""
    found = np.zeros(len(p), dtype=bool)
    found[~np.isnan(p)] = stats.false_discovery_control(p[~np.isnan(p)]) <= alpha
    return found


def fewest_discoveries(n: int, n_calibration: int, alpha: float) -> int:
    """Return the number of cells, of n, that must have the smallest possible p-value before any is a discovery."""
    return int(np.ceil(n / (alpha * (n_calibration + 1)) - 1e-9))


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
    query: Query, y: Floats, codes: Codes, n_groups: int, known: tuple[Groups, Floats, Codes], alpha: float
) -> CalledGroups:
    """Call novel groups by comparison with calibration cells or, if the query is shifted, with each other.

    The shift is measured without the cells of novel groups, because many cells of a new type are not a shift.
    """
    groups, calibration, labels = known
    found, excess, _ = novelty.compare_groups(groups, y, codes, calibration, labels)
    # The last groups may hold only empty cells.
    lacking = (0, n_groups - len(found))
    p, displaced = (np.pad(values, lacking, constant_values=np.nan) for values in (found, excess))
    novel = discoveries(p, alpha)
    order = query.expressing
    usual = order[~np.append(novel, False)[codes[order]]]
    # If most cells are called novel, the query differs as a whole.
    usual = order if len(usual) < len(order) / 2 else usual
    scale = query.prior.latent_scale
    auc = separation(calibration / scale, y[usual] / scale, 0)
    if auc > DOUBTFUL:
        novel, p = np.pad(novelty.farther_groups(groups, y, codes), lacking), np.full(n_groups, np.nan)
    return CalledGroups(novel, p, displaced, auc)


def warn_of_doubt(
    query: Query, n_calibration: int, alpha: float, n_novel: int, called: CalledGroups, groupby: str | None = None
) -> None:
    """Warn if a shift prevents the test of single cells, or if a test of cells or of groups has no power."""
    n_cells = int((~query.latents.empty).sum())
    fewest = fewest_discoveries(len(query.seeds), n_calibration, alpha)
    if called.shifted:
        compared = ", but groups are compared" if groupby else ". Pass groupby='auto' to compare groups"
        _log.warn(
            f"Single cells are not tested, because the query differs from its reference as a whole{compared} with "
            f"each other (needs {FEWEST_GROUPS} groups of {LEAST_CELLS} cells)."
        )
    elif not n_novel and fewest > 1 and fewest >= POWERLESS * n_cells:
        needed = f" unless {fewest} are more novel than all calibration cells" if fewest <= n_cells else ""
        _log.warn(
            f"With {n_calibration} calibration cells, none of {n_cells} cells can be called novel at alpha={alpha:g}"
            f"{needed}: train the prior with a larger dice.Training(calibration_fraction=), pass fewer cells, test "
            "groups of cells (groupby=), or use the p-values in obs['dice_novelty_p']."
        )
    if groupby not in (None, "auto") and not called.shifted and np.isnan(called.p).all():
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
    known = groups, calibration, _ = model.groups(cells.prior.latent_scale)
    called = call_groups(cells.query, cells.y, cells.fine.codes, len(cells.fine.categories), known, FDR)
    unlike = np.append(called.novel, False)[cells.fine.codes]
    if called.shifted:
        return np.asarray(unlike)
    novel, usual = novelty.novelty_scores(groups, cells.y, calibration)
    return np.asarray(unlike | (p_values(novel, usual) <= UNLIKE_RATE))
