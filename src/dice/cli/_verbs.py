"""The commands. Each command reads files, calls one verb, writes files and returns a summary.

The docstring of a command is its help.
"""

import argparse
import json
from collections.abc import Mapping
from operator import attrgetter
from pathlib import Path
from typing import Any

import dice
from dice._errors import InputError
from dice._files import atomic
from dice.cli._flags import VERBS, in_flags, read_flags

Result = dict[str, Any]


def call(args: argparse.Namespace, *positional: Any, **more: Any) -> Any:
    """Call the verb of the command with the values of the flags."""
    verb = VERBS[args.command]
    return attrgetter(verb)(dice)(*positional, **read_flags(args, verb) | more)


def applied(args: argparse.Namespace, *more: Any) -> Any:
    """Read the cells of the command, call its verb on them, and return them."""
    cells = read(args.adata, args)
    call(args, cells, *more)
    return cells


def read(path: str | Path, args: argparse.Namespace | None = None) -> Any:
    """Read the cells of a file, or open it chunk by chunk with ``--stream``."""
    from dice._data import files  # Loads anndata, which help pages do without.

    return files.read_lazy(path) if getattr(args, "stream", False) else files.read(path)


def read_reference(path: str, args: argparse.Namespace | None = None) -> Any:
    """Read a reference with its cells, or a prior from a file or by name."""
    if dice.priors.is_name(path):
        return dice.priors.load(path)
    cells = read(path, args)
    return cells if cells.n_obs else dice.Prior.from_anndata(cells, key=getattr(args, "prior_key", "dice"))


def write(cells: Any, path: Path) -> None:
    """Write the cells to a file."""
    from dice._data import files

    files.write_file(cells, path)


def _written(cells: Any, args: argparse.Namespace, **found: Any) -> Result:
    """Write the cells, and summarize the command."""
    write(cells, args.output)
    return {"output": str(args.output), "n_cells": cells.n_obs, **found}


def annotate(args: argparse.Namespace) -> Result:
    """Denoise, cluster and label a query with a reference in one call.

    dice annotate query.h5ad reference.h5ad -o annotated.h5ad --labels cell_type --report report.html
    dice annotate query.h5ad reference.h5ad -o annotated.h5ad --labels cell_type --trained trained.h5ad
    dice annotate query.h5ad reference.h5ad pancreas -o annotated.h5ad --labels cell_type     several references
    """
    references = [read_reference(path) for path in args.reference]
    reference = references[0] if len(references) == 1 else references
    if args.trained is not None and not hasattr(reference, "obs"):
        raise InputError("An output --trained needs a single reference with its cells: leave --trained out.")
    query = applied(args, reference)
    write(query, args.output)
    if args.trained is not None:
        write(references[0], args.trained)
    record = query.uns["dice_annotate"]
    written = [str(path) for path in (args.output, args.trained, args.report) if path is not None]
    text = in_flags(record["summary"])
    found = {"summary": text, "output": written} | record["params"]
    return found | {"text": f"{text}\nwritten   {', '.join(written)}"}


def prepare(args: argparse.Namespace) -> Result:
    """Filter, normalise and log raw counts and mark variable genes: the paper's recipe.

    dice prepare raw.h5ad -o cells.h5ad
    dice prepare raw.zarr -o cells.h5ad --batch-key donor --n-top-genes 2000
    """
    cells = applied(args)
    return _written(cells, args, n_genes=cells.n_vars, kept=cells.uns["dice_prepare"]["n_cells"])


def train(args: argparse.Namespace) -> Result:
    """Learn PCA loadings and a denoiser on a reference.

    dice train reference.h5ad -o trained.h5ad --labels cell_type
    dice train reference.h5ad -o prior.h5ad --prior-only
    dice train atlas.zarr -o prior.h5ad --prior-only --stream     larger than memory
    """
    if args.prior_only and args.output.suffix != ".h5ad":
        raise InputError("A prior without its cells is stored as .h5ad: pass an output that ends in .h5ad.")
    cells = applied(args)
    prior = dice.Prior.from_anndata(cells, key=args.key_added)
    found = {"n_genes": len(prior.genes), "n_latent": prior.n_latent, "noise": prior.projection.noise}
    if not args.prior_only:
        return _written(cells, args, **found)
    prior.save(args.output)
    return {"output": str(args.output), "n_cells": cells.n_obs, **found}


def denoise(args: argparse.Namespace) -> Result:
    """Denoise a query with the prior of a reference.

    dice denoise query.h5ad trained.h5ad -o denoised.h5ad
    dice denoise query.zarr prior.h5ad -o denoised.zarr --stream     larger than memory
    dice denoise query.h5ad prior.h5ad -o denoised.h5ad --rho 5,0.5 --method gibbs --n-samples 20
    """
    query = applied(args, args.reference)
    record = query.uns[args.key_added]
    found = {name: record["params"][name] for name in ("method", "noise", "rho")}
    return _written(query, args, genes=str(record["genes"]["text"]), **found)


def cluster(args: argparse.Namespace) -> Result:
    """Find clusters that a second measurement of the same cells would tell apart, as a tree.

    dice cluster denoised.h5ad trained.h5ad -o clustered.h5ad
    dice cluster trained.h5ad -o clustered.h5ad     a data set with its own prior
    """
    query = applied(args, args.reference)
    why = query.uns[args.key_added]["choice"]["why"]
    return _written(query, args, why=why, clusters=_counts(query.obs[args.key_added]))


def transfer(args: argparse.Namespace) -> Result:
    """Label every query cell, with a probability and a set that holds the true label with probability 1 - alpha.

    dice transfer query.h5ad trained.h5ad -o labelled.h5ad --labels cell_type
    dice transfer query.zarr trained.zarr -o labelled.zarr --labels class --labels cell_type --alpha 0.05 --stream
    """
    from dice._data.store import find_prior  # Loads torch.

    reference = read_reference(args.reference, args)
    query = applied(args, reference)
    stored = find_prior(reference, key=args.prior_key).params.get("labels_key")
    key = args.key_added or f"{args.labels_key[-1] if args.labels_key else stored}_dice"
    ends = {"labels": "", "status": "_status", "safe labels": "_safe"}
    found = {name: _counts(query.obs[f"{key}{end}"]) for name, end in ends.items()}
    return _written(query, args, views=", ".join(map(str, query.uns[key]["views"]["view"])), **found)


def features(args: argparse.Namespace) -> Result:
    """Predict features of every query cell, with intervals that hold the true value with probability 1 - alpha.

    dice features query.h5ad trained.h5ad -o with_proteins.h5ad --features protein
    """
    query = applied(args, read_reference(args.reference, args))
    records = [entry for entry in query.uns.values() if isinstance(entry, Mapping) and "features" in entry]
    table = next(entry["features"] for entry in records if entry["call"]["features_key"] == args.features_key)
    useless = [str(name) for name, flag in zip(table["name"], table["useless"], strict=True) if flag]
    return _written(query, args, features=len(table["name"]), useless=useless)


def novelty(args: argparse.Namespace) -> Result:
    """Test for every cell whether it could come from the reference.

    dice novelty query.h5ad trained.h5ad -o tested.h5ad
    dice novelty clustered.h5ad trained.h5ad -o tested.h5ad --groupby dice_cluster --alpha 0.05
    """
    query = applied(args, read_reference(args.reference))
    record, found = query.uns[args.key_added], {}
    if (groups := record.get("groups")) is not None:
        rows = zip(groups["group"], groups["n_cells"], groups["p"], groups["novel"], strict=True)
        found["groups"] = {
            str(name): f"{int(n):,} cells, p = {p:.3g}{', novel' if novel else ''}" for name, n, p, novel in rows
        }
    return _written(query, args, n_novel=int(record["params"]["n_novel"]), **found)


def evaluate(args: argparse.Namespace) -> Result:
    """Score representations of cells, or transferred labels, against known labels. Nothing is written.

    dice evaluate denoised.h5ad --labels cell_type --use-rep X_pca X_dice --table scores.csv
    dice evaluate labelled.h5ad --labels cell_type --protocol labels
    dice evaluate labelled.h5ad --labels study --key cell_type_dice --protocol labels --label-map names.json
    dice evaluate denoised.zarr --labels cell_type --json | jq '.table.X_dice.ari'
    """
    try:
        names = None if args.label_map is None else json.loads(args.label_map.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise InputError(f'{str(args.label_map)!r} must be a table in JSON, such as {{"T": "T cell"}}.') from error
    table = call(args, read(args.adata), label_map=names)
    if args.table is not None:
        with atomic(args.table) as draft:
            table.rename(index=_unformula, columns=_unformula).map(_unformula).to_csv(draft)
    rows = {str(name): row.to_dict() for name, row in table.iterrows()}
    return {"text": table.round(3).T.to_string(), "table": rows}


def _unformula(value: Any) -> Any:
    """Return text with a leading quote if a spreadsheet would take it for a formula."""
    # Spreadsheets drop white space and invisible characters before a formula.
    first = next((c for c in value if c.isprintable() and not c.isspace()), "") if isinstance(value, str) else ""
    return f"'{value}" if first and first in "=+-@\uff1d\uff0b\uff0d\uff20" else value


def report(args: argparse.Namespace) -> Result:
    """Write one self-contained page about a query: maps, figures, parameters, warnings.

    dice report denoised.h5ad -o report.html
    dice report denoised.h5ad -o report.html --reference trained.h5ad --color cell_type
    """
    cells = read(args.adata)
    call(args, cells, args.output, reference=args.reference)
    return {"output": str(args.output), "n_cells": cells.n_obs}


def info(args: argparse.Namespace) -> Result:
    """Show what a prior was learned from, or list the priors that have a name.

    dice info
    dice info pancreas
    dice info trained.h5ad
    """
    from dice._data.store import find_prior  # Loads torch.

    if args.prior is None:
        table = dice.priors.list()
        return {"text": table.drop(columns="source").to_string(), "table": table.to_dict("index")}
    prior = find_prior(args.prior, key=args.prior_key)
    card = dice.priors.card(prior)
    told = "".join(f"\n{name:<10} {text}" for name, text in card.items() if isinstance(text, str) and text)
    return {"text": f"{prior}{told}", "genes": len(prior.genes), "sha256": prior.sha256} | card


def _counts(column: Any) -> dict[str, int]:
    """Return the number of cells with each value."""
    return {str(name): int(count) for name, count in column.value_counts().items()}
