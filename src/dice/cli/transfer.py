from __future__ import annotations

import argparse
from typing import Any

from dice.cli import _files
from dice.cli._options import add_calibration, add_device, add_matrix, add_scheduler, add_seed

HELP = "give the cells of a query the labels of a reference, with probabilities and prediction sets"
EXAMPLES = """\
  dice transfer query.h5ad trained.h5ad -o labelled.h5ad --labels cell_type
  dice transfer query.zarr trained.zarr -o labelled.zarr --labels cell_type --alpha 0.05 --stream
  dice train ref.h5ad -o t.h5ad --labels type && dice transfer query.h5ad t.h5ad -o out.h5ad --labels type"""
#: Arguments that go to dice.tl.transfer_labels under their own name.
SAME = (
    "alpha", "method", "per_class", "weighted", "min_probability", "classifier", "representation", "rho", "n_samples",
    "calibrate", "batch_key", "gene_key", "min_gene_overlap", "layer", "key_added", "device",
)  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    _files.add_input(parser, "query", "log-normalised cells to label")
    _files.add_input(parser, "reference", "labelled cells with their prior, as dice train leaves them")
    _files.add_output(parser, "the query with its labels")
    parser.add_argument("--labels", required=True, metavar="COLUMN", help="column of the reference's obs with labels")
    parser.add_argument("--stream", action="store_true", help="read expression chunk by chunk instead of all at once")
    parser.add_argument("--alpha", type=float, default=0.1, help="share of sets that may miss the label (default 0.1)")
    parser.add_argument("--method", default="lac", help="lac, aps or raps")
    parser.add_argument("--per-class", action="store_true", help="calibrate every label on its own cells")
    parser.add_argument("--weighted", action="store_true", help="weigh calibration cells by their share in the query")
    parser.add_argument("--min-probability", type=float, default=0.5, help="less likely labels are unassigned")
    parser.add_argument("--classifier", default="auto", help="auto, knn or logistic")
    parser.add_argument("--representation", default="auto", help="auto, projection, denoised, samples or genes")
    parser.add_argument("--rho", type=float, default=0.0, help="how much the prior may move a cell (default 0)")
    parser.add_argument("--n-samples", type=int, default=10, help="posterior samples to average over (default 10)")
    parser.add_argument("--gene-key", help="column of var with gene names of the reference's kind")
    parser.add_argument("--min-gene-overlap", type=float, default=0.2, help="smallest share of the prior's genes")
    parser.add_argument("--key-added", help="key of the labels (default COLUMN_dice)")
    add_calibration(parser)
    add_matrix(parser)
    add_device(parser)
    add_seed(parser)
    add_scheduler(parser)


def run(args: argparse.Namespace) -> dict[str, Any]:
    import dice
    from dice._anndata.files import open_lazy

    output = _files.check_output(args.output)
    query, reference = map(open_lazy if args.stream else _files.read, (args.query, args.reference))
    options = {name: getattr(args, name) for name in SAME}
    dice.tl.transfer_labels(query, reference, args.labels, check=not args.no_check, random_state=args.seed, **options)
    _files.write(query, output)
    key = args.key_added or f"{args.labels}_dice"
    return {
        "output": str(output),
        "n_cells": query.n_obs,
        "labels": {str(name): int(count) for name, count in query.obs[key].value_counts().items()},
        "classifier": query.uns[key]["params"]["classifier"],
    }
