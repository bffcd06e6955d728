"""Training of a prior on a reference."""

from dataclasses import replace
from typing import Literal

import numpy as np
from anndata import AnnData
from numpy.typing import NDArray

from dice import _log, settings
from dice._arguments import seed, short_seed
from dice._data.store import Prior, remember
from dice._data.values import takes_counts
from dice._data.write import check_writable, prior_slot, write
from dice._keys import PriorKeys
from dice._labels.learn import learn_labels
from dice._labels.stored import labels_to_learn
from dice._model.offsets import SoftClusters
from dice._model.training_data import assign_roles
from dice._train.cells import ReferenceCells, reduce, training_data
from dice._train.train import check_settings, record, train_denoiser
from dice._types import Seed
from dice.options import LabelsKey, Levels, Mixup, Training, torch_device


@takes_counts
def train_prior(
    adata: AnnData,
    *,
    n_latent: int | Literal["auto", "elbow"] = "auto",
    labels_key: LabelsKey | None = None,
    preset: str = "default",
    mixup: Mixup | Literal["auto"] | None = "auto",
    layer: str | None = None,
    mask_var: str | NDArray[np.bool_] | None = "auto",
    scale: bool = True,
    training: Training = Training(),
    check: bool = True,
    key_added: str = "dice",
    random_state: Seed = 0,
    copy: bool = False,
) -> AnnData | None:
    """Learn PCA loadings and a denoiser on a reference.

    The denoiser removes the noise of counts at the depth of a cell, and additional Gaussian noise. It is learned from
    copies of the reference cells that keep a random part of their counts. If the values are not log-normalised counts,
    the denoiser removes Gaussian noise only.

    The prior is stored in `adata`, and it is kept when `adata` is saved, copied or subset. :func:`dice.tl.denoise`
    applies it to a query.

    Parameters
    ----------
    adata
        The reference: log-normalised expression of cells x genes.
    n_latent
        Number k of principal components. ``"elbow"`` is the elbow of the singular values, as in the paper. ``"auto"``
        is 50, or half the number of cells or genes if there are fewer than 100.
    labels_key
        Column of ``adata.obs`` with labels, or columns from coarse to fine. A :class:`dice.Levels` adds a hierarchy.
        The prior then contains classifiers of the labels (:func:`dice.tl.transfer_labels`). Labels do not change the
        denoiser of the default preset.
    preset
        Network and schedule: ``"default"``, ``"paper"``, ``"paper-small"`` or ``"gmm"``. The default learns the noise
        of counts, and the others assume Gaussian noise. ``"paper"`` and ``"paper-small"`` are the paper's networks, and
        ``"gmm"`` is a Gaussian mixture, which is fitted without training steps or checkpoint.
    mixup
        Whether to train the networks of the paper on random mixtures of cells with the same label, so that cells of a
        label are more alike in the prior than in the data. ``"auto"`` mixes cells for the presets of the paper if
        `labels_key` is given. None never mixes cells. Pass a :class:`dice.Mixup` to change settings.
    layer
        Layer to learn from instead of ``adata.X``.
    mask_var
        Boolean column of ``adata.var`` or mask of the genes to use. None uses all genes. ``"auto"`` uses
        ``"highly_variable"`` if present, as scanpy does.
    scale
        Whether to divide every gene by its standard deviation and cap values at 10. False only centres the genes.
    training
        Steps, held-out cells and checkpoint, as a :class:`dice.Training`.
    check
        Whether to refuse raw counts and scaled genes.
    key_added
        Key of the prior; other slots derive their name from it. An earlier prior with this key is replaced.
    random_state
        Seed. A NumPy generator draws a seed, and None uses a new seed each time. The same seed and input
        give the same prior.
    copy
        Return a copy instead of writing to `adata`.

    Returns
    -------
    None, or the copy. Sets:

    ``adata.uns["dice"]``
        The prior as plain arrays.
    ``adata.varm["dice_loadings"]`` (n_vars, k) float32
        Orthonormal loadings, zero for genes that were not used.
    ``adata.obsm["X_dice_pca"]`` (n_obs, k) float32
        Projection of the reference on the loadings.
    ``adata.obs["dice_split"]`` categorical
        Role of every cell: ``"train"``, ``"validation"`` or ``"calibration"``.

    Examples
    --------
    >>> import dice
    >>> reference, query = dice.datasets.synthetic(1)
    >>> dice.tl.train_prior(reference, n_latent=15, scale=False, training=dice.Training(max_steps=20))
    >>> reference.obsm["X_dice_pca"].shape
    (1600, 15)
    """
    check_writable(adata, copy=copy)
    keys, random_state = PriorKeys(prior_slot(adata, key_added)), seed(random_state)
    key = labels_key if isinstance(labels_key, str) else getattr(Levels.of(labels_key), "key", None)
    mixup, device = check_settings(preset, training, mixup, key), torch_device(settings.device)
    _log.say_cost("train_prior", adata.n_obs)
    roles = assign_roles(adata.n_obs, training.validation_fraction, training.calibration_fraction, random_state)
    labelled = labels_to_learn(adata, roles, labels_key)
    cells = ReferenceCells.read(adata, roles, labels_key=key, layer=layer, mask_var=mask_var, check=check)
    arguments = {"n_latent": n_latent, "labels_key": key, "layer": layer, "scale": bool(scale)}
    params = record(training, mixup, **arguments, random_state=random_state)
    likelihood, latents, calibration = reduce(cells, n_latent=cells.n_latent(n_latent), scale=scale)
    data = training_data(cells, likelihood.projection, latents, preset, random_state, device)
    labels = None if mixup is None or cells.labels is None else cells.labels[data.cells]
    noise = likelihood.projection.noise / data.scale
    denoiser, history = train_denoiser(
        preset, data, training, noise=noise, seed=random_state, labels=labels, mixup=mixup
    )
    prior = Prior(
        genes=adata.var_names.to_numpy()[cells.matrix.genes].astype(object),
        projection=likelihood.projection,
        denoiser=denoiser,
        latent_scale=data.scale,
        preset=preset,
        history=history,
        statistics=cells.statistics,
        params=params,
        calibration=calibration,
    )
    clean = prior.clean(likelihood, latents, cells.seen)[cells.seen]
    prior = replace(prior, soft_clusters=SoftClusters.learn(clean, short_seed(random_state)))
    if labelled is not None:
        prior = replace(prior, labels=learn_labels(adata, prior, labelled, random_state, "adata"))
    written = write(adata, cells.slots(prior.to_arrays(), latents.y, keys), copy=copy)
    remember(adata if written is None else written, prior, keys.uns)
    return written
