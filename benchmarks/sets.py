"""Coverage of prediction sets on random splits, and their size beside sets from plain PCA.

    python benchmarks/sets.py [--seeds 5]

A random fifth of at most 5,000 cells is the query; the prior is trained with labels on 2,000 genes of the others, a
fifth of which calibrates. "PCA" is the same procedure with logistic regression on the projection alone. Coverage is
the share of query cells whose set holds their label; its error combines query and calibration cells.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from data import FILES, hold_out, load, variable_genes
from report import repeat, save, summary

import dice
from dice._labels.cells import LabelCells
from dice._labels.classification import classify
from dice._labels.model import REPRESENTATIONS
from dice._labels.sets import adaptive_scores, label_p_values, with_most_likely
from dice._query.query import Query
from dice.options import Options

ALPHAS = (0.05, 0.1, 0.2)
MAX_CELLS, MAX_STEPS = 5000, 600


def main() -> None:
    repeat("coverage", FILES, run, show)


def show(rows: pd.DataFrame) -> None:
    measures = ["coverage", "within", "worst_class", "size"]
    tables = {
        f"alpha = {alpha:g}": summary(rows[rows["alpha"] == alpha], ["data", "classifier", "method"], measures)
        for alpha in ALPHAS
    }
    note = __doc__.split("\n\n")[2] + (
        ' "within" is the share of splits whose coverage is within two standard errors of 1 - alpha; "worst_class" the '
        "smallest coverage of a class with at least 20 query cells."
    )
    save("coverage", "Coverage of prediction sets", rows, tables, note)


def run(name: str, seed: int) -> list[dict[str, object]]:
    adata = load(FILES[name])
    adata.obs["cell_type"] = adata.obs["cell_type"].astype(str)
    adata = hold_out(adata, min(adata.n_obs, MAX_CELLS), seed)[1]
    adata = adata[adata.obs["cell_type"].map(adata.obs["cell_type"].value_counts()) >= 5]
    reference, query = hold_out(adata, adata.n_obs // 5, seed)
    reference = variable_genes(reference, 2000)
    query = query[:, reference.var_names].copy()
    dice.tl.train_prior(
        reference,
        labels_key="cell_type",
        training=dice.Training(max_steps=MAX_STEPS, calibration_fraction=0.2),
        random_state=seed,
    )
    prior = dice.Prior.from_anndata(reference)
    model = prior.labels
    asked = Query.of(query, prior, Options(rho=0.0, uncertainty=False, random_state=seed))
    cells = LabelCells.of(asked)
    truth = np.array([model.names.index(label) for label in query.obs["cell_type"]])
    rows = []
    for classifier, representation in (("DICE", "auto"), ("PCA", "projection")):
        # As measured: sets of random splits are conformal, and no view but this one calibrates them.
        found = classify(cells, model, dice.Classifier(representation), False)
        names = REPRESENTATIONS if representation == "auto" else (representation,)
        row = {"classifier": classifier}
        rows += judge(
            model.calibration_codes, found.measured, model.calibration(model.weights(names)), truth, seed, row
        )
    return rows


def judge(codes, probabilities, calibration, truth, seed: int, row: dict[str, object]) -> list[dict[str, object]]:
    rng = np.random.default_rng(seed)
    uniform = [rng.random(len(p)) for p in (probabilities, calibration)]
    rows = []
    for method, per_class in (("lac", False), ("aps", False), ("lac", True)):
        scores = [
            adaptive_scores(p, u) if method == "aps" else 1 - p
            for p, u in zip((probabilities, calibration), uniform, strict=True)
        ]
        p_values = label_p_values(*scores, codes, per_class=per_class)
        for alpha in ALPHAS:
            sets = with_most_likely(p_values > alpha, probabilities)
            inside = sets[np.arange(len(truth)), truth]
            error = np.sqrt(alpha * (1 - alpha) * (1 / len(truth) + 1 / len(codes)))
            classes = [inside[truth == c].mean() for c in np.unique(truth) if (truth == c).sum() >= 20]
            rows.append(
                row
                | {
                    "method": method + (" per class" if per_class else ""),
                    "alpha": alpha,
                    "coverage": inside.mean(),
                    "within": float(abs(inside.mean() - 1 + alpha) < 2 * error),
                    "worst_class": min(classes),
                    "size": sets.sum(1).mean(),
                    "n_query": len(truth),
                    "n_calibration": len(codes),
                }
            )
    return rows


if __name__ == "__main__":
    main()
