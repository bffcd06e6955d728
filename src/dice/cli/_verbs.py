"""The commands: each reads files, calls one verb, writes files and returns a summary."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dice._errors import InputError
from dice._files import atomic, check_target
from dice.cli import _files
from dice.cli._flags import read_flags
from dice.cli._words import in_flags

Result = dict[str, Any]


def call(verb: str, args: argparse.Namespace, *positional: Any, **more: Any) -> Any:
    """Call a verb with the values of the flags."""
    import dice

    package, name = verb.split(".")
    return getattr(getattr(dice, package), name)(*positional, **read_flags(args, verb) | more)


def prepare(args: argparse.Namespace) -> Result:
    output, cells = _files.check_output(args.output), _files.read(args.cells)
    call("pp.prepare", args, cells)
    _files.write(cells, output)
    kept = cells.uns["dice_prepare"]
    return {"output": str(output), "n_cells": cells.n_obs, "n_genes": cells.n_vars, "kept": kept["n_cells"]}


def train(args: argparse.Namespace) -> Result:
    import dice

    output = _files.check_output(args.output)
    if args.prior_only and output.suffix != ".h5ad":
        raise InputError("A prior without its cells is one .h5ad file: name the output accordingly.")
    cells = dice.read_lazy(args.cells) if args.stream else _files.read(args.cells)
    call("tl.train_prior", args, cells)
    prior = dice.Prior.from_anndata(cells, key=args.key_added)
    if args.prior_only:
        prior.save(output)
    else:
        _files.write(cells, output)
    figures = {"n_latent": prior.n_latent, "noise": prior.noise, "latent_scale": prior.latent_scale}
    return {"output": str(output), "n_cells": cells.n_obs, "n_genes": len(prior.genes), **figures}


def denoise(args: argparse.Namespace) -> Result:
    import dice

    output = _files.check_output(args.output)
    if output.suffix == ".zarr":
        more = {"copy_x": not args.no_x, "overwrite": True, "chunk_size": args.chunk_size}
        dice.tl.denoise_to_zarr(args.query, args.reference, output, **more, **read_flags(args, "tl.denoise"))
        record = dice.read_lazy(output).uns[args.key_added]
    else:
        query = _files.read(args.query)
        call("tl.denoise", args, query, args.reference)
        _files.write(query, output)
        record = query.uns[args.key_added]
    found = {name: record["params"][name] for name in ("method", "noise", "rho")}
    return {"output": str(output), "genes": str(record["genes"]["text"]), **found}


def cluster(args: argparse.Namespace) -> Result:
    output, cells = _files.check_output(args.output), _files.read(args.cells)
    call("tl.cluster", args, cells, args.reference)
    _files.write(cells, output)
    why, sizes = cells.uns[args.key_added]["choice"]["why"], _counts(cells.obs[args.key_added])
    return {"output": str(output), "n_cells": cells.n_obs, "why": why, "clusters": sizes}


def transfer(args: argparse.Namespace) -> Result:
    import dice
    from dice._data.store import find_prior

    output = _files.check_output(args.output)
    read = dice.read_lazy if args.stream else _files.read
    query, reference = read(args.query), _files.read_reference(args.reference, read)
    if args.features is not None:
        return _features(args, query, reference, output)
    call("tl.transfer_labels", args, query, reference)
    _files.write(query, output)
    stored = find_prior(reference, key=args.prior_key).params.get("labels_key")
    key = args.key_added or f"{args.labels_key[-1] if args.labels_key else stored}_dice"
    found = {name: _counts(query.obs[f"{key}{end}"]) for name, end in
             {"labels": "", "status": "_status", "safe labels": "_safe"}.items()}  # fmt: skip
    views = ", ".join(str(name) for name in query.uns[key]["views"]["view"])
    return {"output": str(output), "n_cells": query.n_obs, **found, "views": views}


def _features(args: argparse.Namespace, query: Any, reference: Any, output: Path) -> Result:
    """Predict features instead of labels: they have intervals, and neither clusters nor classifiers."""
    if args.labels_key or args.groupby:
        raise InputError("Features have no labels and no clusters that vote: leave --labels and --groupby out.")
    call("tl.transfer_features", args, query, reference, args.features)
    _files.write(query, output)
    records = [entry for entry in query.uns.values() if isinstance(entry, Mapping) and "features" in entry]
    table = next(entry["features"] for entry in records if entry["call"]["features_key"] == args.features)
    useless = [str(name) for name, flag in zip(table["name"], table["useless"], strict=True) if flag]
    return {"output": str(output), "n_cells": query.n_obs, "features": len(table["name"]), "useless": useless}


def novelty(args: argparse.Namespace) -> Result:
    output, query = _files.check_output(args.output), _files.read(args.query)
    call("tl.novelty", args, query, _files.read_reference(args.reference))
    _files.write(query, output)
    record = query.uns[args.key_added]
    found: Result = {"output": str(output), "n_cells": query.n_obs, "n_novel": int(record["params"]["n_novel"])}
    if (groups := record.get("groups")) is not None:
        rows = zip(groups["group"], groups["n_cells"], groups["p"], groups["novel"], strict=True)
        found["groups"] = {
            str(name): f"{int(n):,} cells, p = {p:.3g}{', novel' if novel else ''}" for name, n, p, novel in rows
        }
    return found


def evaluate(args: argparse.Namespace) -> Result:
    names = _label_map(args.label_map)
    if args.table is not None:
        check_target(args.table)
    table = call("tl.evaluate", args, _files.read(args.cells), label_map=names)
    if args.table is not None:
        with atomic(args.table) as draft:
            table.rename(index=_unformula, columns=_unformula).map(_unformula).to_csv(draft)
    rows = {str(name): row.to_dict() for name, row in table.iterrows()}
    return {"text": table.round(3).T.to_string(), "table": rows}


def _unformula(value: Any) -> Any:
    """Text that a spreadsheet would take for a formula, with a mark that makes it text."""
    return f"'{value}" if isinstance(value, str) and value.startswith(("=", "+", "-", "@")) else value


def _label_map(path: Path | None) -> dict[str, Any] | None:
    """Names of the known labels in the reference, from a file of JSON."""
    try:
        found = None if path is None else json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        found = ()
    if found is not None and not isinstance(found, dict):
        raise InputError(
            f"{str(path)!r} must be a JSON object of known labels and their names in the reference, for example "
            '{"lymphocyte": ["T cell", "B cell"]}.'
        )
    return found


def report(args: argparse.Namespace) -> Result:
    check_target(args.output)
    cells = _files.read(args.cells)
    call("pl.report", args, cells, args.output, reference=args.reference)
    return {"output": str(args.output), "n_cells": cells.n_obs}


def annotate(args: argparse.Namespace) -> Result:
    output = _files.check_output(args.output)
    trained = None if args.trained is None else _files.check_output(args.trained)
    if args.report is not None:
        check_target(args.report)
    query, reference = _files.read(args.query), _files.read_reference(args.reference)
    if trained is not None and not hasattr(reference, "obs"):
        raise InputError(f"The prior {args.reference.name!r} comes without cells to write: leave --trained out.")
    call("tl.annotate", args, query, reference)
    _files.write(query, output)
    if trained is not None:
        _files.write(reference, trained)
    record = query.uns["dice_annotate"]
    written = [str(path) for path in (output, trained, args.report) if path is not None]
    text = in_flags(record["summary"], args)
    found = {"summary": text, "output": written} | record["params"]
    return found | {"text": f"{text}\nwritten   {', '.join(written)}"}


def info(args: argparse.Namespace) -> Result:
    import dice
    from dice._data.store import find_prior

    if args.prior is None:
        table = dice.priors.list()
        return {"text": table.drop(columns="source").to_string(), "table": table.to_dict("index")}
    prior = find_prior(args.prior, key=args.prior_key)
    card = dice.priors.card(prior)
    told = "".join(f"\n{name:<10} {text}" for name, text in card.items() if isinstance(text, str) and text)
    return {"text": f"{prior}{told}", "genes": len(prior.genes), "sha256": prior.sha256} | card


def _counts(column: Any) -> dict[str, int]:
    """Number of cells with each value."""
    return {str(name): int(count) for name, count in column.value_counts().items()}
