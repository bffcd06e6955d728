"""Genes that tell clusters apart, with p-values that are valid after clustering."""

import pandas as pd
from anndata import AnnData

from dice._arguments import whole_number
from dice._clusters.markers import split_genes
from dice._clusters.tree import stored_cut
from dice._data import read
from dice._data.store import Reference
from dice._errors import InputError, SlotError
from dice._keys import ClusterKeys
from dice._query.samples import denoised_query


def cluster_markers(
    adata: AnnData,
    reference: Reference | None = None,
    *,
    n_genes: int | None = 100,
    key: str = "dice_cluster",
    prior_key: str = "dice",
) -> pd.DataFrame:
    """Return the genes of both sides of every split of the tree of clusters. Nothing is written.

    Clusters are chosen to differ, so a test on the same counts finds differences even in noise. Here the counts of
    every cell are split at random into two halves, as by :func:`dice.tl.cluster`. Cells are placed in the tree by one
    half and compared by the other half, for all halves of all splits. The two halves of Poisson counts are independent
    given the cell. P-values are therefore uniform or conservative for genes whose mean share of the counts is the same
    on both sides.

    The p-values are exact if the placement does not depend on the other half. The tree does depend on that half a
    little, because each cell contributes to the means of its leaf; in simulations without clusters this had no visible
    effect. P-values are not valid for reads that were not counted by molecules (UMIs).

    The test is a binomial test of the counts of a gene on both sides, given the depths. Counts are divided by their
    dispersion within the two sides.

    Parameters
    ----------
    adata
        Cells after :func:`dice.tl.cluster`, or a subset of them, with their counts. All splits above the stored cut of
        the tree are tested.
    reference
        The reference with the prior, as in :func:`dice.tl.cluster`. The genes of the prior are compared.
    n_genes
        Number of genes to return for each side, by the largest scores. None returns all genes.
    key
        Key of the clusters.
    prior_key
        Key of the prior in the reference.

    Returns
    -------
    One row for each side of a split and gene. The clearest split comes first, and genes are sorted by score. Columns
    are those of ``sc.get.rank_genes_groups_df``:

    - ``group``, ``reference``: names of the two sides, such as ``"0"`` and ``"1+3"``;
    - ``names``: the gene;
    - ``scores``: standard normal deviate, averaged over all halves; positive for genes with more counts in the group;
    - ``logfoldchanges``: log2 of the ratio of the two mean shares of the counts;
    - ``pvals``, and ``pvals_adj`` by Benjamini and Hochberg over all genes of a split.

    Examples
    --------
    >>> import anndata, dice, numpy as np
    >>> rng = np.random.default_rng(0)
    >>> profiles = 3 * rng.gamma(0.3, size=(4, 300))
    >>> cells = anndata.AnnData(rng.poisson(profiles[np.arange(400) % 4]).astype("float32"))
    >>> dice.tl.cluster(cells)
    >>> genes = dice.tl.cluster_markers(cells, n_genes=5)
    >>> genes["group"].nunique()
    6
    """
    n_genes = None if n_genes is None else whole_number("n_genes", n_genes)
    keys = ClusterKeys(key)
    record = read.record(adata, keys.uns, what="tree of clusters", step="dice.tl.cluster")
    cut, leaves = stored_cut(record), read.array(adata, keys.leaves, step="dice.tl.cluster")
    if not cut.measured:
        raise InputError("The clusters were found without counts: call dice.tl.cluster on counts first.")
    query = denoised_query(adata, reference, record["params"]["use_rep"], prior_key, uncertainty=False)
    if query is None or query.options.random_state != record["call"]["halves"]:
        raise SlotError("The cells were denoised again after they were clustered: call dice.tl.cluster again.")
    return split_genes(query, cut, leaves[:, 1:], n_genes)
