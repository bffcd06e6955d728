"""Whether a cell belongs to its reference at all."""

from __future__ import annotations

import os

import numpy as np
from anndata import AnnData
from numpy.typing import NDArray

from dice import _log
from dice._anndata.checks import read_labels
from dice._anndata.store import Prior, find_prior
from dice._anndata.write import Slots, check_writable, plain_params, write
from dice._arguments import number
from dice._core.labels.classify import Floats
from dice._core.labels.conformal import benjamini_hochberg, p_values
from dice._core.labels.novelty import Groups, cluster, novelty_scores
from dice._core.prior.presets import ROLES
from dice._errors import InputError
from dice._keys import NoveltyKeys, PriorKeys
from dice._query.arguments import result_key
from dice._query.options import Options
from dice._query.query import Query
from dice._query.reference import as_query, read_roles


def novelty(
    adata: AnnData,
    reference: AnnData | Prior | str | os.PathLike[str] | None = None,
    *,
    fdr: float = 0.1,
    labels_key: str | None = "auto",
    gene_key: str | None = None,
    min_gene_overlap: float = 0.2,
    layer: str | None = None,
    check: bool = True,
    key_added: str = "dice_novelty",
    copy: bool = False,
) -> AnnData | None:
    """Test for every cell whether it could come from the reference.

    The reference's cells form groups, by label or else by cluster. Novelty grows with the distance of a cell to the
    nearest group, in units of the scatter within groups, and with the doubt about its group. Both look at the
    projection, never at the denoised embedding. Its rank among calibration cells, which neither the prior nor the
    groups were learned from, is a p-value.

    Parameters
    ----------
    adata
        The query.
    reference
        As in :func:`dice.tl.denoise`. With the reference's cells (an AnnData object) the test is sharper than with a
        prior alone, and it holds for queries that lack genes.
    fdr
        Share of cells called novel that may belong to the reference after all (Benjamini-Hochberg).
    labels_key
        Column of ``reference.obs`` with labels to group by; None groups by clusters. ``"auto"`` takes the labels that
        the prior was trained with, where the reference has them.
    gene_key
        Column of ``adata.var`` with the gene names.
    min_gene_overlap
        Smallest share of the prior's genes that the query must have.
    layer
        Layer of the query to use instead of ``adata.X``.
    check
        Compare the values of the query with the reference's.
    key_added
        Key of the score; the p-value has the suffix ``"_p"``. The flag of ``"dice_novelty"`` is ``"dice_novel"``, of
        other keys it has the suffix ``"_flag"``.
    copy
        Return a copy instead of writing to `adata`.

    Returns
    -------
    None, or the copy. Sets:

    ``adata.obs["dice_novelty"]`` float32
        Novelty in standard deviations of calibration cells; larger is more novel.
    ``adata.obs["dice_novelty_p"]`` float32
        Conformal p-value: how often a reference cell is at least as novel.
    ``adata.obs["dice_novel"]`` bool
        Cells that are called novel at the false-discovery rate.
    ``adata.uns["dice_novelty"]``
        ``call``, ``params`` (numbers of calibration and novel cells) and ``warnings``.

    Examples
    --------
    >>> import dice
    >>> reference, query = dice.datasets.synthetic(1)
    >>> dice.tl.train_prior(reference, n_latent=15, scale=False, max_steps=20)
    >>> dice.tl.novelty(query, reference)
    >>> query.obs["dice_novel"].dtype
    dtype('bool')
    """
    check_writable(adata, copy=copy)
    fdr = number("fdr", fdr, least=0)
    if not 0 < fdr < 1:
        raise InputError(f"fdr={fdr} is not between 0 and 1.")
    key_added = result_key(adata, key_added, "dice_novelty")
    if (reference is None or reference is adata) and PriorKeys().split in adata.obs:
        raise InputError("adata is the reference itself, where nothing is novel: pass the query as adata.")
    source, keys = adata if reference is None else reference, NoveltyKeys(key_added)
    options = Options(
        rho=0.0, gene_key=gene_key, min_gene_overlap=min_gene_overlap, layer=layer, check=check
    )  # fmt: skip
    with _log.recorded() as warned:
        query = Query.of(adata, find_prior(source), options)
        groups, calibration = _known(source, query, labels_key)
        cells = query.read()
    score, ranked = novelty_scores(groups, np.asarray(cells.y), calibration)
    p = p_values(score, ranked)
    novel = benjamini_hochberg(p, fdr) & ~cells.empty
    call = plain_params(
        fdr=fdr, labels_key=labels_key, gene_key=gene_key, min_gene_overlap=float(min_gene_overlap), layer=layer
    )
    params = {"n_calibration": len(ranked), "n_novel": int(novel.sum()), "smallest_p": 1 / (len(ranked) + 1)}
    record = {"call": call, "params": params, "warnings": np.array(warned, dtype=str)}
    obs = {keys.score: score.astype(np.float32), keys.p_value: p.astype(np.float32), keys.flag: novel}
    return write(adata, Slots(obs=obs, uns={keys.uns: record}), copy=copy)


def _known(source: object, query: Query, labels_key: str | None) -> tuple[Groups, Floats]:
    """Groups of known cells, and the latents of calibration cells, seen through the query's genes."""
    if isinstance(source, AnnData) and PriorKeys().split in source.obs:
        calibration = read_roles(source) == ROLES.index("calibration")
        if not calibration.any():
            raise InputError(NO_CALIBRATION)
        y = np.asarray(as_query(source, query.prior, query).read().y)
        codes = _groups(source, query.prior, labels_key)
        learned = ~calibration if codes is None else ~calibration & (codes >= 0)
        if not learned.any():
            raise InputError(
                "The reference has calibration cells alone, or labels of them alone: pass all of its cells."
            )
        groups = cluster(y[learned]) if codes is None else codes[learned]
        return Groups.of(y[learned], groups), y[calibration]
    if labels_key not in (None, "auto"):
        raise InputError("labels_key= needs the reference with its cells: pass the AnnData object that has them.")
    stored = query.prior.calibration
    if stored is None or len(stored["y"]) < 2:
        raise InputError(NO_CALIBRATION)
    if not query.match.complete:
        _log.warn(
            f"{query.match}, but the prior's calibration cells were measured by all of them, so that p-values are too "
            "small: pass the reference with its cells."
        )
    y = np.asarray(stored["y"])
    return Groups.of(y[::2], cluster(y[::2])), y[1::2]


def _groups(reference: AnnData, prior: Prior, labels_key: str | None) -> NDArray[np.intp] | None:
    """Labels to group by: those asked for, else those that the prior was trained with, else none."""
    trained = prior.params.get("labels_key")
    if labels_key == "auto" and trained not in reference.obs:
        return None
    key = trained if labels_key == "auto" else labels_key
    return None if key is None else read_labels(reference, key, "reference").codes.astype(np.intp)


NO_CALIBRATION = (
    "The reference has no calibration cells: call dice.tl.train_prior(reference, calibration_fraction=0.1) again."
)
