from __future__ import annotations

import argparse
from typing import Any

from dice.cli import _files
from dice.cli._options import add_checks, add_device, add_labels, read_checks

HELP = "test whether the cells of a query, or their clusters, could come from the reference"
EXAMPLES = """\
  dice novelty query.h5ad trained.h5ad -o tested.h5ad
  dice novelty clustered.h5ad trained.h5ad -o tested.h5ad --groupby dice_cluster --fdr 0.05"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    _files.add_input(parser, "query", "log-normalised cells to test")
    _files.add_input(parser, "reference", "reference with its prior, as dice train leaves it, or a prior alone")
    _files.add_output(parser, "the query with its novelty")
    parser.add_argument("--fdr", type=float, default=0.1, help="share of calls that may be wrong (default 0.1)")
    parser.add_argument("--groupby", metavar="COLUMN", help="column of the query's obs with clusters to test")
    add_labels(parser, "column of labels to group the reference by, or none (default: those of the prior)")
    add_checks(parser)
    parser.add_argument("--key-added", default="dice_novelty", help="key of the score (default dice_novelty)")
    add_device(parser)


def run(args: argparse.Namespace) -> dict[str, Any]:
    import dice

    output, query = _files.check_output(args.output), _files.read(args.query)
    labels = {None: "auto", "none": None}.get(args.labels, args.labels)
    options = {"fdr": args.fdr, "groupby": args.groupby, "labels_key": labels, "key_added": args.key_added}
    dice.tl.novelty(query, _files.read(args.reference), **options, **read_checks(args))
    _files.write(query, output)
    record = query.uns[args.key_added]
    said = {"output": str(output), "n_cells": query.n_obs, "n_novel": int(record["params"]["n_novel"])}
    groups = record.get("groups")
    if groups is not None:
        rows = zip(groups["group"], groups["n_cells"], groups["p"], groups["novel"], strict=True)
        said["groups"] = {
            str(name): f"{int(n):,} cells, p = {p:.3g}{', novel' if novel else ''}" for name, n, p, novel in rows
        }
    return said
