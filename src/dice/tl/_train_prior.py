"""Learning a prior on a reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from anndata import AnnData
from numpy.typing import NDArray

from dice import _log
from dice._anndata.checks import check_expression, check_n_latent, gene_mask, read_labels
from dice._anndata.genes import check_unique
from dice._anndata.matrix import Matrix
from dice._anndata.store import Prior
from dice._anndata.write import Slots, plain_params, write
from dice._core import presets
from dice._core.augment import Mixup
from dice._core.denoiser import Denoiser
from dice._core.projection import fit_projection
from dice._core.training import Trainer
from dice._device import resolve_device
from dice._errors import InputError
from dice._keys import PriorKeys


def train_prior(
    adata: AnnData,
    *,
    n_latent: int | str = "elbow",
    labels_key: str | None = None,
    preset: str = "default",
    layer: str | None = None,
    mask_var: str | NDArray[np.bool_] | None = "auto",
    scale: bool = True,
    max_steps: int | None = None,
    batch_size: int | None = None,
    learning_rate: float | None = None,
    validation_fraction: float = 0.1,
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
        Number k of principal components, or ``"elbow"`` to read it off the singular values.
    labels_key
        Column of ``adata.obs``. Turns on same-class mixup: with probability 0.9 a training cell is replaced by a
        Dirichlet(1) mixture of itself and four cells of its class. The prior then has a third of the
        variance within classes, so that classes come out sharper than they were measured.
    preset
        ``"default"`` (EDM-preconditioned network, early stopping), ``"paper"`` and ``"paper-small"`` (the paper's
        networks and schedules), or ``"gmm"`` (Gaussian mixture in closed form).
    layer
        Layer to learn from instead of ``adata.X``.
    mask_var
        Boolean column of ``adata.var`` or mask of the genes to use; None for all. ``"auto"`` takes
        ``"highly_variable"`` where present.
    scale
        Divide every gene by its standard deviation and cap at 10; False only centres.
    max_steps
        Largest number of training steps; None is the preset's.
    batch_size
        Cells in a training step; None is the preset's.
    learning_rate
        Largest learning rate; None is the preset's.
    validation_fraction
        Share of the cells held out to stop the training.
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

    Examples
    --------
    >>> import dice
    >>> reference, query = dice.datasets.synthetic(1)
    >>> dice.tl.train_prior(reference, n_latent=15, scale=False, max_steps=20)
    >>> reference.obsm["X_dice_pca"].shape
    (1600, 15)
    """
    if preset not in presets.NAMES:
        raise InputError(f"There is no preset {preset!r}: choose one of {list(presets.NAMES)}.")
    if not 0 <= validation_fraction <= 0.5:
        raise InputError(f"validation_fraction={validation_fraction} is not between 0 and 0.5.")
    check_unique(adata.var_names, "adata.var_names")
    labels = None if labels_key is None else read_labels(adata, labels_key)
    if isinstance(mask_var, str) and mask_var == "auto":
        mask_var = "highly_variable" if "highly_variable" in adata.var else None
    genes = gene_mask(adata, mask_var)
    matrix = Matrix(adata, layer=layer, genes=genes)
    check_n_latent(n_latent, matrix.n_cells, matrix.n_genes)
    if check:
        check_expression(matrix.read(matrix.slices()[0]))
    target = resolve_device(device)

    projection = fit_projection(lambda: iter(matrix), n_latent=n_latent, scale=scale)
    latents = np.concatenate([projection.project(chunk) for chunk in matrix])
    latent_scale = float(np.sqrt(latents.var(0).mean()))
    data = presets.split(latents / latent_scale, validation_fraction, random_state, target)
    mixup = None if labels is None else Mixup(np.asarray(labels.codes)[data.cells])
    denoiser, history = _learn(
        preset,
        data,
        noise=projection.noise / latent_scale,
        mixup=mixup,
        seed=random_state,
        max_steps=max_steps,
        batch_size=batch_size,
        learning_rate=learning_rate,
    )
    prior = Prior(
        genes=adata.var_names.to_numpy()[slice(None) if genes is None else genes].astype(object),
        projection=projection,
        denoiser=denoiser.cpu().requires_grad_(False).eval(),
        latent_scale=latent_scale,
        preset=preset,
        history={name: np.asarray(values) for name, values in history.items()},
        params=plain_params(
            n_latent=n_latent,
            labels_key=labels_key,
            layer=layer,
            scale=scale,
            max_steps=max_steps,
            batch_size=batch_size,
            learning_rate=learning_rate,
            validation_fraction=validation_fraction,
            random_state=random_state,
        ),
    )
    return write(adata, _slots(adata, prior, latents, genes, PriorKeys(key_added)), copy=copy)


def _learn(
    preset: str,
    data: presets.Split,
    *,
    noise: float,
    seed: int,
    mixup: Mixup | None,
    **overrides: Any,
) -> tuple[Denoiser, dict[str, list[float]]]:
    """Fit or train the denoiser of a preset, with a progress bar."""
    if preset == "gmm":
        return presets.fit_mixture(data, seed=seed)
    trainer = presets.make_trainer(preset, data, noise=noise, mixup=mixup, seed=seed, **overrides)
    history = _drive(trainer)
    _log.info(
        f"Stopped after {trainer.step} steps; best held-out loss {trainer.best_loss:.4f} of the linear "
        f"denoiser's at step {trainer.best_step}."
    )
    return trainer.denoiser, history


def _drive(trainer: Trainer) -> dict[str, list[float]]:
    history: dict[str, list[float]] = {"step": [], "loss": [], "validation": []}
    losses: list[float] = []
    with _log.progress(total=trainer.config.max_steps, desc="Training prior", unit="step") as bar:
        try:
            for report in trainer.steps():
                losses.append(report.loss)
                bar.update()
                if report.validation is not None:
                    history["step"].append(report.step)
                    history["loss"].append(float(np.mean(losses)))
                    history["validation"].append(report.validation)
                    bar.set_postfix(loss=f"{report.loss:.3f}", held_out=f"{report.validation:.3f}")
                    losses.clear()
        except KeyboardInterrupt:
            trainer.restore_best()
            _log.warn(
                f"Training was interrupted at step {trainer.step}; the prior is the best so far, from "
                f"step {trainer.best_step}."
            )
    return history


def _slots(
    adata: AnnData,
    prior: Prior,
    latents: NDArray[np.float32],
    genes: NDArray[np.intp] | None,
    keys: PriorKeys,
) -> Slots:
    loadings = np.zeros((adata.n_vars, prior.n_latent), dtype=np.float32)
    loadings[slice(None) if genes is None else genes] = prior.projection.loadings
    return Slots(
        obsm={keys.projection: latents.astype(np.float32)},
        varm={keys.loadings: loadings},
        uns={keys.uns: prior.to_arrays()},
    )
