"""Transfer labels from a reference to a query, with calibrated prediction sets."""

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

import numpy as np
from anndata import AnnData

from dice import _log
from dice._arguments import as_plain, said, share
from dice._data.checks import read_groups, read_positions
from dice._data.store import Reference, find_prior
from dice._data.values import takes_counts
from dice._data.write import check_writable, write
from dice._errors import InputError
from dice._keys import CONFIDENT, UNLIKE, SafeKeys
from dice._labels.cells import LabelCells
from dice._labels.classification import classify
from dice._labels.model import describe
from dice._labels.sets import judge
from dice._labels.slots import count_votes, label_keys, label_slots, safe_slots
from dice._labels.stored import check_model, levels_of, read_or_learn
from dice._query.query import Query
from dice._types import Seed
from dice.options import Checks, Classifier, LabelsKey, Options, Sets, Shift

#: How the query is compared with the reference: by the average of all views, by one view, or by a stored shift.
LabelShift: TypeAlias = (
    Literal["auto", "offset", "clusters", "mean", "centered", "standardized", "profiles", False]
    | Shift
    | Mapping[str, Any]
)


@takes_counts
def transfer_labels(
    adata: AnnData,
    reference: Reference,
    labels_key: LabelsKey | None = None,
    *,
    alpha: float = 0.1,
    groupby: str | None = None,
    sets: Sets = Sets(),
    classifier: Literal["auto", "projection", "denoised", "genes"] | Classifier = "auto",
    shift: LabelShift = "auto",
    layer: str | None = None,
    gene_key: str | None = None,
    check: bool | Checks = True,
    prior_key: str = "dice",
    key_added: str | None = None,
    random_state: Seed = 0,
    copy: bool = False,
) -> AnnData | None:
    """Label every query cell, with a probability and a set that holds the true label with probability 1 - alpha.

    The probability is an average over several views of the query and over a regression on the query's most certain
    cells. If the query is like the reference, sets are calibrated on held-out reference cells. If the query differs,
    the expected error and the size of the sets follow from the disagreement of the views.

    Parameters
    ----------
    adata
        The query: log-normalised expression, like the reference, or raw counts. Labels of the query are never used.
    reference
        AnnData object with labels, and with a prior and calibration cells of :func:`dice.tl.train_prior`. A
        :class:`dice.Prior` or its path gives the same result if the prior was trained with these labels.
    labels_key
        Column of ``reference.obs`` with the labels; cells without a label are not used. None uses the labels that the
        prior was trained with. Other labels are learned by this call. Several columns, from coarse to fine, or a
        :class:`dice.Levels` with a hierarchy, describe a tree of labels (:doc:`/levels`).
    alpha
        Share of cells whose prediction set may miss the true label, and of confident cells whose label may be wrong.
    groupby
        Column of ``adata.obs`` with groups of cells, or ``"auto"`` for fine groups of about 25 cells. The cells of a
        group vote for a common label. The votes of fine groups are written only if they agree with the labels better
        than votes of random groups do, and if they change no more labels than are expected to be wrong.
    sets
        Settings of the prediction sets (:class:`dice.Sets`).
    classifier
        Classifier: ``"auto"`` averages logistic regressions on the projection, on the denoised latents and on genes;
        ``"projection"``, ``"denoised"`` or ``"genes"`` uses one of the three. With
        :class:`dice.Classifier(min_probability=0.5) <dice.Classifier>`, less likely labels become ``"unassigned"``.
    shift
        How the query is compared with the reference. ``"auto"`` averages several views of the query: as measured; with
        the offset of each soft cluster removed; with the mean of its latents, or the mean and variance of its genes,
        matched to the reference; and compared with the mean profile of every label (:doc:`/labels`). ``"offset"``,
        ``"clusters"``, ``"mean"``, ``"centered"``, ``"standardized"``, ``"profiles"`` or False (as measured) uses one
        view only. A :class:`dice.Shift` also takes batches. To use the offsets of an earlier call again, pass its
        ``adata.uns["cell_type_dice"]["shift"]``.
    layer, gene_key, check, prior_key
        As in :func:`dice.tl.denoise`.
    key_added
        Key of the labels, by default ``"<labels_key>_dice"``. The names of other slots derive from it.
    random_state
        Seed. The result of a cell depends on the seed and on the name of the cell.
    copy
        Return a copy instead of writing to `adata`.

    Returns
    -------
    None, or the copy. Sets, for ``labels_key="cell_type"``:

    ``adata.obs["cell_type_dice"]`` categorical
        The most likely label of every cell. Categories are the labels that occur, in the order of the reference. Their
        colours are in ``adata.uns["cell_type_dice_colors"]``.
    ``adata.obs["cell_type_dice_status"]`` categorical
        Status of the label. ``"confident"`` labels can be used. ``"ambiguous"`` labels have alternatives, which are in
        the set. Cells ``"unlike the reference"`` are in a novel group or, if the query is not shifted, more novel than
        99 % of the calibration cells. Cells without expression have this status, too.
    ``adata.obs["cell_type_dice_prob"]``, ``adata.obs["cell_type_dice_margin"]`` float32
        Probability of the most likely label, and its difference from the second largest probability.
    ``adata.obs["cell_type_dice_voted"]`` categorical
        With `groupby`, the label of the cell's group; missing for cells without a group.
    ``adata.obs["cell_type_dice_set"]`` categorical
        The set as text, never empty, for example ``"B cell | Plasma cell"``.
    ``adata.obs["cell_type_dice_safe"]``, ``..._level``, ``..._safe_prob`` and ``adata.uns["cell_type_dice_safe"]``
        The finest label whose error rate is at most `alpha`, as by :func:`dice.tl.safe_labels`. With a tree also the
        label of every level and its probability, for example ``adata.obs["cell_type_dice_at_class"]``.
    ``adata.obsm["cell_type_dice_prob"]`` DataFrame (n_obs, n_labels) float32
        Probability of every label. Slashes in names of labels become ``"_"``, because files cannot hold them.
    ``adata.obsm["cell_type_dice_set"]`` DataFrame (n_obs, n_labels) bool
        The sets: True for labels in the set.
    ``adata.obsm["cell_type_dice_views"]`` DataFrame (n_obs, 2 n_views)
        The label that each view alone gives (``"measured"``, ...), and its probability (``"measured_prob"``, ...).
    ``adata.uns["cell_type_dice"]``
        ``call``, ``params`` (``shift_auc``, ``shift_strength``, ``error_ratio``, ``expected_error``,
        ``expected_coverage``, ``tissue_weight``, and ``confident_from``, the smallest probability of confident labels),
        ``views`` (weight of every view, and the share of cells for which it predicts the final label), ``composition``
        (estimated share of every label), ``labels``, ``candidates`` (log-loss, accuracy and macro-F1 of every
        classifier on calibration cells), ``shift`` (offsets of the view that moves cells, as in
        :func:`dice.tl.denoise`), ``reference`` (the card of the labels, as text) and ``warnings``. With `groupby` also
        ``votes``: for every ``group`` its ``n_cells``, its ``label`` with the mean ``probability``, the ``set`` of
        labels that together have the probability 1 - `alpha`, the smallest node of the tree with this probability
        (``safe``), and the ``shares`` (n_groups, n_labels) of its cells with each label.

    Examples
    --------
    >>> import dice
    >>> reference, query = dice.datasets.synthetic(1)
    >>> dice.tl.train_prior(reference, n_latent=15, scale=False, training=dice.Training(max_steps=20))
    >>> dice.tl.transfer_labels(query, reference, "cell_type")
    >>> query.obsm["cell_type_dice_prob"].shape
    (400, 2)
    """
    check_writable(adata, copy=copy, reference=reference)
    prior = find_prior(reference, key=prior_key, query=adata)
    levels = levels_of(prior, labels_key)
    keys = label_keys(adata, levels.key, key_added)
    alpha, groups = share("alpha", alpha), None if groupby in (None, "auto") else read_groups(adata, str(groupby))
    if not isinstance(sets, Sets):
        raise InputError(f"`sets` must be a dice.Sets, got {said(sets)}.")
    kind = classifier if isinstance(classifier, Classifier) else Classifier(classifier)
    options = Options(
        rho=0.0, uncertainty=False, shift=shift, layer=layer, gene_key=gene_key, check=check, random_state=random_state
    )
    asked = options.arguments() | {"labels_key": levels.key, "alpha": alpha, "groupby": groupby}
    call = as_plain(asked | {"sets": sets, "classifier": kind})
    _log.say_cost("transfer_labels", adata.n_obs)
    with _log.recorded() as warned:
        model = read_or_learn(reference, prior, levels, prior_key, options.random_state)
        check_model(model, prior)
        cells = LabelCells.of(Query.of(adata, prior, options))
        positions = None if kind.spatial_key is None else read_positions(adata, kind.spatial_key)
        found = classify(cells, model, kind, options.shift, positions)
        judged = judge(found, sets, alpha, kind.min_probability)
    record = {"call": call, "reference": describe(model.card), "warnings": np.array(warned, dtype=str)}
    voted = None if groupby is None else count_votes(judged, groups, alpha)
    slots = label_slots(keys, adata, judged, kind.min_probability, record, voted)
    confident, unlike = judged.status == CONFIDENT, judged.status == UNLIKE
    given, strength = judged.probabilities, judged.strength
    slots |= safe_slots(SafeKeys(keys.key), adata, model, given, confident, unlike, alpha, strength)
    return write(adata, slots, copy=copy)
