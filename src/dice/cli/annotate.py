from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from dice._files import check_target
from dice.cli import _files
from dice.cli._options import add_labels, add_query, add_training, read_query, read_training
from dice.cli._words import in_flags

HELP = "denoise, cluster and label a query with a reference: everything at once, from raw counts on"
EXAMPLES = """\
  dice annotate query.h5ad reference.h5ad -o annotated.h5ad --labels cell_type
  dice annotate query.h5ad reference.h5ad -o annotated.h5ad --labels cell_type --report report.html
  dice annotate query.h5ad reference.h5ad -o annotated.h5ad --labels cell_type --trained trained.h5ad"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    _files.add_input(parser, "query", "cells to annotate, raw counts or log-normalised")
    _files.add_input(parser, "reference", "reference, with or without a prior, or a prior alone")
    _files.add_output(parser, "the query with embedding, clusters, labels and novelty")
    add_labels(parser, "column of the reference's obs with labels (default: those of its prior, or none)")
    parser.add_argument("--alpha", type=float, default=0.1, help="share of sets that may miss the label (default 0.1)")
    parser.add_argument("--n-top-genes", type=int, default=3000, help="variable genes to learn from (default 3000)")
    parser.add_argument(
        "--reference-batch-key", default="auto", metavar="COLUMN",
        help="column of the reference's obs within which genes are ranked, auto or none (default auto)",
    )  # fmt: skip
    parser.add_argument("--report", type=Path, metavar="FILE", help="write a page about the result (.html)")
    parser.add_argument("--trained", type=Path, metavar="FILE", help="write the reference with its prior")
    add_training(parser)
    add_query(parser)


def run(args: argparse.Namespace) -> dict[str, Any]:
    import dice

    _files.check_apart(output=args.output, trained=args.trained, report=args.report, checkpoint=args.checkpoint)
    output = _files.check_output(args.output)
    trained = None if args.trained is None else _files.check_output(args.trained)
    if args.report is not None:
        check_target(args.report)
    query, reference = _files.read(args.query), _files.read(args.reference)
    batches = None if args.reference_batch_key == "none" else args.reference_batch_key
    dice.tl.annotate(
        query,
        reference,
        args.labels,
        alpha=args.alpha,
        n_top_genes=args.n_top_genes,
        batch_key=batches,
        training=read_training(args),
        report=args.report,
        **read_query(args),
    )
    _files.write(query, output)
    if trained is not None:
        _files.write(reference, trained)
    record = query.uns["dice_annotate"]
    written = [str(path) for path in (output, trained, args.report) if path is not None]
    text = in_flags(record["summary"], args)
    said = {"summary": text, "output": written} | record["params"]
    return said | {"text": f"{text}\nwritten   {', '.join(written)}"}
