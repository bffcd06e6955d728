from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from dice.cli import _files
from dice.cli._options import add_posterior, add_query, add_scheduler, read_posterior, read_query

HELP = "denoise a query with the prior of a reference"
EXAMPLES = """\
  dice denoise query.h5ad trained.h5ad -o denoised.h5ad
  dice denoise query.zarr prior.h5ad -o denoised.zarr     chunk by chunk; if killed, run it again to go on
  dice denoise query.h5ad prior.h5ad -o denoised.h5ad --rho 5,0.5 --method gibbs --n-samples 20"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    _files.add_input(parser, "query", "log-normalised cells to denoise")
    _files.add_input(parser, "reference", "reference with a prior, or a prior alone")
    _files.add_output(parser, "the query with its embedding; .zarr is written chunk by chunk and resumed if killed")
    add_posterior(parser)
    add_query(parser)
    parser.add_argument("--key-added", default="X_dice", help="key of the embedding (default X_dice)")
    parser.add_argument("--chunk-size", type=int, metavar="CELLS", help="cells to work on at once")
    parser.add_argument("--no-x", action="store_true", help="leave X and layers out of a .zarr output")
    add_scheduler(parser)


def run(args: argparse.Namespace) -> dict[str, Any]:
    import dice

    output = _files.check_output(args.output)
    options = {**read_posterior(args), **read_query(args), "key_added": args.key_added}
    options["counts_layer"] = args.counts_layer
    if output.suffix == ".zarr":
        more = {"copy_x": not args.no_x, "overwrite": True, "chunk_size": args.chunk_size}
        dice.tl.denoise_to_zarr(args.query, args.reference, output, **more, **options)
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
