"""Labels at the level that the data support."""

from anndata import AnnData

from dice._arguments import share
from dice._data import read
from dice._data.read import Transferred
from dice._data.store import Reference, find_prior
from dice._data.write import check_writable, result_key, write
from dice._keys import UNLIKE, LabelKeys, SafeKeys
from dice._labels.slots import safe_slots
from dice._labels.stored import levels_of, model_of
from dice.options import LabelsKey


def safe_labels(
    adata: AnnData,
    reference: Reference,
    labels_key: LabelsKey | None = None,
    *,
    alpha: float = 0.1,
    key: str | None = None,
    prior_key: str = "dice",
    key_added: str | None = None,
    copy: bool = False,
) -> AnnData | None:
    """Give every cell the finest label, in a tree of labels, at which the error rate is at most alpha.

    Each cell starts at its most likely label and moves towards the root of the tree until its node is likely enough.
    If the query is like the reference, the threshold is calibrated on held-out reference cells. If the query differs,
    the threshold follows from the probabilities of :func:`dice.tl.transfer_labels`, which allow for the difference.

    Parameters
    ----------
    adata
        Query after :func:`dice.tl.transfer_labels` or :func:`dice.tl.annotate`.
    reference
        The reference, prior or path that the labels come from.
    labels_key
        Column of the reference whose labels were transferred. None uses the labels that the prior was trained with.
        Several columns, from coarse to fine, or a :class:`dice.Levels` with a hierarchy, describe another tree of
        labels (:doc:`/levels`). Otherwise, the tree is that of the reference's prior. If the prior has none, a tree is
        learned: labels that calibration cells confuse are joined first.
    alpha
        Share of cells whose label may be wrong.
    key
        Key of the transferred labels, by default ``"<labels_key>_dice"``.
    prior_key
        Key of the prior in the reference.
    key_added
        Key of the results, by default the same as `key`. ``key_added="strict"`` writes ``adata.obs["strict_safe"]``.
    copy
        Return a copy instead of writing to `adata`.

    Returns
    -------
    None, or the copy. Sets, for ``labels_key="cell_type"``:

    ``adata.obs["cell_type_dice_safe"]`` categorical
        The finest label that can be trusted. ``"unresolved"`` stands for the root of the tree; cells ``"unlike the
        reference"`` are unresolved, too. ``"confident"`` cells keep their label, unless `alpha` is smaller than the
        `alpha` of the transferred labels.
    ``adata.obs["cell_type_dice_level"]`` categorical
        The level of the safe label: a column of `labels_key`, or the number of steps below the root.
    ``adata.obs["cell_type_dice_safe_prob"]`` float32
        Probability of the safe label.
    ``adata.obs["cell_type_dice_at_class"]``, ``adata.obs["cell_type_dice_at_class_prob"]``
        For every level of the tree, here ``"class"``, the label at this level that contains the most likely label of
        the cell, and its probability. Levels of a hierarchy are numbered from the root. A learned tree has no levels.
    ``adata.uns["cell_type_dice_safe"]``
        The tree (``node``, ``parent``, ``level``, ``n_labels``), for every node the number ``n_cells`` with this safe
        label and ``f1`` on held-out reference cells, and ``params``: ``alpha``, ``threshold``, ``expected_error``,
        ``resolved`` (share of cells below the root) and ``finest`` (share of cells with a label of the reference).

    Examples
    --------
    >>> import dice
    >>> reference, query = dice.datasets.synthetic(1)
    >>> dice.tl.train_prior(reference, n_latent=15, scale=False, preset="gmm")
    >>> dice.tl.transfer_labels(query, reference, "cell_type")
    >>> dice.tl.safe_labels(query, reference, "cell_type")
    >>> sorted(query.obs["cell_type_dice_safe"].unique())
    ['Cluster 1', 'Cluster 2', 'unresolved']
    """
    check_writable(adata, copy=copy)
    alpha, prior = share("alpha", alpha), find_prior(reference, key=prior_key, query=adata)
    levels = levels_of(prior, labels_key)
    keys_of_labels = LabelKeys(f"{levels.key}_dice" if key is None else key)
    keys = SafeKeys(keys_of_labels.key if key_added is None else result_key(adata, key_added, "strict"))
    found = Transferred.of(adata, levels.key, key)
    model = model_of(reference, prior, levels, prior_key, found)
    unlike = (read.column(adata, keys_of_labels.status).astype(str) == UNLIKE).to_numpy()
    strength = float(found.record["params"]["shift_strength"])
    # If alpha is smaller than the alpha of the labels, "confident" labels may be wrong too often.
    confident = found.confident & (alpha >= found.alpha)
    slots = safe_slots(keys, adata, model, found.probabilities, confident, unlike, alpha, strength)
    return write(adata, slots, copy=copy)
