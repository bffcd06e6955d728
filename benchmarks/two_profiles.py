"""The depth from which `dice.tl.cluster` tells two close profiles apart.

    python benchmarks/two_profiles.py [--seeds 4] [--data 1.5 2 2.5]

Two profiles of 500 genes differ in 20 genes by a factor of two. 1,500 cells are drawn from them. Their depth is a
multiple of the depth at which the exact classifier, a likelihood ratio that knows both profiles, is right for 95 % of
the cells. ``found`` is 1 if there are two clusters, ``separation`` is that of the last merge (clusters need 3.46), and
``exact`` that of the exact classifier.
"""

from __future__ import annotations

import anndata as ad
import numpy as np
import pandas as pd
from report import publish, repeat
from scipy import sparse

import dice

N_GENES, N_DIFFERENT, N_CELLS = 500, 20, 1_500
TIMES = ("1.5", "2", "2.5", "3")


def main() -> None:
    show(repeat("two_profiles", TIMES, run, show))


def show(rows: pd.DataFrame) -> None:
    publish("two_profiles", rows.assign(method="DICE"), by=["method"], title="Two close profiles", note=NOTE)


def two_profiles(rng: np.random.Generator) -> np.ndarray:
    """Shares (2, N_GENES) of the counts. Half of the different genes are higher in the second profile."""
    profiles = np.tile(rng.gamma(0.3, size=N_GENES) + 1e-3, (2, 1))
    different = rng.choice(N_GENES, N_DIFFERENT, replace=False)
    profiles[1, different] *= np.repeat([2, 0.5], N_DIFFERENT // 2)
    return profiles / profiles.sum(1, keepdims=True)


def log_ratio(counts: np.ndarray, profiles: np.ndarray) -> np.ndarray:
    """The score of the exact classifier for cells of the same expected depth: above 0 for the second profile."""
    return counts @ np.log(profiles[1] / profiles[0])


def depth_for(share: float, profiles: np.ndarray) -> float:
    """The depth at which the exact classifier is right for a share of the cells, by bisection."""
    low, high = 10.0, 1e5
    for _ in range(25):
        middle, rng = float(np.sqrt(low * high)), np.random.default_rng(1)
        scores = [log_ratio(rng.poisson(middle * profile, size=(4_000, N_GENES)), profiles) for profile in profiles]
        right = np.mean([(scores[0] < 0).mean(), (scores[1] > 0).mean()])
        low, high = (middle, high) if right < share else (low, middle)
    return middle


def run(times: str, seed: int) -> list[dict[str, float]]:
    rng = np.random.default_rng(seed)
    profiles = two_profiles(rng)
    second = rng.random(N_CELLS) < 0.5
    counts = rng.poisson(float(times) * depth_for(0.95, profiles) * profiles[second.astype(int)])
    cells = ad.AnnData(sparse.csr_matrix(counts.astype(np.float32)))
    cells.obs_names = [f"cell {i}" for i in range(N_CELLS)]
    dice.tl.cluster(cells, random_state=seed)
    scores = log_ratio(counts, profiles)
    spread = np.sqrt((scores[second].var() + scores[~second].var()) / 2)
    row = {
        "found": float(cells.obs["dice_cluster"].nunique() == 2),
        "separation": float(cells.uns["dice_cluster"]["tree"]["separation"][-1]),
        "exact": float((scores[second].mean() - scores[~second].mean()) / spread),
    }
    print(times, seed, row, flush=True)
    return [row]


NOTE = "\n\n".join(__doc__.strip().split("\n\n")[2:])

if __name__ == "__main__":
    main()
