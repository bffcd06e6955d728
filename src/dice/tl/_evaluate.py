"""How well representations tell known labels apart."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd

from dice import _log, metrics
from dice._arguments import choice, said, seed
from dice._clusters.partition import kmeans
from dice._data import read
from dice._data.graph import umap_layout
from dice._data.results import Transferred
from dice._errors import InputError
from dice._labels.scores import label_scores_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from anndata import AnnData
    from numpy.typing import NDArray

    from dice._types import Floats

Protocol = Literal["embedding", "paper", "labels"]


@_log.once_per_object
def evaluate(
    adata: AnnData,
    labels_key: str,
    *,
    use_rep: str | Sequence[str] = ("X_dice_pca", "X_dice"),
    protocol: Protocol = "embedding",
    batch_key: str | None = None,
    resolution: float = 1.0,
    n_neighbors: int = 15,
    random_state: int = 0,
    key: str | None = None,
    label_map: Mapping[str, str | Sequence[str]] | None = None,
) -> pd.DataFrame:
    """Score representations of cells, or transferred labels, against known labels; writes nothing.

    Sharpness is not faithfulness: silhouette, LISI and ARI reward any embedding that pulls cells
    together, also beyond what the data support.

    Parameters
    ----------
    adata
        Annotated data with the representations in ``obsm``.
    labels_key
        Column of ``obs`` with the known labels; cells without one are clustered, but not scored.
    use_rep
        Key or keys of ``obsm``, by default the plain projection and the denoised embedding.
    protocol
        ``"embedding"`` works on the representation itself: Leiden, and cLISI with Harmony's
        perplexity of 30. ``"paper"`` repeats the authors' runs: a two-dimensional UMAP first, on it
        Louvain, and cLISI with 9 equally weighted neighbours; its tables report ``nmi_max``. The
        silhouette is that of the representation in both. ``"labels"`` scores labels, sets and status of
        :func:`dice.tl.transfer_labels` instead.
    batch_key
        Column of ``obs`` with batches, for the column ``ilisi``.
    resolution
        Fixed resolution of the clustering behind ``ari_fixed``, which no label has chosen.
    n_neighbors
        Size of the neighbourhoods in the graphs for clustering and UMAP.
    random_state
        Seed of UMAP and of the clusterings.
    key
        With ``"labels"``, the key of the transferred labels; None is ``f"{labels_key}_dice"``.
    label_map
        With ``"labels"``, what known labels are called in the reference, where its names are others: a
        name or several for each. Labels that are not in it keep their name.

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

    With ``protocol="labels"`` one row for all cells and one for every known label that the reference has
    (cells with other labels are left out and counted in a warning), with the columns

    - ``n_cells``; ``accuracy``; ``f1``, for all cells the mean over labels. Known labels with the same name in the
      reference count as one label there, and share their ``f1``;
    - ``coverage``, the share of prediction sets with the true label, and their mean ``set_size``;
    - ``confident``, the share of cells with that status, and ``confident_accuracy``.

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
        return _labels(Transferred.of(adata, labels_key, key), labels, labels_key, label_map or {})
    batches = None if batch_key is None else read.labels(adata, batch_key, "batch_key")
    embeddings = read.embeddings(adata, [use_rep] if isinstance(use_rep, str) else use_rep)
    rows = []
    with _log.progress(total=len(embeddings), desc="evaluate", unit="representation") as bar:
        for embedding in embeddings.values():
            start = time.perf_counter()
            space = embedding
            if protocol == "paper":
                space = umap_layout(embedding, n_neighbors, random_state)
            row = {"protocol": protocol, "silhouette": metrics.silhouette(embedding, labels)}
            row |= _clustering(space, labels, protocol, resolution, n_neighbors, random_state)
            row |= _mixing(space, labels, batches, protocol)
            rows.append(row | {"seconds": time.perf_counter() - start})
            bar.update()
    return pd.DataFrame(rows, index=pd.Index(list(embeddings), name="representation"))


def _labels(found: Transferred, known: NDArray[Any], labels_key: str, label_map: Mapping[Any, Any]) -> pd.DataFrame:
    """Compare transferred labels with known ones, through a mapping of names."""
    columns, own = {name: code for code, name in enumerate(found.names)}, pd.Categorical(known)
    meanings = _meanings(label_map, found.names)
    meant = np.zeros((len(own.categories), len(columns)), dtype=bool)
    for row, name in zip(meant, map(str, own.categories), strict=True):
        row[[columns[other] for other in meanings.get(name, [name]) if other in columns]] = True
    if not meant.any():
        raise InputError(
            f"adata.obs[{labels_key!r}] holds none of the reference's labels {found.names[:5]}: say which are meant "
            f"with label_map={{{said(str(own.categories[0]) if len(own.categories) else 'name')}: ...}}."
        )
    shared = np.asarray(meant.any(1))
    kept = (own.codes >= 0) & shared[own.codes]
    if (~kept & (own.codes >= 0)).any():
        others = [str(name) for name in own.categories[~shared]]
        _log.warn(
            f"{int((~kept & (own.codes >= 0)).sum())} cells have labels that the reference lacks and are left out, for "
            f"example {others[:5]}: name what they are called there with label_map=."
        )
    truth = (np.cumsum(shared) - 1)[own.codes[kept]]
    given = np.array([columns.get(name, -1) for name in found.label.astype(object)[kept]], dtype=np.intp)
    rows = label_scores_of(truth, meant[shared], given, found.sets[kept], found.confident[kept])
    index = pd.Index(["all cells", *map(str, own.categories[shared])], name=labels_key)
    return pd.DataFrame(rows, index=index)


def _meanings(label_map: Mapping[Any, Any], known: list[str]) -> dict[str, list[Any]]:
    """What every known label may be called in the reference."""
    meanings = {}
    for name, others in label_map.items():
        meanings[str(name)] = [others] if others is None or isinstance(others, str) else list(others)
        lacking = [other for other in meanings[str(name)] if other not in known]
        if lacking:
            raise InputError(
                f"label_map[{said(name)}] names {lacking[:5]}, which the reference lacks: choose among {known[:20]}."
            )
    return meanings


def _clustering(
    space: Floats,
    labels: NDArray[Any],
    protocol: Protocol,
    resolution: float,
    n_neighbors: int,
    random_state: int,
) -> dict[str, float]:
    """Compare labels with clusters: best resolution, fixed resolution, k-means."""
    sweep = metrics.leiden_sweep(
        space,
        labels,
        resolutions=(*metrics.PAPER_RESOLUTIONS, resolution),
        n_neighbors=n_neighbors,
        method="louvain" if protocol == "paper" else "leiden",
        random_state=random_state,
    )
    # The last row is the fixed resolution, which takes no part in the choice of the best.
    best = sweep.loc[sweep["ari"].iloc[:-1].idxmax()]
    clusters = kmeans(space, pd.Series(labels).nunique(), random_state=random_state)
    return {
        **{name: float(best[name]) for name in ("ari", "nmi", "nmi_max", "v_measure")},
        "best_resolution": float(best["resolution"]),
        "n_clusters": int(best["n_clusters"]),
        "ari_fixed": float(sweep["ari"].iloc[-1]),
        "kmeans_ari": metrics.ari(labels, clusters),
    }


def _mixing(space: Floats, labels: NDArray[Any], batches: NDArray[Any] | None, protocol: Protocol) -> dict[str, float]:
    """Count labels, and batches where given, around each cell."""
    paper = protocol == "paper"
    row = {"clisi": (metrics.lisi_neighbors if paper else metrics.clisi)(space, labels)}
    if batches is not None:
        row["ilisi"] = (metrics.lisi_neighbors if paper else metrics.ilisi)(space, batches)
    return row
