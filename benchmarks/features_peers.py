"""The pairs of features.py by totalVI, in an environment of its own; dice is not needed.

    python -m venv peers && peers/bin/pip install scvi-tools
    python benchmarks/features_peers.py [--seeds 1] [--pairs ...]

totalVI sees the counts of all cells, and the proteins of the reference alone: the query is a batch whose proteins are
all zero, which is how totalVI is told that they were not measured. What it expects of them, under the batch of the
reference, is normalised as the measured ones are. It gives no intervals, and trains for its own default of epochs (400,
or fewer if the loss stops falling). features.py shows what is in docs/benchmarks/features_peers.csv.
"""

from __future__ import annotations

import argparse
import time
import warnings
from importlib.metadata import version

import anndata as ad
import numpy as np
import pandas as pd
from peers import installed
from proteins import PAIRS, clr, correlations, proteins
from report import OUT, extend


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--pairs", nargs="*", default=list(PAIRS))
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    if not installed(["totalVI"]):
        return
    label = f"totalVI of scvi-tools {version('scvi-tools')}"

    def run(name: str, seed: int) -> dict[str, float]:
        reference, query = proteins(name, seed)
        start = time.perf_counter()
        found = by_totalvi(reference, query, seed)
        seconds = time.perf_counter() - start
        correlation = float(np.nanmedian(correlations(found, query.obsm["protein_clr"].to_numpy())))
        return {"correlation": correlation, "seconds": seconds}

    extend(OUT / "features_peers.csv", label, arguments.pairs, arguments.seeds, run)


def by_totalvi(reference: ad.AnnData, query: ad.AnnData, seed: int) -> np.ndarray:
    """Expected proteins (n, F) of the query's cells, normalised."""
    import scvi

    scvi.settings.seed = seed
    cells = ad.concat({"reference": reference, "query": query}, label="origin", index_unique="-")
    cells.X = cells.layers["counts"].copy()
    measured = np.asarray(cells.obsm["protein"], dtype=np.float32)
    measured[cells.obs["origin"] == "query"] = 0
    cells.obsm["protein"] = pd.DataFrame(measured, cells.obs_names, [str(i) for i in range(measured.shape[1])])
    scvi.model.TOTALVI.setup_anndata(cells, batch_key="origin", protein_expression_obsm_key="protein")
    model = scvi.model.TOTALVI(cells)
    model.train(accelerator="cpu", enable_progress_bar=False)
    _, expected = model.get_normalized_expression(
        indices=np.flatnonzero(cells.obs["origin"] == "query"), n_samples=10, transform_batch="reference",
        include_protein_background=True, return_mean=True,
    )  # fmt: skip
    return clr(np.asarray(expected))


if __name__ == "__main__":
    main()
