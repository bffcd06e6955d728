"""Test cells and groups of cells for novelty."""

from typing import Any

import numpy as np
from anndata import AnnData

from dice import _log
from dice._arguments import as_plain, share
from dice._data.checks import read_groups
from dice._data.read import names
from dice._data.store import Reference, find_prior
from dice._data.values import takes_counts
from dice._data.write import Slots, check_writable, result_key, write
from dice._errors import InputError
from dice._keys import NoveltyKeys, PriorKeys
from dice._labels import novel_cells
from dice._labels.cells import fine_groups
from dice._labels.novelty import novelty_scores
from dice._query.query import Query
from dice.options import Checks, Options


@takes_counts
def novelty(
    adata: AnnData,
    reference: Reference | None = None,
    *,
    alpha: float = 0.1,
    groupby: str | None = None,
    labels_key: str | None = "auto",
    layer: str | None = None,
    gene_key: str | None = None,
    check: bool | Checks = True,
    prior_key: str = "dice",
    key_added: str = "dice_novelty",
    copy: bool = False,
) -> AnnData | None:
    """Test for every cell whether it could come from the reference.

    The reference cells form groups, by label or by cluster. The novelty of a cell grows with its distance to the
    nearest group, in units of the scatter within groups, and with the uncertainty about its group. Distance and
    uncertainty are computed from the projection, never from the denoised embedding. The rank of a cell's novelty among
    held-out calibration cells gives a p-value.

    Parameters
    ----------
    adata
        The query.
    reference
        As in :func:`dice.tl.denoise`. With the reference cells (an AnnData object), the test has more power than with a
        prior alone, and it is also valid for queries that lack genes or are much shallower.
    alpha
        False-discovery rate (Benjamini-Hochberg): the share of cells called novel that may belong to the reference.
    groupby
        Column of ``adata.obs`` with groups of cells to test as a whole, or ``"auto"`` for fine groups of about 25
        cells. A group is called novel if its mean is further from the reference groups than the means of parts of
        reference groups are. Groups of fewer than 10 cells are not tested. If the query differs from the reference as a
        whole, its groups are compared with each other instead, and only groups that are much further away than most are
        called novel.
    labels_key
        Column of ``reference.obs`` with labels that group the reference cells; None groups them by clusters. ``"auto"``
        uses the labels that the prior was trained with, or clusters if the prior or the reference lacks such labels.
    layer, gene_key, check, prior_key
        As in :func:`dice.tl.denoise`.
    key_added
        Key of the score. The key of the p-value has the suffix ``"_p"``. The key of the flag is ``"dice_novel"`` for
        the default; for other keys it has the suffix ``"_flag"``.
    copy
        Return a copy instead of writing to `adata`.

    Returns
    -------
    None, or the copy. Sets:

    ``adata.obs["dice_novelty"]`` float32
        Novelty in standard deviations of calibration cells; larger is more novel.
    ``adata.obs["dice_novelty_p"]`` float32
        Conformal p-value: the share of reference cells that are at least as novel.
    ``adata.obs["dice_novel"]`` bool
        True for cells called novel at the false-discovery rate. If the query differs from the reference as a whole, no
        cell is called novel, because calibration cells then cannot show which cells are novel.
    ``adata.uns["dice_novelty"]``
        ``call``, ``params`` (numbers of calibration and novel cells, and ``fewest_novel``, the smallest number of cells
        that can be called) and ``warnings``. With `groupby` also ``groups``, with one entry per group: ``group``,
        ``n_cells``, mean ``score``, ``displacement`` (squared, beyond chance, as a share of the variance of the cells
        in the group), ``p`` (NaN if the group is not tested, or if groups were compared with each other) and ``novel``,
        at the rate `alpha` over groups.
    ``adata.obs["dice_novelty_group"]`` categorical
        With ``groupby="auto"``, the fine group of every cell, as named in ``groups``.
    ``adata.obs["dice_novel_group"]`` bool
        With `groupby`, True for cells of groups that are called novel. If `key_added` is not the default, the key has
        the suffix ``"_group_flag"``.

    Examples
    --------
    >>> import dice
    >>> reference, query = dice.datasets.synthetic(1)
    >>> dice.tl.train_prior(reference, n_latent=15, scale=False, training=dice.Training(max_steps=20))
    >>> dice.tl.novelty(query, reference)
    >>> query.obs["dice_novel"].dtype
    dtype('bool')
    """
    check_writable(adata, copy=copy)
    alpha, keys = share("alpha", alpha), NoveltyKeys(result_key(adata, key_added, "dice_novelty"))
    named = None if groupby in (None, "auto") else read_groups(adata, str(groupby))
    if (reference is None or reference is adata) and PriorKeys(prior_key).split in names(adata, "obs"):
        raise InputError("adata is the reference itself: pass the query as `adata`.")
    source = adata if reference is None else reference
    options = Options(rho=0.0, layer=layer, gene_key=gene_key, check=check)
    call = {name: getattr(options, name) for name in ("layer", "gene_key", "check")}
    call = as_plain(call | {"alpha": alpha, "labels_key": labels_key, "groupby": groupby})
    with _log.recorded() as warned:
        query = Query.of(adata, find_prior(source, key=prior_key, query=adata), options)
        known = groups, calibration, _ = novel_cells.known_groups(source, query, labels_key, prior_key)
        latents, y = query.latents, np.asarray(query.latents.y)
        score, ranked = novelty_scores(groups, y, calibration)
        p = novel_cells.p_values(score, ranked)
        tested = fine_groups(y, query.expressing) if named is None else named
        codes, titles = np.where(latents.empty, -1, tested.codes), list(map(str, tested.categories))
        called = novel_cells.call_groups(query, y, codes, len(titles), known, alpha)
        novel = novel_cells.discoveries(p, alpha) & ~latents.empty & (not called.shifted)
        novel_cells.warn_of_doubt(query, len(calibration), alpha, int(novel.sum()), called, groupby)
    params = {"n_calibration": len(ranked), "n_novel": int(novel.sum()), "smallest_p": 1 / (len(ranked) + 1)}
    params |= {"fewest_novel": novel_cells.fewest_discoveries(len(score), len(ranked), alpha), "shift_auc": called.auc}
    record: dict[str, Any] = {"call": call, "params": params, "warnings": np.array(warned, dtype=str)}
    obs = {keys.score: score.astype(np.float32), keys.p_value: p.astype(np.float32), keys.flag: novel}
    if groupby is not None:
        record["groups"] = novel_cells.group_table(titles, codes, score, called)
        obs[keys.group_flag] = np.append(called.novel, False)[codes]
        if named is None:
            obs[keys.group] = tested
    slots = Slots(obs=obs, uns={keys.uns: record}, stale=frozenset({keys.group, keys.group_flag}))
    return write(adata, slots, copy=copy)
