"""Other label-free ways to embed a query beside a reference.

Each takes a pair as :func:`data.pair` makes it (log-normalised, counts in ``layers["counts"]``) and a seed, sees the
cells of both, and returns the embeddings of the reference and of the query. They are installed by the optional
dependency group ``bench``.
"""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections.abc import Callable, Iterable
from importlib.util import find_spec
from typing import Any

import anndata as ad
import numpy as np
from alra import alra

Embeddings = tuple[np.ndarray, np.ndarray]
N_LATENT = 50
#: Epochs of scVI; None is its own choice, 400 for data of this size: a quarter of an hour each on one core.
scvi_epochs: int | None = None


def pca(reference: ad.AnnData, query: ad.AnnData, seed: int) -> Embeddings:
    """The reference's loadings, as DICE starts from them; computed once for all peers that start there."""
    from dice._data.matrix import Matrix
    from dice._model.pca import fit_projection

    if "PCA" not in query.obsm:
        projection = fit_projection(Matrix(ad.AnnData(reference.X)).total, n_latent=N_LATENT)
        reference.obsm["PCA"], query.obsm["PCA"] = projection.project(reference.X), projection.project(query.X)
    return reference.obsm["PCA"], query.obsm["PCA"]


def smoothing(n_neighbors: int) -> Callable[..., Embeddings]:
    """Every cell becomes the mean of its nearest neighbours in the projection, itself included."""

    def smooth(reference: ad.AnnData, query: ad.AnnData, seed: int) -> Embeddings:
        from sklearn.neighbors import NearestNeighbors

        cells = np.concatenate(pca(reference, query, seed))
        nearest = NearestNeighbors(n_neighbors=n_neighbors).fit(cells).kneighbors(cells, return_distance=False)
        return _apart(cells[nearest].mean(1), reference)

    return smooth


def magic(reference: ad.AnnData, query: ad.AnnData, seed: int) -> Embeddings:
    """MAGIC with its defaults on the projection, as the paper used it."""
    from magic import MAGIC

    cells = np.concatenate(pca(reference, query, seed)).astype(np.float64)
    model = MAGIC(n_pca=None, n_jobs=1, random_state=seed, verbose=0)
    return _apart(np.asarray(model.fit_transform(cells)), reference)


def low_rank(reference: ad.AnnData, query: ad.AnnData, seed: int) -> Embeddings:
    """ALRA on the log-normalised matrix, then 50 principal components of it."""
    from sklearn.decomposition import PCA

    expression = np.concatenate([_dense(reference), _dense(query)])
    return _apart(PCA(N_LATENT, random_state=seed).fit_transform(alra(expression, random_state=seed)), reference)


def nmf(reference: ad.AnnData, query: ad.AnnData, seed: int) -> Embeddings:
    """Non-negative factors of the reference and their weights in the query."""
    from sklearn.decomposition import NMF

    model = NMF(N_LATENT, init="nndsvda", max_iter=100, random_state=seed)
    return model.fit_transform(_dense(reference)), model.transform(_dense(query))


def harmony(reference: ad.AnnData, query: ad.AnnData, seed: int) -> Embeddings:
    """The projection after Harmony with reference and query as batches."""
    import harmonypy

    cells = np.concatenate(pca(reference, query, seed))
    origin = _together(reference, query).obs[["origin"]]
    corrected = np.asarray(harmonypy.run_harmony(cells, origin, "origin", verbose=False, random_state=seed).Z_corr)
    return _apart(corrected if len(corrected) == len(cells) else corrected.T, reference)


def scvi(n_latent: int) -> Callable[..., Embeddings]:
    """scVI with its defaults on the counts of all cells; reference and query are batches."""

    def embed(reference: ad.AnnData, query: ad.AnnData, seed: int) -> Embeddings:
        import scvi as package

        package.settings.seed = seed
        package.settings.verbosity = logging.ERROR
        logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
        cells = _together(reference, query)
        package.model.SCVI.setup_anndata(cells, layer="counts", batch_key="origin")
        model = package.model.SCVI(cells, n_latent=n_latent)
        model.train(max_epochs=scvi_epochs, accelerator="cpu", enable_progress_bar=False, logger=False)
        return _apart(model.get_latent_representation(), reference)

    return embed


PEERS: dict[str, Callable[..., Embeddings]] = {
    "PCA": pca,
    "kNN-5": smoothing(5),
    "kNN-10": smoothing(10),
    "kNN-15": smoothing(15),
    "MAGIC": magic,
    "ALRA": low_rank,
    "NMF": nmf,
    "Harmony": harmony,
    "scVI-10": scvi(10),
    "scVI-25": scvi(25),
}
#: What the others need beyond what dice itself does.
PACKAGES = {
    "MAGIC": "magic",
    "MAGIC alone": "magic",
    "scVI": "scvi",
    "scVI-10": "scvi",
    "scVI-25": "scvi",
    "PhenoGraph": "phenograph",
    "symphony": "symphonypy",
    "scanvi": "scvi",
    "totalVI": "scvi",
    "celltypist": "celltypist",
    "celltypist-voting": "celltypist",
    "popv": "popv",
    "singler": "singler",
    "singler-auc": "scranpy",
    "tangram": "tangram",
}


def installed(methods: Iterable[str]) -> list[str]:
    """Those of the methods that can be run; says which cannot."""
    found = []
    for method in methods:
        package = PACKAGES.get(method)
        if package and find_spec(package) is None:
            print(f"{method} is left out: the Python package {package} is not installed.", flush=True)
        else:
            found.append(method)
    return found


def embed(name: str, reference: ad.AnnData, query: ad.AnnData, seed: int) -> Embeddings:
    """Run a peer without its chatter."""
    return quietly(PEERS[name], reference, query, seed)


def quietly(method: Callable[..., Any], *given: object) -> Any:
    """What a method gives, without its chatter; global random state is put back."""
    state = np.random.get_state()  # noqa: NPY002 - several peers seed it
    with (
        warnings.catch_warnings(),
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),
    ):
        warnings.simplefilter("ignore")
        found = method(*given)
    np.random.set_state(state)  # noqa: NPY002
    return found


def _together(reference: ad.AnnData, query: ad.AnnData) -> ad.AnnData:
    return ad.concat({"reference": reference, "query": query}, label="origin", index_unique="-")


def _apart(cells: np.ndarray, reference: ad.AnnData) -> Embeddings:
    return cells[: reference.n_obs], cells[reference.n_obs :]


def _dense(adata: ad.AnnData) -> np.ndarray:
    return np.asarray(adata.X.todense() if hasattr(adata.X, "todense") else adata.X)
