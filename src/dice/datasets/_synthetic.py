"""The paper's synthetic pairs of reference and query, with the true latents and loadings.

All cells follow the model x = V u + e. u is drawn from a mixture of k-dimensional clusters, and the noise e is
isotropic.
"""

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import pandas as pd
from anndata import AnnData

from dice._arguments import choice, seed
from dice._errors import InputError
from dice._types import Floats, Seed

N_LATENT = 15
NORMAL = np.inf  # degrees of freedom at which a t distribution is normal


@dataclass(frozen=True)
class _Cells:
    """Distribution of cells: equally likely clusters, and isotropic noise.

    A cluster is N(mean, variance I) or multivariate t with this mean and scale. For finite degrees of freedom, one
    chi-square variable per cell scales its latents, or the noise of all its genes.
    """

    names: tuple[str, ...]
    means: Floats
    variances: tuple[float, ...]
    dfs: tuple[float, ...]
    noise_variance: float
    noise_df: float = NORMAL


_NAMES, _CENTRES = ("Cluster 1", "Cluster 2"), np.stack([np.ones(N_LATENT), np.zeros(N_LATENT)])
_REFERENCE = _Cells(_NAMES, _CENTRES, (1.3, 1.5), (NORMAL, NORMAL), 1.0)
_QUERIES = {
    1: _REFERENCE,
    2: replace(_REFERENCE, noise_variance=10.0),
    3: replace(_REFERENCE, noise_df=4.0),
    4: _Cells(_NAMES, _CENTRES, (1.5, 1.3), (NORMAL, 4.0), 10.0),
}


def synthetic(
    setup: Literal[1, 2, 3, 4], *, n_reference: int = 1600, n_query: int = 400, random_state: Seed = 0
) -> tuple[AnnData, AnnData]:
    """Reference and query of the paper's synthetic Setups 1 to 4.

    Cells are x = V u + e with 2,000 genes and 15 latent dimensions. The reference has two equally likely clusters,
    N(1, 1.3 I) and N(0, 1.5 I), and noise of variance 1. The query differs from the reference as follows:

    - Setup 1: not at all;
    - Setup 2: noise of variance 10;
    - Setup 3: multivariate t noise with 4 degrees of freedom;
    - Setup 4: noise of variance 10, and clusters N(1, 1.5 I) and multivariate t at 0 with 4 degrees of freedom and
      scale 1.3 I.

    The same seed gives the same loadings and reference in all setups.

    Parameters
    ----------
    setup
        Number of the setup, 1 to 4.
    n_reference
        Number of reference cells.
    n_query
        Number of query cells.
    random_state
        Seed.

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
        raise InputError(f"`setup` must be 1, 2, 3 or 4, got {setup!r}.")
    random_state = seed(random_state)
    loadings = _streams(random_state)[0].standard_normal((2000, N_LATENT))
    return _pair(int(setup), random_state, loadings, (_REFERENCE, _QUERIES[setup]), (n_reference, n_query))


def mismatch(
    kind: Literal["fewer", "more"] = "fewer", *, n_reference: int = 8000, n_query: int = 2000, random_state: Seed = 0
) -> tuple[AnnData, AnnData]:
    """Reference and query whose clusters do not match, from the paper's study of rho.

    Cells are x = V u + e with 200 genes and 15 latent dimensions. The reference has five equally
    likely clusters of variance 0.3 around centres drawn from N(0, I), and noise of variance 0.5.
    The query has noise of variance 1. The same seed gives the same reference for both kinds.

    Parameters
    ----------
    kind
        ``"fewer"``: all query cells come from the reference's first cluster. ``"more"``: all query
        cells come from a sixth cluster, at least six standard deviations away from the reference's.
    n_reference
        Number of reference cells.
    n_query
        Number of query cells.
    random_state
        Seed.

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
    choice("kind", kind, ("fewer", "more"))
    random_state = seed(random_state)
    rng = _streams(random_state)[0]
    centres, loadings = rng.standard_normal((5, N_LATENT)), rng.standard_normal((200, N_LATENT))
    only, first = (centres[:1], 1) if kind == "fewer" else (_distant_centre(rng, centres)[None], 6)
    models = _clusters(centres, 1, 0.5), _clusters(only, first, 1.0)
    return _pair(kind, random_state, loadings, models, (n_reference, n_query))


def _streams(random_state: int) -> list[np.random.Generator]:
    """Return random generators for the model, the reference and the query."""
    return np.random.default_rng(random_state).spawn(3)


def _pair(
    setup: int | str, random_state: int, loadings: Floats, models: tuple[_Cells, _Cells], n_cells: tuple[int, int]
) -> tuple[AnnData, AnnData]:
    """Draw reference and query from their models."""
    if min(n_cells) < 1:
        raise InputError(f"`n_reference` and `n_query` must be at least 1, got {n_cells[0]} and {n_cells[1]}.")
    about, rngs = {"setup": setup, "random_state": random_state}, _streams(random_state)
    reference = _draw(rngs[1], n_cells[0], loadings, models[0], "ref", about)
    return reference, _draw(rngs[2], n_cells[1], loadings, models[1], "query", about)


def _clusters(centres: Floats, first: int, noise_variance: float) -> _Cells:
    n = len(centres)
    names = tuple(f"Cluster {first + i}" for i in range(n))
    return _Cells(names, centres, (0.3,) * n, (NORMAL,) * n, noise_variance)


def _distant_centre(rng: np.random.Generator, centres: Floats) -> Floats:
    """Return a random cluster centre outside of the reference's support, as in the paper."""
    while True:
        centre = rng.standard_normal(N_LATENT)
        if np.linalg.norm(centres - centre, axis=1).min() > 6 * np.sqrt(0.3):
            return centre


def _draw(rng: np.random.Generator, n_cells: int, loadings: Floats, cells: _Cells, prefix: str, about: Any) -> AnnData:
    """Draw cells. Each quantity has its own random numbers, so that setups with the same seed can be compared."""
    label_rng, latent_rng, noise_rng, heavy_latent_rng, heavy_noise_rng = rng.spawn(5)
    label = label_rng.integers(len(cells.names), size=n_cells)
    spread = np.sqrt(np.asarray(cells.variances)[label]) * _tails(heavy_latent_rng, np.asarray(cells.dfs)[label])
    latent = cells.means[label] + spread[:, None] * latent_rng.standard_normal((n_cells, N_LATENT))
    noise_sd = np.sqrt(cells.noise_variance) * _tails(heavy_noise_rng, np.full(n_cells, cells.noise_df))
    error = noise_sd[:, None] * noise_rng.standard_normal((n_cells, len(loadings)))
    obs = pd.DataFrame(
        {"cell_type": pd.Categorical.from_codes(label, cells.names), "noise_true": noise_sd},
        index=[f"{prefix}_{i}" for i in range(n_cells)],
    )
    constants = {name: np.array(value) if np.ndim(value) else value for name, value in vars(cells).items()}
    constants["clusters"] = constants.pop("names").astype(object)
    weights = np.full(len(cells.names), 1 / len(cells.names))
    return AnnData(
        X=(latent @ loadings.T + error).astype(np.float32),
        obs=obs,
        var=pd.DataFrame(index=[f"gene_{i:04}" for i in range(len(loadings))]),
        obsm={"U_true": latent},
        varm={"V_true": loadings.copy()},
        uns={"dice_synthetic": about | constants | {"weights": weights}},
    )


def _tails(rng: np.random.Generator, dfs: Floats) -> Floats:
    """Return the factor (n,) that turns a normal vector into a multivariate t vector; 1 for infinite df."""
    heavy = np.isfinite(dfs)
    df = np.where(heavy, dfs, 1.0)
    return np.where(heavy, np.sqrt(df / rng.chisquare(df)), 1.0)
