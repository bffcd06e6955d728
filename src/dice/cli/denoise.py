from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from dice.cli import _files
from dice.cli._options import add_calibration, add_device, add_matrix, add_scheduler, add_seed, noise, rho

HELP = "denoise a query with the prior of a reference"
EXAMPLES = """\
  dice denoise query.h5ad trained.h5ad -o denoised.h5ad
  dice denoise query.zarr prior.h5ad -o denoised.zarr     chunk by chunk; if killed, run it again to go on
  dice denoise query.h5ad prior.h5ad -o denoised.h5ad --rho 5,0.5 --method gibbs --n-samples 20"""
#: Arguments that go to dice.tl.denoise under their own name.
SAME = (
    "rho", "method", "n_samples", "likelihood", "noise", "deconvolve", "calibrate", "batch_key", "gene_key",
    "min_gene_overlap", "layer", "key_added", "chunk_size", "device",
)  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    _files.add_input(parser, "query", "log-normalised cells to denoise")
    _files.add_input(parser, "reference", "reference with a prior, or a prior alone")
    _files.add_output(parser, "the query with its embedding; .zarr is written chunk by chunk and resumed if killed")
    parser.add_argument("--rho", type=rho, help="how much the prior may move a cell: a number, START,END, or auto")
    parser.add_argument("--method", default="auto", help="auto, direct or gibbs")
    parser.add_argument("--n-samples", type=int, default=0, help="posterior samples of each cell to keep")
    parser.add_argument("--likelihood", default="gaussian", help="gaussian, student_t or student_t_genes")
    parser.add_argument("--noise", type=noise, default="estimate", help="estimate, per_cell, per_gene or a number")
    parser.add_argument("--deconvolve", action="store_true", help="denoise beyond the reference's own noise")
    parser.add_argument("--no-uncertainty", action="store_true", help="mean alone, one evaluation per cell")
    parser.add_argument("--gene-key", help="column of var with gene names of the reference's kind")
    parser.add_argument("--min-gene-overlap", type=float, default=0.2, help="smallest share of the prior's genes")
    parser.add_argument("--key-added", default="X_dice", help="key of the embedding (default X_dice)")
    parser.add_argument("--chunk-size", type=int, metavar="CELLS", help="cells to work on at once")
    parser.add_argument("--no-x", action="store_true", help="leave X and layers out of a .zarr output")
    add_calibration(parser)
    add_matrix(parser)
    add_device(parser)
    add_seed(parser)
    add_scheduler(parser)


def run(args: argparse.Namespace) -> dict[str, Any]:
    import dice

    output = _files.check_output(args.output)
    options = {name: getattr(args, name) for name in SAME}
    options |= {"uncertainty": not args.no_uncertainty, "check": not args.no_check, "random_state": args.seed}
    if output.suffix == ".zarr":
        dice.tl.denoise_to_zarr(args.query, args.reference, output, copy_x=not args.no_x, overwrite=True, **options)
        record = _stored_record(output, args.key_added)
    else:
        adata = _files.read(args.query)
        dice.tl.denoise(adata, args.reference, **options)
        _files.write(adata, output)
        record = adata.uns[args.key_added]
    names = ("method", "noise", "rho")
    return {
        "output": str(output),
        "genes": str(record["genes"]["text"]),
        **{name: record["params"][name] for name in names},
    }


def _stored_record(path: Path, key: str) -> Any:
    import zarr
    from anndata.io import read_elem

    return read_elem(zarr.open_group(path, mode="r")[f"uns/{key}"])
