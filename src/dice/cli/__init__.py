"""The command ``dice``: the verbs of the package for files."""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dice import DiceError, DiceWarning, __version__, _log, settings
from dice.cli import _verbs
from dice.cli._files import check_paths
from dice.cli._flags import add_flags, first_sentence, parameters, summary_of
from dice.cli._words import in_flags, table

#: Flags that no verb has.
STREAM = {"action": "store_true", "help": "read expression chunk by chunk instead of all at once"}
SCHEDULER = {"metavar": "ADDRESS", "help": "dask scheduler whose workers share streamed work"}
MAPPED = 'file (.json) with the names of known labels in the reference, {"lymphocyte": ["T cell", "B cell"]}'
FEATURES = "predict these features of the reference (obsm, obs, layer:NAME) instead of labels"


@dataclass(frozen=True)
class Command:
    """A command: the verb it calls, its input files, its examples, and flags that the verb has not."""

    verb: str
    examples: tuple[str, ...]
    inputs: tuple[str, ...] = ("query", "reference")
    skip: tuple[str, ...] = ()
    flags: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    device: bool = True
    output: str = "file to write (.h5ad or .zarr); an existing one is replaced once the new one is complete"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add input files and flags."""
        for name, parameter in zip(self.inputs, parameters(self.verb).values(), strict=False):
            text = f"{first_sentence(parameter.text)} (.h5ad or .zarr)"
            nargs = "?" if name == "reference" and self.verb == "tl.cluster" else None  # the cells may hold the prior
            parser.add_argument(name, type=Path, nargs=nargs, help=text)
        if self.output:
            parser.add_argument("-o", "--output", type=Path, required=True, metavar="FILE", help=self.output)
            text = "let an output replace an input file"
            parser.add_argument("--overwrite-input", action="store_true", help=text)
        add_flags(parser, self.verb, skip=self.skip)
        for flag, options in self.flags.items():
            parser.add_argument(flag, **options)
        if self.device:
            text = "auto, cpu, cuda or any torch device (default auto)"
            parser.add_argument("--device", default=settings.device, help=text)


#: Commands in the order of a work flow.
COMMANDS = {
    "annotate": Command(
        "tl.annotate",
        ("query.h5ad reference.h5ad -o annotated.h5ad --labels cell_type --report report.html",
         "query.h5ad reference.h5ad -o annotated.h5ad --labels cell_type --trained trained.h5ad"),
        flags={"--trained": {"type": Path, "metavar": "FILE", "help": "write the reference with its prior"}},
    ),
    "prepare": Command(
        "pp.prepare",
        ("raw.h5ad -o cells.h5ad", "raw.zarr -o cells.h5ad --batch-key donor --n-top-genes 2000"),
        inputs=("cells",), device=False,
    ),
    "train": Command(
        "tl.train_prior",
        ("reference.h5ad -o trained.h5ad --labels cell_type",
         "reference.h5ad -o prior.h5ad --prior-only",
         "atlas.zarr -o prior.h5ad --prior-only --stream     larger than memory"),
        inputs=("cells",),
        flags={"--prior-only": {"action": "store_true", "help": "write the prior without its cells, as .h5ad"},
               "--stream": STREAM, "--scheduler": SCHEDULER},
    ),
    "denoise": Command(
        "tl.denoise",
        ("query.h5ad trained.h5ad -o denoised.h5ad",
         "query.zarr prior.h5ad -o denoised.zarr     chunk by chunk; if killed, run it again to go on",
         "query.h5ad prior.h5ad -o denoised.h5ad --rho 5,0.5 --method gibbs --n-samples 20"),
        flags={"--chunk-size": {"type": int, "metavar": "CELLS", "help": "cells to work on at once"},
               "--no-x": {"action": "store_true", "help": "leave X and layers out of a .zarr output"},
               "--scheduler": SCHEDULER},
    ),
    "cluster": Command(
        "tl.cluster",
        ("denoised.h5ad trained.h5ad -o clustered.h5ad",
         "trained.h5ad -o clustered.h5ad     a data set with its own prior"),
        inputs=("cells", "reference"),
    ),
    "transfer": Command(
        "tl.transfer_labels",
        ("query.h5ad trained.h5ad -o labelled.h5ad --labels cell_type",
         "query.zarr trained.zarr -o labelled.zarr --labels cell_type --alpha 0.05 --stream",
         "query.h5ad trained.h5ad -o with_proteins.h5ad --features protein"),
        flags={"--features": {"metavar": "KEY", "help": FEATURES}, "--stream": STREAM, "--scheduler": SCHEDULER},
    ),
    "novelty": Command(
        "tl.novelty",
        ("query.h5ad trained.h5ad -o tested.h5ad",
         "clustered.h5ad trained.h5ad -o tested.h5ad --groupby dice_cluster --fdr 0.05"),
    ),
    "evaluate": Command(
        "tl.evaluate",
        ("denoised.h5ad --labels cell_type --use-rep X_pca X_dice --table scores.csv",
         "labelled.h5ad --labels cell_type --protocol labels",
         "labelled.h5ad --labels study --key cell_type_dice --protocol labels --label-map names.json",
         "denoised.zarr --labels cell_type --json | jq '.table.X_dice.ari'"),
        inputs=("cells",), skip=("label_map",), device=False, output="",
        flags={"--label-map": {"type": Path, "metavar": "FILE", "help": MAPPED},
               "--table": {"type": Path, "metavar": "FILE", "help": "write the scores as .csv"}},
    ),
    "report": Command(
        "pl.report",
        ("denoised.h5ad -o report.html", "denoised.h5ad -o report.html --reference trained.h5ad --color cell_type"),
        inputs=("cells",), skip=("path",), device=False, output="page to write (.html)",
        flags={"--reference": {"type": Path, "help": "file with the prior, for the figures of its training"}},
    ),
}  # fmt: skip
INFO = "Show what a prior was learned from, or list the priors that have a name."
#: Exit codes beside 0: an error that was told, wrong usage (argparse's), Ctrl-C (a shell's own).
FAILED, INTERRUPTED = 1, 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; an error is one sentence on standard error and exit code 1."""
    args = _parser().parse_args(argv)
    start = time.perf_counter()
    with _manners(args) as warned:
        try:
            check_paths(args)
            with _cluster(args):
                summary = args.run(args)
        except KeyboardInterrupt:
            print("dice: interrupted.", file=sys.stderr)
            return INTERRUPTED
        except Exception as error:
            if args.debug:
                raise
            print(f"dice: {in_flags(_sentence(error), args)}", file=sys.stderr)
            return FAILED
    if args.json:
        summary = {"command": args.command, **summary, "seconds": time.perf_counter() - start, "warnings": warned}
        print(json.dumps(summary, default=_plain))
    else:
        print(summary.get("text") or table(summary))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="dice",
        description="Diffusion Induced Cell Embeddings: a clean reference cleans up a query.",
        epilog="Each command has its own help with examples: dice denoise --help",
    )
    parser.add_argument("--version", action="version", version=f"dice {__version__}")
    _add_common(parser, default=False)
    commands = parser.add_subparsers(required=True, metavar="COMMAND", dest="command")
    info = _add_command(commands, "info", INFO, ("", "pancreas", "trained.h5ad"))
    info.add_argument(
        "prior", nargs="?", help="name of a prior, or a file with one (.h5ad or .zarr); none lists all names"
    )
    info.add_argument("--prior-key", default="dice", help="key of the prior in a file (default dice)")
    for name, command in COMMANDS.items():
        command.add_arguments(_add_command(commands, name, summary_of(command.verb), command.examples))
    return parser


def _add_command(commands: Any, name: str, summary: str, examples: tuple[str, ...]) -> argparse.ArgumentParser:
    command: argparse.ArgumentParser = commands.add_parser(
        name,
        help=first_sentence(summary),
        description=summary,
        epilog="\n  ".join(["examples:", *(f"dice {name} {example}".rstrip() for example in examples)]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    # Before or after the verb: without a default of its own, the second place does not undo the first.
    _add_common(command, default=argparse.SUPPRESS)
    command.set_defaults(run=getattr(_verbs, name))
    return command


def _add_common(parser: argparse.ArgumentParser, default: Any) -> None:
    group = parser.add_argument_group("output")
    group.add_argument("--json", action="store_true", default=default, help="print a summary as one line of JSON")
    group.add_argument("--quiet", action="store_true", default=default, help="no progress bars, no warnings")
    group.add_argument("--debug", action="store_true", default=default, help="show the traceback of an error")


@contextmanager
def _manners(args: argparse.Namespace) -> Iterator[list[str]]:
    """Bars as asked for, and warnings of ours as one line each; both go to standard error."""
    warned: list[str] = []
    chosen = {name: getattr(args, name) for name in ("device", "chunk_size") if hasattr(args, name)}
    chosen |= {"verbosity": 0} if args.quiet else {}

    def show(message: Warning | str, category: type[Warning], *_: Any) -> None:
        if issubclass(category, DiceWarning):
            warned.append(in_flags(str(message), args))
            if not args.quiet:
                print(f"dice: warning: {warned[-1]}", file=sys.stderr)

    worded = _log.worded(lambda message: f"dice: {in_flags(message, args)}")
    with settings.using(**chosen), warnings.catch_warnings(), worded:
        warnings.simplefilter("default")
        warnings.showwarning = show  # type: ignore[assignment]
        yield warned


def _cluster(args: argparse.Namespace) -> Any:
    """The user's dask cluster, where one is named."""
    if getattr(args, "scheduler", None) is None:
        return nullcontext()
    from dask.distributed import Client

    return Client(args.scheduler)


def _sentence(error: Exception) -> str:
    if isinstance(error, DiceError):
        return str(error)
    text = " ".join(str(error).split()) or "no message"
    return f"{type(error).__name__}: {text} (--debug shows where)"


def _plain(value: Any) -> Any:
    """numpy's numbers and arrays, and paths, as JSON knows them."""
    return value.tolist() if hasattr(value, "tolist") else str(value)
