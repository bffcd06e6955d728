"""The paper's synthetic pairs, with the truth that made them.

Everything follows one model: x = V u + e, u from a mixture of k-dimensional clusters, e isotropic.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import pandas as pd
from anndata import AnnData

from dice._arguments import seed
from dice._errors import InputError
from dice._types import Floats, Seed

N_LATENT = 15
NORMAL = np.inf  # degrees of freedom at which a t distribution is a normal one


@dataclass(frozen=True)
class _Mixture:
    """Equally likely clusters N(mean, variance I), or multivariate t with that scale."""

    names: tuple[str, ...]
    means: Floats
    variances: tuple[float, ...]
    dfs: tuple[float, ...]


@dataclass(frozen=True)
class _Noise:
    """Isotropic measurement noise; with finite df one chi-square per cell scales all its genes."""

    variance: float
    df: float = NORMAL


#: Loadings, and clusters and noise of reference and query.
_Model: TypeAlias = tuple[Floats, tuple[_Mixture, _Noise], tuple[_Mixture, _Noise]]
_ONE_AND_ZERO = np.stack([np.ones(N_LATENT), np.zeros(N_LATENT)])
_PRIOR = _Mixture(("Cluster 1", "Cluster 2"), _ONE_AND_ZERO, (1.3, 1.5), (NORMAL, NORMAL))
_SHIFTED_PRIOR = _Mixture(("Cluster 1", "Cluster 2"), _ONE_AND_ZERO, (1.5, 1.3), (NORMAL, 4.0))
_QUERIES = {
    1: (_PRIOR, _Noise(1.0)),
    2: (_PRIOR, _Noise(10.0)),
    3: (_PRIOR, _Noise(1.0, df=4.0)),
    4: (_SHIFTED_PRIOR, _Noise(10.0)),
}


def synthetic(
    setup: Literal[1, 2, 3, 4], *, random_state: Seed = 0, n_reference: int = 1600, n_query: int = 400
) -> tuple[AnnData, AnnData]:
    """Reference and query of the paper's synthetic Setups 1 to 4.

    Cells are x = V u + e with 2,000 genes and 15 latent dimensions. The reference has clusters
    N(1, 1.3 I) and N(0, 1.5 I), equally likely, and noise of variance 1. The query differs by
    setup: 1 not at all; 2 noise of variance 10; 3 multivariate t noise with 4 degrees of freedom;
    4 clusters N(1, 1.5 I) and multivariate t with 4 degrees of freedom and scale 1.3 I at 0, and
    noise of variance 10. The same seed gives the same loadings and reference in all setups.

    Parameters
    ----------
    setup
        Number of the setup, 1 to 4.
    random_state
        Seed.
    n_reference
        Number of reference cells.
    n_query
        Number of query cells.

    Returns
    -------
    Reference and query, each with

    - ``X`` (cells, 2000) dense float32,
    - ``obs["cell_type"]`` categorical, ``"Cluster 1"`` for the cluster at 1, ``"Cluster 2"`` at 0,
    - ``obs["noise_true"]`` standard deviation of the cell's noise,
    - ``obsm["U_true"]`` (cells, 15) and ``varm["V_true"]`` (2000, 15), the truth,
    - ``uns["dice_synthetic"]`` the constants: ``setup``, ``random_state``, ``clusters``,
      ``weights``, ``means``, ``variances`` and ``dfs`` (infinite for a Gaussian) of the clusters,
      ``noise_variance`` and ``noise_df``.

    Examples
    --------
    >>> import dice
    >>> reference, query = dice.datasets.synthetic(2)
    >>> reference.shape, query.shape
    ((1600, 2000), (400, 2000))
    """
    if setup not in _QUERIES:
        raise InputError(f"setup={setup!r} does not exist: use 1, 2, 3 or 4.")

    def model(rng: np.random.Generator) -> _Model:
        return rng.standard_normal((2000, N_LATENT)), (_PRIOR, _Noise(1.0)), _QUERIES[setup]

    return _pair(int(setup), model, random_state, n_reference, n_query)


def mismatch(
    kind: Literal["fewer", "more"] = "fewer", *, random_state: Seed = 0, n_reference: int = 8000, n_query: int = 2000
) -> tuple[AnnData, AnnData]:
    """Reference and query whose clusters do not match, from the paper's study of rho.

    Cells are x = V u + e with 200 genes and 15 latent dimensions. The reference has five equally
    likely clusters of variance 0.3 around centres drawn from N(0, I), and noise of variance 0.5.
    The query has noise of variance 1. The same seed gives the same reference for both kinds.

    Parameters
    ----------
    kind
        ``"fewer"``: all query cells come from the reference's first cluster. ``"more"``: all come
        from a sixth cluster that the reference lacks, at least six standard deviations away.
    random_state
        Seed.
    n_reference
        Number of reference cells.
    n_query
        Number of query cells.

    Returns
    -------
    Reference and query with the slots of :func:`synthetic`; ``setup`` in ``uns`` is the kind.

    Examples
    --------
    >>> import dice
    >>> reference, query = dice.datasets.mismatch("more", n_reference=100, n_query=50)
    >>> query.obs["cell_type"].unique().tolist()
    ['Cluster 6']
    """
    if kind not in ("fewer", "more"):
        raise InputError(f"kind={kind!r} does not exist: use 'fewer' or 'more'.")

    def model(rng: np.random.Generator) -> _Model:
        centres, loadings = rng.standard_normal((5, N_LATENT)), rng.standard_normal((200, N_LATENT))
        only = _clusters(centres[:1], 1) if kind == "fewer" else _clusters(_distant_centre(rng, centres)[None], 6)
        return loadings, (_clusters(centres, 1), _Noise(0.5)), (only, _Noise(1.0))

    return _pair(kind, model, random_state, n_reference, n_query)


def _pair(
    setup: int | str, model: Callable[[np.random.Generator], _Model], random_state: Seed, n_reference: int, n_query: int
) -> tuple[AnnData, AnnData]:
    """Draw a model, then reference and query from it, each from a stream of its own."""
    if min(n_reference, n_query) < 1:
        raise InputError(f"n_reference={n_reference} and n_query={n_query} must both be 1 or more: raise them.")
    random_state = seed(random_state)
    about = {"setup": setup, "random_state": random_state}
    model_rng, reference_rng, query_rng = np.random.default_rng(random_state).spawn(3)
    loadings, reference, query = model(model_rng)
    return (
        _draw(reference_rng, n_reference, loadings, *reference, "ref", about),
        _draw(query_rng, n_query, loadings, *query, "query", about),
    )


def _clusters(centres: Floats, first: int) -> _Mixture:
    names = tuple(f"Cluster {first + i}" for i in range(len(centres)))
    return _Mixture(names, centres, (0.3,) * len(centres), (NORMAL,) * len(centres))


def _distant_centre(rng: np.random.Generator, centres: Floats) -> Floats:
    """Draw a centre outside of the reference's support; the paper demands it, so redraw."""
    while True:
        centre = rng.standard_normal(N_LATENT)
        if np.linalg.norm(centres - centre, axis=1).min() > 6 * np.sqrt(0.3):
            return centre


def _draw(
    rng: np.random.Generator, n_cells: int, loadings: Floats, mixture: _Mixture, noise: _Noise, prefix: str, about: Any
) -> AnnData:
    """Draw cells. Each quantity has its own stream, so that setups with one seed can be paired."""
    label_rng, latent_rng, noise_rng, heavy_latent_rng, heavy_noise_rng = rng.spawn(5)
    label = label_rng.integers(len(mixture.names), size=n_cells)
    spread = np.sqrt(np.asarray(mixture.variances)[label])
    spread = spread * _tails(heavy_latent_rng, np.asarray(mixture.dfs)[label])
    latent = latent_rng.standard_normal((n_cells, N_LATENT))
    latent = mixture.means[label] + spread[:, None] * latent
    noise_sd = np.sqrt(noise.variance) * _tails(heavy_noise_rng, np.full(n_cells, noise.df))
    error = noise_sd[:, None] * noise_rng.standard_normal((n_cells, len(loadings)))
    obs = pd.DataFrame(
        {"cell_type": pd.Categorical.from_codes(label, mixture.names), "noise_true": noise_sd},
        index=[f"{prefix}_{i}" for i in range(n_cells)],
    )
    return AnnData(
        X=(latent @ loadings.T + error).astype(np.float32),
        obs=obs,
        var=pd.DataFrame(index=[f"gene_{i:04}" for i in range(len(loadings))]),
        obsm={"U_true": latent},
        varm={"V_true": loadings.copy()},
        uns={"dice_synthetic": about | _constants(mixture, noise)},
    )


def _tails(rng: np.random.Generator, dfs: Floats) -> Floats:
    """Scale that turns a normal vector into a multivariate t one, per cell; 1 for infinite df."""
    heavy = np.isfinite(dfs)
    df = np.where(heavy, dfs, 1.0)
    return np.where(heavy, np.sqrt(df / rng.chisquare(df)), 1.0)


def _constants(mixture: _Mixture, noise: _Noise) -> dict[str, Any]:
    n_clusters = len(mixture.names)
    return {
        "clusters": np.asarray(mixture.names, dtype=object),
        "weights": np.full(n_clusters, 1 / n_clusters),
        "means": mixture.means.copy(),
        "variances": np.asarray(mixture.variances),
        "dfs": np.asarray(mixture.dfs),
        "noise_variance": noise.variance,
        "noise_df": noise.df,
    }
