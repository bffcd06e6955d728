from __future__ import annotations

import argparse
from dataclasses import fields
from typing import Any

from dice.cli import _files
from dice.cli._options import add_device, add_scheduler, add_seed, add_training, number_or_word, read_training
from dice.options import Mixup

HELP = "learn a prior on a reference"
EXAMPLES = """\
  dice train reference.h5ad -o trained.h5ad --labels cell_type
  dice train reference.h5ad -o prior.h5ad --prior-only
  dice train atlas.zarr -o prior.h5ad --prior-only --stream     larger than memory"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    _files.add_input(parser, "reference", "log-normalised cells to learn from")
    _files.add_output(parser, "the reference with its prior")
    parser.add_argument("--prior-only", action="store_true", help="write the prior without its cells, as .h5ad")
    parser.add_argument("--stream", action="store_true", help="read chunk by chunk instead of all at once")
    parser.add_argument(
        "--labels", metavar="COLUMN", help="column of obs with labels, which the prior will give to queries"
    )
    parser.add_argument("--n-latent", type=number_or_word, default="auto", help="number of latents, elbow or auto")
    parser.add_argument("--preset", default="default", help="default, paper, paper-small or gmm")
    parser.add_argument("--mask-var", default="auto", help="boolean column of var with the genes to use")
    parser.add_argument("--no-scale", action="store_true", help="centre genes without dividing by their deviation")
    parser.add_argument("--use-rep", metavar="KEY", help="key of obsm with a PCA to use, X_pca for scanpy's")
    parser.add_argument(
        "--no-mixup",
        action="store_true",
        help="paper's presets: cells as they are, also with labels",
    )
    for item in fields(Mixup):
        text = f"{item.metadata['help']} (default: {item.default or 'that of the preset'})"
        parser.add_argument(f"--mixup-{item.name}", type=number_or_word, default=item.default, help=text)
    parser.add_argument("--key-added", default="dice", help="key of the prior (default dice)")
    parser.add_argument("--layer", help="layer to use in place of X")
    parser.add_argument("--counts-layer", help="layer with the raw counts beneath")
    parser.add_argument("--no-check", action="store_true", help="take the values as they are")
    add_training(parser)
    add_device(parser)
    add_seed(parser)
    add_scheduler(parser)


def run(args: argparse.Namespace) -> dict[str, Any]:
    import dice
    from dice._errors import InputError

    _files.check_apart(output=args.output, checkpoint=args.checkpoint)
    output = _files.check_output(args.output)
    if args.prior_only and output.suffix != ".h5ad":
        raise InputError("A prior without its cells is one .h5ad file: name the output accordingly.")
    adata = dice.read_lazy(args.reference) if args.stream else _files.read(args.reference)
    mixup = Mixup(**{item.name: getattr(args, f"mixup_{item.name}") for item in fields(Mixup)})
    dice.tl.train_prior(
        adata,
        mixup=None if args.no_mixup else "auto" if mixup == Mixup() else mixup,
        scale=not args.no_scale,
        use_rep=args.use_rep,
        key_added=args.key_added,
        labels_key=args.labels,
        n_latent=args.n_latent,
        preset=args.preset,
        mask_var=args.mask_var,
        layer=args.layer,
        counts_layer=args.counts_layer,
        training=read_training(args),
        check=not args.no_check,
        random_state=args.seed,
    )
    prior = dice.Prior.from_anndata(adata, key=args.key_added)
    if args.prior_only:
        prior.save(output)
    else:
        _files.write(adata, output)
    return {
        "output": str(output),
        "n_cells": adata.n_obs,
        "n_genes": len(prior.genes),
        "n_latent": prior.n_latent,
        "noise": prior.noise,
        "latent_scale": prior.latent_scale,
    }
