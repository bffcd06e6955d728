"""One tool of speed_peers.py in a process of its own, and perhaps in an interpreter of its own.

    python benchmarks/speed_tools.py TOOL FOLDER EPOCHS

reads reference.h5ad and query.h5ad in FOLDER and prints what each task took, as JSON.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import sys
import warnings
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from types import ModuleType

import anndata as ad
import numpy as np
import trial
from clock import Clock

LABELS = "cell_type"
TRAINING, PCS, EMBEDDING, SAMPLES, TRANSFER = "training", "denoising of PCs", "embedding", "ten samples", "labels"
#: Epochs that scVI takes by default for up to 20,000 cells.
SCVI_EPOCHS = 400


def by_dice(reference: ad.AnnData, query: ad.AnnData, clock: Clock, **_: object) -> None:
    import torch

    dice = _warm_dice(reference)
    labelled = reference.copy()
    clock(TRAINING, lambda: dice.tl.train_prior(reference))
    prior = dice.Prior.from_anndata(reference)
    points = torch.as_tensor(query.obsm["PCA"])
    with torch.no_grad():
        clock(PCS, lambda: prior.denoise(points, 0.5 * prior.latent_scale), repeats=3)
    clock(EMBEDDING, lambda: dice.tl.denoise(query, prior, method=dice.Direct(uncertainty=False)), repeats=3)
    clock(
        SAMPLES, lambda: dice.tl.denoise(query, prior, n_samples=10, method=dice.Direct(uncertainty=False)), repeats=3
    )

    def labels() -> None:
        dice.tl.train_prior(labelled, labels_key=LABELS)
        dice.tl.transfer_labels(query, labelled, LABELS)

    clock(TRANSFER, labels)


def by_mixture(reference: ad.AnnData, query: ad.AnnData, clock: Clock, **_: object) -> None:
    """The prior in closed form."""
    dice = _warm_dice(reference)
    clock(TRAINING, lambda: dice.tl.train_prior(reference, preset="gmm"))
    prior = dice.Prior.from_anndata(reference)
    clock(EMBEDDING, lambda: dice.tl.denoise(query, prior, method=dice.Direct(uncertainty=False)), repeats=3)


def _warm_dice(reference: ad.AnnData) -> ModuleType:
    """The package after a first small call, which imports what it needs."""
    import dice

    dice.settings.verbosity = 0
    trial.shorten()
    few = reference[:200].copy()
    dice.tl.train_prior(few, training=dice.Training(max_steps=2))
    dice.tl.denoise(few)
    return dice


def by_magic(reference: ad.AnnData, query: ad.AnnData, clock: Clock, **_: object) -> None:
    _smooth(query.obsm["PCA"], clock)


def by_magic_of_both(reference: ad.AnnData, query: ad.AnnData, clock: Clock, **_: object) -> None:
    _smooth(np.concatenate([reference.obsm["PCA"], query.obsm["PCA"]]), clock)


def _smooth(cells: np.ndarray, clock: Clock) -> None:
    from magic import MAGIC

    cells = cells.astype(np.float64)
    clock(PCS, lambda: MAGIC(n_pca=None, n_jobs=1, random_state=0, verbose=0).fit_transform(cells), repeats=3)


def by_nmf(reference: ad.AnnData, query: ad.AnnData, clock: Clock, **_: object) -> None:
    from sklearn.decomposition import NMF

    known, new = reference.X.toarray(), query.X.toarray()
    model = NMF(query.obsm["PCA"].shape[1], init="nndsvda", max_iter=100, random_state=0)
    clock(TRAINING, lambda: model.fit_transform(known))
    clock(EMBEDDING, lambda: model.transform(new), repeats=3)


def by_scvi(reference: ad.AnnData, query: ad.AnnData, clock: Clock, epochs: int, **_: object) -> None:
    import scvi

    scvi.settings.seed, scvi.settings.verbosity = 0, logging.ERROR
    default = min(SCVI_EPOCHS, round(20_000 / reference.n_obs * SCVI_EPOCHS))
    epochs = min(epochs or default, default)
    scvi.model.SCVI.setup_anndata(reference, layer="counts")
    model = scvi.model.SCVI(reference)

    def train(n: int) -> None:
        model.train(max_epochs=n, accelerator="cpu", enable_progress_bar=False, logger=False)

    train(1)  # what is done once only is not for extrapolation
    clock(TRAINING, lambda: train(epochs), share=epochs / default)
    clock(EMBEDDING, lambda: model.get_latent_representation(query), repeats=3)

    def samples() -> None:
        mean, variance = model.get_latent_representation(query, return_dist=True)
        np.random.default_rng(0).normal(mean, np.sqrt(variance), size=(10, *mean.shape))

    clock(SAMPLES, samples, repeats=3)


def by_symphony(reference: ad.AnnData, query: ad.AnnData, clock: Clock, **_: object) -> None:
    import symphonypy  # noqa: F401 - so that the clock does not count it
    from transfer_peers import by_symphony as transfer

    clock(TRANSFER, lambda: transfer(reference, query, LABELS, 0))


def by_celltypist(reference: ad.AnnData, query: ad.AnnData, clock: Clock, **_: object) -> None:
    import celltypist  # noqa: F401 - so that the clock does not count it
    from transfer_peers import by_celltypist as transfer

    clock(TRANSFER, lambda: transfer(reference, query, LABELS, 0))


#: The package of each tool, and its tasks.
TOOLS: dict[str, tuple[str, Callable[..., None]]] = {
    "DICE": ("scdice", by_dice),
    "DICE, Gaussian mixture": ("scdice", by_mixture),
    "MAGIC": ("magic-impute", by_magic),
    "MAGIC of both": ("magic-impute", by_magic_of_both),
    "NMF": ("scikit-learn", by_nmf),
    "scVI": ("scvi-tools", by_scvi),
    "symphonypy": ("symphonypy", by_symphony),
    "CellTypist": ("celltypist", by_celltypist),
}


def run(tool: str, folder: Path, epochs: int) -> list[dict[str, object]]:
    """One tool, in this process and without its chatter."""
    warnings.filterwarnings("ignore")
    reference, query = (ad.read_h5ad(folder / f"{name}.h5ad") for name in ("reference", "query"))
    package, tasks = TOOLS[tool]
    clock = Clock()
    with contextlib.redirect_stdout(io.StringIO()):
        tasks(reference, query, clock, epochs=epochs)
    return [{"version": version(package), **row} for row in clock.rows]


if __name__ == "__main__":
    print(json.dumps(run(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))))
