from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from dice._errors import InputError
from dice.cli import _files
from dice.cli._options import add_fields, add_query, add_scheduler, read_fields, read_query
from dice.options import Classifier, Sets

HELP = "give the cells of a query the labels of a reference, with probabilities and prediction sets"
EXAMPLES = """\
  dice transfer query.h5ad trained.h5ad -o labelled.h5ad --labels cell_type
  dice transfer query.zarr trained.zarr -o labelled.zarr --labels cell_type --alpha 0.05 --stream
  dice transfer query.h5ad trained.h5ad -o with_proteins.h5ad --features protein
  dice train ref.h5ad -o prior.h5ad --prior-only --labels type && dice transfer query.h5ad prior.h5ad -o out.h5ad"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    _files.add_input(parser, "query", "log-normalised cells to label")
    _files.add_input(
        parser, "reference", "labelled cells with their prior, as dice train leaves them, or the prior alone"
    )
    _files.add_output(parser, "the query with its labels")
    parser.add_argument(
        "--labels", metavar="COLUMN", help="column of labels (default: those the prior was trained with)"
    )
    parser.add_argument(
        "--features", metavar="KEY", help="predict these features of the reference (obsm, obs, layer:NAME), not labels"
    )
    parser.add_argument("--stream", action="store_true", help="read expression chunk by chunk instead of all at once")
    parser.add_argument("--groupby", metavar="COLUMN", help="column of the query's obs with clusters that vote")
    parser.add_argument("--alpha", type=float, default=0.1, help="share of sets that may miss the label (default 0.1)")
    add_fields(parser, Classifier)
    add_fields(parser, Sets)
    add_query(parser)
    parser.add_argument("--key-added", help="key of the labels (default COLUMN_dice)")
    add_scheduler(parser)


def run(args: argparse.Namespace) -> dict[str, Any]:
    import dice

    output = _files.check_output(args.output)
    query, reference = map(dice.read_lazy if args.stream else _files.read, (args.query, args.reference))
    if args.features is not None:
        return _features(args, query, reference, output)
    dice.tl.transfer_labels(
        query,
        reference,
        args.labels,
        alpha=args.alpha,
        groupby=args.groupby,
        sets=read_fields(args, Sets),
        classifier=read_fields(args, Classifier),
        key_added=args.key_added,
        **read_query(args),
    )
    _files.write(query, output)
    named = args.labels or dice.Prior.from_anndata(reference, key=args.prior_key).params.get("labels_key")
    key = args.key_added or f"{named}_dice"
    return {
        "output": str(output),
        "n_cells": query.n_obs,
        "labels": _counts(query.obs[key]),
        "status": _counts(query.obs[f"{key}_status"]),
        "views": ", ".join(str(name) for name in query.uns[key]["views"]["view"]),
    }


def _features(args: argparse.Namespace, query: Any, reference: Any, output: Any) -> dict[str, Any]:
    """The same for numbers: they have intervals, and neither clusters nor classifiers."""
    import dice

    if args.labels or args.groupby:
        raise InputError("Features have neither labels nor clusters that vote: leave --labels and --groupby out.")
    options = read_query(args)
    dice.tl.transfer_features(query, reference, args.features, alpha=args.alpha, key_added=args.key_added, **options)
    _files.write(query, output)
    records = [entry for entry in query.uns.values() if isinstance(entry, Mapping) and "features" in entry]
    table = next(entry["features"] for entry in records if entry["call"]["key"] == args.features)
    return {
        "output": str(output),
        "n_cells": query.n_obs,
        "features": len(table["name"]),
        "useless": [str(name) for name, useless in zip(table["name"], table["useless"], strict=True) if useless],
    }


def _counts(column: Any) -> dict[str, int]:
    """How many cells have each value."""
    return {str(name): int(count) for name, count in column.value_counts().items()}
