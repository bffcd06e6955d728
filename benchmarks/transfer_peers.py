"""The pairs of transfer.py by other tools, each in an environment of its own (benchmarks/README.md).

    python benchmarks/transfer_peers.py --method celltypist|symphony|scanvi|... [--seeds 2] [--pairs ...]
    python benchmarks/transfer_peers.py --method celltypist --unseen --seeds 3
    python benchmarks/transfer_peers.py --method celltypist --panels --seeds 1

dice is not needed for the pairs. For `--unseen`, the sets of unseen.py, install it too, without its dependencies
(`pip install --no-deps .`): its loaders are used.

Every tool gets what it asks for: scANVI and popV raw counts, the others log-normalised expression; all of them the same
2,000 genes, cells and seeds as transfer.py and unseen.py, whose pages show the results of
docs/benchmarks/transfer_peers.csv and unseen_peers.csv.
"""

from __future__ import annotations

import argparse
import tempfile
import time
import warnings
from functools import partial
from importlib.metadata import version

import anndata as ad
import numpy as np
import pandas as pd
from peers import installed
from report import OUT, extend
from shifts import TRANSFER, transfer
from sklearn.metrics import f1_score


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--method", choices=list(METHODS), required=True)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--pairs", nargs="*", help="some of them (default: all)")
    parser.add_argument("--unseen", action="store_true", help="sets that nothing was tuned to in place of the pairs")
    parser.add_argument("--panels", action="store_true", help="queries of panels.py in place of the pairs")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    if not installed([arguments.method]):
        return
    title, package, classify = METHODS[arguments.method]
    label = title.format(version(package))
    if arguments.unseen:
        import unseen

        cells, names, file = unseen.labelled, list(unseen.SETS), "unseen_peers.csv"
    elif arguments.panels:
        import panels

        # celltypist refuses values of another target sum.
        cells = partial(panels.normalised, target_sum=1e4 if "celltypist" in arguments.method else None)
        names, file = panels.CASES, "panels_peers.csv"
    else:
        cells, names, file = transfer, list(TRANSFER), "transfer_peers.csv"

    def run(name: str, seed: int) -> dict[str, float]:
        reference, query, key = cells(name, seed)
        start = time.perf_counter()
        guess = classify(reference, query, key, seed)
        truth = query.obs[key].astype(str).to_numpy()
        return {
            "seconds": time.perf_counter() - start,
            "accuracy": (truth == guess).mean(),
            "macro_f1": f1_score(truth, guess, average="macro", labels=np.unique(truth), zero_division=0),
        }

    extend(OUT / file, label, arguments.pairs or names, arguments.seeds, run)


def by_celltypist(reference: ad.AnnData, query: ad.AnnData, key: str, seed: int, voting: bool = False) -> np.ndarray:
    """Its own defaults; with `voting`, the labels of its own clusters of the query."""
    import celltypist

    model = celltypist.train(reference, labels=key, check_expression=False, n_jobs=1)
    labels = celltypist.annotate(query, model=model, majority_voting=voting).predicted_labels
    return labels["majority_voting" if voting else "predicted_labels"].astype(str).to_numpy()


def by_singler(reference: ad.AnnData, query: ad.AnnData, key: str, seed: int, markers: str = "classic") -> np.ndarray:
    """SingleR by its Python port; it advises the markers "auc" for references of single cells."""
    import singler

    found = singler.annotate_single(
        query.X.sorted_indices().T,
        reference.X.sorted_indices().T,
        reference.obs[key].astype(str).tolist(),
        test_features=query.var_names.tolist(),
        ref_features=reference.var_names.tolist(),
        train_args={"marker_method": markers, "hint_sce": False},
    )
    return np.asarray(found.column("best")).astype(str)


def by_symphony(reference: ad.AnnData, query: ad.AnnData, key: str, seed: int) -> np.ndarray:
    """Harmony over the reference's batches, or over random halves of it, then mapping and neighbours."""
    import scanpy as sc
    import symphonypy as sp

    reference.obs["half"] = np.where(np.arange(reference.n_obs) % 2 == 0, "a", "b")
    batch = "batch" if len(set(reference.obs.get("batch", ()))) > 1 else "half"
    reference.var["highly_variable"] = True
    reference.var["mean"], reference.var["std"] = None, None
    sc.pp.scale(reference, zero_center=True, max_value=10)
    sc.pp.pca(reference, n_comps=min(30, reference.n_vars - 1), zero_center=False, random_state=seed)
    reference.obs[batch] = reference.obs[batch].astype(str)
    sp.pp.harmony_integrate(reference, key=batch, verbose=False)
    sp.tl.map_embedding(query, reference)
    sp.tl.transfer_labels_kNN(query, reference, [key], query_labels=["guess"])
    return query.obs["guess"].astype(str).to_numpy()


#: What scvi-tools asks for where a query is added later: without it, surgery unlearns what the reference taught
#: (Baron -> atlas, seed 0: accuracy .201; a random split of TEA-seq .010).
FOR_SURGERY = {
    "n_layers": 2, "encode_covariates": True, "dropout_rate": 0.2, "use_layer_norm": "both", "use_batch_norm": "none",
}  # fmt: skip


def by_scanvi(reference: ad.AnnData, query: ad.AnnData, key: str, seed: int) -> np.ndarray:
    """SCVI on the reference, scANVI on its labels, surgery for the query, each for its own default of epochs."""
    import scvi

    scvi.settings.seed = seed
    for adata in (reference, query):
        adata.X = adata.layers["counts"].copy()
        adata.obs["source"] = "reference" if adata is reference else "query"
    scvi.model.SCVI.setup_anndata(reference, batch_key="source", labels_key=key)
    silent = {"enable_progress_bar": False, "accelerator": "cpu"}
    base = scvi.model.SCVI(reference, n_latent=30, **FOR_SURGERY)
    base.train(**silent)
    model = scvi.model.SCANVI.from_scvi_model(base, unlabeled_category="unknown", labels_key=key)
    model.train(**silent)
    query.obs[key + "_true"], query.obs[key] = query.obs[key], "unknown"
    mapped = scvi.model.SCANVI.load_query_data(query, model)
    mapped.train(plan_kwargs={"weight_decay": 0.0}, **silent)
    guess = np.asarray(mapped.predict(query)).astype(str)
    query.obs[key] = query.obs.pop(key + "_true")
    return guess


def by_cellmapper(reference: ad.AnnData, query: ad.AnnData, key: str, seed: int) -> np.ndarray:
    """Its own defaults: a joint representation of both, 30 neighbours, its kernel."""
    from cellmapper import CellMapper

    # Cells of a panel may have no count at all, which it cannot map.
    seen = np.asarray(query.X.sum(1)).ravel() > 0
    guess = np.full(query.n_obs, reference.obs[key].mode()[0], dtype=object)
    some = query[seen].copy()
    CellMapper(some, reference[np.asarray(reference.X.sum(1)).ravel() > 0].copy()).map(
        obs_keys=key, prediction_postfix="_guess"
    )
    guess[seen] = some.obs[f"{key}_guess"].astype(str)
    return guess.astype(str)


def by_tangram(reference: ad.AnnData, query: ad.AnnData, key: str, seed: int) -> np.ndarray:
    """Mean cells of every label mapped to the query's cells, which is its way to map large data."""
    import tangram as tg

    tg.pp_adatas(reference, query, genes=None)
    mapped = tg.map_cells_to_space(
        reference, query, mode="clusters", cluster_label=key, device="cpu", random_state=seed, verbose=False
    )
    tg.project_cell_annotations(mapped, query, annotation=key)
    return query.obsm["tangram_ct_pred"].idxmax(1).astype(str).to_numpy()


def by_popv(reference: ad.AnnData, query: ad.AnnData, key: str, seed: int) -> np.ndarray:
    """Its own choice of classifiers, without the one that needs the Cell Ontology, whose names these labels lack."""
    import popv
    import scvi

    popv.settings.accelerator = "cpu"
    scvi.settings.seed = seed
    cells = []
    for side, adata in {"query": query, "reference": reference}.items():
        batches = adata.obs["batch"].astype(str).tolist() if "batch" in adata.obs else ["one"] * adata.n_obs
        obs = pd.DataFrame({"own_batch": batches}, index=[f"{side} {i}" for i in range(adata.n_obs)])
        cells.append(ad.AnnData(adata.layers["counts"].copy(), obs=obs, var=adata.var[[]]))
    cells[1].obs["label"] = reference.obs[key].astype(str).to_numpy()
    with tempfile.TemporaryDirectory() as folder:
        both = popv.preprocessing.Process_Query(
            *cells,
            ref_labels_key="label",
            ref_batch_key="own_batch",
            query_batch_key="own_batch",
            cl_obo_folder=False,
            save_path_trained_models=f"{folder}/",
        ).adata
        popv.annotation.annotate_data(both)
    # It leaves cells of fewer than 30 counts out.
    found = both.obs["popv_prediction"].astype(str).reindex(cells[0].obs_names)
    return found.fillna(reference.obs[key].mode()[0]).to_numpy()


#: Name in tables, with the version of a package, and what gives the labels.
METHODS = {
    "tangram": ("Tangram {}", "tangram-sc", by_tangram),
    "celltypist": ("celltypist {}", "celltypist", by_celltypist),
    "celltypist-voting": ("celltypist {}, majority voting", "celltypist", partial(by_celltypist, voting=True)),
    "popv": ("popV {}", "popv", by_popv),
    "symphony": ("symphonypy {}", "symphonypy", by_symphony),
    "cellmapper": ("CellMapper {}", "cellmapper", by_cellmapper),
    "scanvi": ("scANVI of scvi-tools {}", "scvi-tools", by_scanvi),
    "singler": ("SingleR of singler {}", "singler", by_singler),
    "singler-auc": ("SingleR of singler {}, markers by AUC", "singler", partial(by_singler, markers="auc")),
}

if __name__ == "__main__":
    main()
