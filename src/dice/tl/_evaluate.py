"""Score representations and transferred labels against known labels."""

import time
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import pandas as pd
from anndata import AnnData
from numpy.typing import NDArray

from dice import metrics
from dice._arguments import choice, said, seed, short_seed
from dice._data import read
from dice._data.graph import umap_layout
from dice._data.read import Transferred, read_safe
from dice._errors import InputError
from dice._keys import SafeKeys
from dice._labels.summary import score_labels
from dice._types import Floats, Seed


def evaluate(
    adata: AnnData,
    labels_key: str,
    *,
    use_rep: str | Sequence[str] = ("X_dice_pca", "X_dice"),
    protocol: Literal["embedding", "paper", "labels"] = "embedding",
    batch_key: str | None = None,
    resolution: float = 1.0,
    n_neighbors: int = 15,
    key: str | None = None,
    label_map: Mapping[str, str | Sequence[str]] | None = None,
    random_state: Seed = 0,
) -> pd.DataFrame:
    """Score representations of cells, or transferred labels, against known labels. Nothing is written.

    A better score does not prove a better embedding. Silhouette, LISI and ARI reward any embedding that pulls cells
    together, even more than the data support.

    Parameters
    ----------
    adata
        Annotated data with the representations in ``obsm``.
    labels_key
        Column of ``obs`` with the known labels. Cells without a label are clustered but not scored.
    use_rep
        Key or keys of ``obsm``, by default the projection and the denoised embedding.
    protocol
        ``"embedding"`` scores the representation itself: Leiden clusters, and cLISI with Harmony's perplexity of 30.
        ``"paper"`` repeats the protocol of the paper: Louvain clusters on a two-dimensional UMAP, and cLISI with 9
        equally weighted neighbours; the paper reports ``nmi_max``. Both protocols compute the silhouette on the
        representation. ``"labels"`` scores the labels, sets and status of :func:`dice.tl.transfer_labels` instead.
    batch_key
        Column of ``obs`` with batches, for the column ``ilisi``.
    resolution
        Resolution of the clustering for ``ari_fixed``. This resolution does not depend on the labels.
    n_neighbors
        Size of the neighbourhoods in the graphs for clustering and UMAP.
    key
        With ``"labels"``, the key of the transferred labels; None uses ``f"{labels_key}_dice"``.
    label_map
        With ``"labels"``, a dict from known labels to their names in the reference, one name or several for each
        label. Labels that are not in the dict keep their name.
    random_state
        Seed of UMAP and of the clusterings.

    Returns
    -------
    One row per representation, with its name as index, and the columns

    - ``protocol``;
    - ``silhouette``: average cosine silhouette of the labels, higher is better;
    - ``ari``, ``nmi``, ``nmi_max``, ``v_measure``, ``n_clusters``: for the clustering with the best
      ARI over :data:`dice.metrics.PAPER_RESOLUTIONS`, found at ``best_resolution``; ``nmi`` divides
      by the mean entropy and ``nmi_max`` by the larger one;
    - ``ari_fixed``: ARI at the given ``resolution``;
    - ``kmeans_ari``: ARI of k-means with as many clusters as there are labels;
    - ``clisi``: labels per neighbourhood, lower is better;
    - ``ilisi``: batches per neighbourhood, higher is better (with ``batch_key`` only);
    - ``seconds``: time taken.

    With ``protocol="labels"``, one row for all cells and one for every known label that the reference has, with the
    columns below. Cells with other labels are left out and counted in a warning.

    - ``n_cells``; ``accuracy``; ``f1``, which is the mean over labels in the row for all cells. Known labels with the
      same name in the reference are merged and share their ``f1``;
    - ``coverage``, the share of prediction sets with the true label, and their mean ``set_size``;
    - ``confident``, the share of cells with the status ``"confident"``, and ``confident_accuracy``, their accuracy;
    - ``safe_error``, the share of cells whose safe label (:func:`dice.tl.safe_labels`) excludes the true label;
    - ``safe_resolved`` and ``safe_finest``, the shares of cells with a safe label below the root and at a leaf;
    - with levels of labels, for example ``"class"``: ``accuracy_class``, the accuracy at this level, and
      ``resolved_class``, the share of cells whose safe label is at this level or at a finer level. Known labels may be
      of any level.

    Examples
    --------
    >>> import dice
    >>> cells, _ = dice.datasets.mismatch(n_reference=300)
    >>> table = dice.tl.evaluate(cells, "cell_type", use_rep="U_true")
    >>> table["n_clusters"].tolist()
    [5]
    """
    choice("protocol", protocol, ("embedding", "paper", "labels"))
    random_state = seed(random_state)
    labels = read.labels(adata, labels_key, "labels_key")
    if label_map is not None and not isinstance(label_map, Mapping):
        raise InputError(f"`label_map` must be a dict of names or None, got {said(label_map)}.")
    if protocol == "labels":
        key = f"{labels_key}_dice" if key is None else key
        found, safe = Transferred.of(adata, labels_key, key), read_safe(adata, SafeKeys(key))[:2]
        return score_labels(found, safe, labels, labels_key, label_map or {})
    batches = None if batch_key is None else read.labels(adata, batch_key, "batch_key")
    embeddings = {name: read.embedding(adata, name, dtype=float) for name in read.as_keys(use_rep)}
    paper, rows = protocol == "paper", []
    clisi, ilisi = (metrics.lisi_neighbors,) * 2 if paper else (metrics.clisi, metrics.ilisi)
    for embedding in embeddings.values():
        start = time.perf_counter()
        space = umap_layout(embedding, n_neighbors, random_state) if paper else embedding
        row = {"protocol": protocol, "silhouette": metrics.silhouette(embedding, labels)}
        row |= _clustering(space, labels, "louvain" if paper else "leiden", resolution, n_neighbors, random_state)
        row["clisi"] = clisi(space, labels)
        if batches is not None:
            row["ilisi"] = ilisi(space, batches)
        rows.append(row | {"seconds": time.perf_counter() - start})
    return pd.DataFrame(rows, index=pd.Index(list(embeddings), name="representation"))


def _clustering(
    space: Floats, labels: NDArray[Any], method: Literal["leiden", "louvain"], resolution: float, n_neighbors: int,
    random_state: int,
) -> dict[str, float]:  # fmt: skip
    """Compare labels with clusters at the best resolution, with clusters at a fixed resolution, and with k-means."""
    from sklearn.cluster import KMeans

    sweep = metrics.leiden_sweep(
        space, labels, resolutions=(*metrics.PAPER_RESOLUTIONS, resolution), n_neighbors=n_neighbors,
        method=method, random_state=random_state,
    )  # fmt: skip
    # The last row is the fixed resolution, which is not a candidate for the best resolution.
    best = sweep.loc[sweep["ari"].iloc[:-1].idxmax()]
    means = KMeans(pd.Series(labels).nunique(), n_init=10, random_state=short_seed(random_state))
    return {
        **{name: float(best[name]) for name in ("ari", "nmi", "nmi_max", "v_measure")},
        "best_resolution": float(best["resolution"]), "n_clusters": int(best["n_clusters"]),
        "ari_fixed": float(sweep["ari"].iloc[-1]), "kmeans_ari": metrics.ari(labels, means.fit_predict(space)),
    }  # fmt: skip
