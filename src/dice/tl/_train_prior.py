"""Learning a prior on a reference."""

from __future__ import annotations

import os

import numpy as np
import torch
from anndata import AnnData
from numpy.typing import NDArray

from dice._anndata.checks import check_n_latent, gene_mask, read_labels
from dice._anndata.genes import check_storable
from dice._anndata.matrix import Matrix
from dice._anndata.preprocessing import check_expression
from dice._anndata.store import Prior
from dice._anndata.write import check_writable, plain_params, write
from dice._arguments import whole_number
from dice._core.prior import presets
from dice._core.shift.soft_clusters import Kinds
from dice._device import resolve_device
from dice._keys import PriorKeys
from dice._query.arguments import check_fractions, check_prior_key, check_training
from dice._reference.augment import check_augmentation
from dice._reference.checkpoint import check_path
from dice._reference.learn import learn
from dice._reference.learned import prior_slots, reference_statistics
from dice._reference.reduce import reduce
from dice._reference.reuse import read_embedding
from dice._reference.subsample import limit_roles

#: Latents where the user does not choose (docs/prior.md), as long as half of the genes are left to tell noise by.
AUTO_LATENT = 50


def train_prior(
    adata: AnnData,
    *,
    n_latent: int | str = "auto",
    labels_key: str | None = None,
    preset: str = "default",
    augment: str | None = "auto",
    mixup_points: int | None = None,
    mixup_probability: float = 0.9,
    mixup_concentration: float = 1.0,
    layer: str | None = None,
    mask_var: str | NDArray[np.bool_] | None = "auto",
    scale: bool = True,
    use_rep: str | None = None,
    max_steps: int | None = None,
    batch_size: int | None = None,
    learning_rate: float | None = None,
    validation_fraction: float = 0.1,
    calibration_fraction: float = 0.1,
    max_cells: int = 1_000_000,
    checkpoint: str | os.PathLike[str] | None = None,
    check: bool = True,
    key_added: str = "dice",
    device: str | torch.device = "auto",
    random_state: int = 0,
    copy: bool = False,
) -> AnnData | None:
    """Learn PCA loadings and a diffusion prior on a clean reference.

    The prior is stored inside `adata`, self-contained: it survives saving, copying and subsetting, and
    :func:`dice.tl.denoise` applies it to a query.

    Parameters
    ----------
    adata
        The reference: log-normalised expression of cells x genes.
    n_latent
        Number k of principal components. ``"elbow"`` reads it off the singular values, as the paper does. ``"auto"``
        is 50, or half of the cells or genes where there are fewer than 100.
    labels_key
        Column of ``adata.obs`` with the labels for `augment`. Cells without a label are learned from as they are.
    preset
        ``"default"`` (EDM-preconditioned network, early stopping), ``"paper"`` and ``"paper-small"`` (the paper's
        networks and schedules), or ``"gmm"`` (Gaussian mixture in closed form, without augmentation, steps or
        checkpoint).
    augment
        Replace training cells by random mixtures (mixup) of cells with the same label (``"labels"``), of the same
        fine Leiden cluster (``"clusters"``), or of the cell's 15 nearest neighbours (``"neighbors"``). None learns
        from cells as they are, and ``"auto"`` is ``"labels"`` where `labels_key` is given. Mixing pulls cells
        towards the middle of their class: with the defaults a mixture has a tenth of the variance
        within its class (and of all training cells nine in ten are mixtures), so that the prior and everything
        denoised with it are sharper by label than what was measured.
    mixup_points
        Cells in a mixture. None is 20 with labels, and 5 without and in the paper's presets.
    mixup_probability
        Share of training cells that are replaced by a mixture.
    mixup_concentration
        Parameter of the symmetric Dirichlet distribution of the mixing weights. A mixture keeps
        (c + 1) / (m c + 1) of the variance within classes for concentration c and m points.
    layer
        Layer to learn from instead of ``adata.X``.
    mask_var
        Boolean column of ``adata.var`` or mask of the genes to use; None for all. ``"auto"`` takes
        ``"highly_variable"`` where present.
    scale
        Divide every gene by its standard deviation and cap at 10; False only centres.
    use_rep
        Key in ``adata.obsm`` of a PCA to use instead of a new one, as :func:`scanpy.pp.pca` makes it:
        ``"X_pca"`` with loadings in ``adata.varm["PCs"]``, or another key with loadings in ``adata.varm`` under the
        same key. At most `n_latent` of its components and exactly the genes of its loadings are used; mean and
        scale are taken from the matrix, which must be the one that it was computed on.
    max_steps
        Largest number of training steps; None is the preset's.
    batch_size
        Cells in a training step; None is the preset's.
    learning_rate
        Largest learning rate; None is the preset's.
    validation_fraction
        Share of the cells held out to stop the training.
    calibration_fraction
        Share of the cells kept from everything (mean, scale, loadings, network, stopping), so that
        :func:`dice.tl.transfer_labels` and :func:`dice.tl.novelty` can calibrate on them. (Loadings that come with
        `use_rep` have seen them.) 0 if you need neither.
    max_cells
        Cells that the network learns from and stops on. Beyond, a random subsample is taken, with `labels_key` the
        same share of every label but at least 200 cells of it; the PCA is that of all cells.
    checkpoint
        File (.npz) to keep the state of the training in, every 200 steps and on Ctrl-C. Where it exists, the training
        goes on from it, and a call with the same arguments on the same machine ends with the same prior to the bit.
    check
        Refuse raw counts.
    key_added
        Key of the prior; other slots derive their name from it.
    device
        ``"auto"``, ``"cpu"``, ``"cuda"`` or any torch device.
    random_state
        Seed: the same seed and input give the same prior.
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
        Projection of the reference on them.
    ``adata.obs["dice_split"]`` categorical
        Role of every cell: ``"train"``, ``"validation"`` or ``"calibration"``; missing for those beyond `max_cells`.

    Examples
    --------
    >>> import dice
    >>> reference, query = dice.datasets.synthetic(1)
    >>> dice.tl.train_prior(reference, n_latent=15, scale=False, max_steps=20)
    >>> reference.obsm["X_dice_pca"].shape
    (1600, 15)
    """
    check_writable(adata, copy=copy)
    settings = check_training(preset, max_steps, batch_size, learning_rate, checkpoint)
    augmentation = check_augmentation(
        augment, labels_key, preset,
        points=mixup_points, probability=mixup_probability, concentration=mixup_concentration,
    )  # fmt: skip
    shares = check_fractions(validation_fraction, calibration_fraction, preset)
    seed, keys = whole_number("random_state", random_state, least=0), PriorKeys(check_prior_key(key_added))
    state = None if checkpoint is None else check_path(checkpoint)
    check_storable(adata.var_names, "adata.var_names")
    labels = None if labels_key is None else read_labels(adata, labels_key)
    target = resolve_device(device)
    embedding = None if use_rep is None else read_embedding(adata, use_rep)
    genes = _genes(adata, mask_var) if embedding is None else embedding.genes
    matrix = Matrix(adata, layer=layer, genes=genes)
    roles = presets.assign_roles(matrix.n_cells, *shares, seed)
    codes = None if labels is None else np.asarray(labels.codes)
    roles = limit_roles(roles, codes, whole_number("max_cells", max_cells, least=2), seed)
    seen = roles < presets.ROLES.index("calibration")
    most = max(min(AUTO_LATENT, seen.sum() // 2, matrix.n_genes // 2), 1)
    k = most if n_latent == "auto" else n_latent
    check_n_latent(k, int(seen.sum()), matrix.n_genes)
    sample = matrix.sample()
    if check:
        check_expression(sample if genes is None else sample[:, genes])

    reduced = reduce(matrix, embedding, seen, n_latent=k, scale=scale)
    latents, latent_scale, projection = reduced.latents, reduced.scale, reduced.projection
    data = presets.split(latents / latent_scale, roles, target)
    mixup = augmentation.mixup(latents[data.cells], None if codes is None else codes[data.cells], seed)
    noise = projection.noise / latent_scale
    denoiser, history = learn(preset, data, noise=noise, seed=seed, mixup=mixup, checkpoint=state, **settings)
    denoiser = denoiser.cpu().requires_grad_(False).eval()
    prior = Prior(
        genes=adata.var_names.to_numpy()[slice(None) if genes is None else genes].astype(object),
        projection=projection,
        denoiser=denoiser,
        latent_scale=latent_scale,
        preset=preset,
        history=history,
        statistics=reference_statistics(sample, genes, denoiser, None if augmentation.strategy == "labels" else data),
        params=plain_params(
            n_latent=n_latent,
            labels_key=labels_key,
            **augmentation.params,
            layer=layer,
            scale=bool(np.isfinite(projection.cap)),
            use_rep=use_rep,
            **settings,
            validation_fraction=shares[0],
            calibration_fraction=shares[1],
            max_cells=max_cells,
            random_state=seed,
        ),
        calibration=reduced.calibration,
        kinds=Kinds.learn(latents[seen], seed),
    )
    return write(adata, prior_slots(adata, prior, latents, genes, roles, keys), copy=copy)


def _genes(adata: AnnData, mask_var: str | NDArray[np.bool_] | None) -> NDArray[np.intp] | None:
    """Positions of the genes to learn from; None for all."""
    if isinstance(mask_var, str) and mask_var == "auto":
        mask_var = "highly_variable" if "highly_variable" in adata.var else None
    return gene_mask(adata, mask_var)
