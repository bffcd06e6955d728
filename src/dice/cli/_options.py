"""Flags of the command line, made from the fields of the options that the verbs check."""

from __future__ import annotations

import argparse
from collections.abc import Collection
from dataclasses import MISSING, Field, fields, replace
from typing import Any, TypeVar

from dice import settings
from dice._errors import InputError
from dice.options import Checks, Direct, Gaussian, Gibbs, Options, Shift, StudentT, Training

T = TypeVar("T")


def add_fields(parser: argparse.ArgumentParser, cls: type, *, skip: Collection[str] = ()) -> None:
    """One flag for every field of a settings object that has a help text."""
    for item in fields(cls):
        if "help" not in item.metadata or item.name in skip:
            continue
        flag, text = item.name.replace("_", "-"), item.metadata["help"]
        if isinstance(item.default, bool):
            name = f"--no-{flag}" if item.default else f"--{flag}"
            text = f"do not {text}" if item.default else text
            parser.add_argument(name, dest=item.name, action=f"store_{not item.default}".lower(), help=text)
            continue
        shown = "" if item.default in (None, MISSING) else f" (default {item.default})"
        parser.add_argument(f"--{flag}", type=_converter(item), default=item.default, help=f"{text}{shown}")


def read_fields(args: argparse.Namespace, cls: type[T], *, skip: Collection[str] = ()) -> T:
    """The settings object that the flags describe; fields without a flag have their default."""
    names = [item.name for item in fields(cls) if "help" in item.metadata and item.name not in skip]  # type: ignore[arg-type]
    return cls(**{name: getattr(args, name) for name in names})


def _converter(item: Field[Any]) -> Any:
    """Numbers where the field may be one; several with commas between them; text otherwise."""
    numeric = any(word in str(item.type) for word in ("int", "float", "Rho", "Noise"))
    return number_or_word if numeric else str


def number_or_word(text: str) -> float | int | str | tuple[float, ...]:
    if "," in text:
        return tuple(float(part) for part in text.split(","))
    try:
        return int(text) if text.lstrip("-").isdigit() else float(text)
    except ValueError:
        return text


def add_seed(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="seed of everything random (default 0)")


def add_device(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--device", default=settings.device, help="auto, cpu, cuda or any torch device (default auto)")


def add_scheduler(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--scheduler", metavar="ADDRESS", help="dask scheduler whose workers share streamed work")


def add_checks(parser: argparse.ArgumentParser) -> None:
    """What every verb that reads a query takes: where its values and its prior are, and what is asked of it."""
    add_fields(parser, Options, skip={item.name for item in fields(Options)} - {"layer", "gene_key"})
    parser.add_argument("--no-check", action="store_true", help="take the values as they are")
    add_fields(parser, Checks, skip=("values",))
    parser.add_argument("--prior-key", default="dice", help="key of the prior in the reference (default dice)")


def read_checks(args: argparse.Namespace) -> dict[str, Any]:
    """The same as arguments of a verb."""
    check = Checks(values=not args.no_check, min_gene_overlap=args.min_gene_overlap)
    return {"layer": args.layer, "gene_key": args.gene_key, "check": check, "prior_key": args.prior_key}


def add_query(parser: argparse.ArgumentParser) -> None:
    """What verbs take that find a shift as well."""
    add_fields(parser, Options, skip={item.name for item in fields(Options)} - {"shift"})
    add_fields(parser, Shift, skip=("strategy",))
    add_checks(parser)
    add_device(parser)
    add_seed(parser)


def read_query(args: argparse.Namespace) -> dict[str, Any]:
    """The same as arguments of a verb."""
    shift = False if args.shift == "none" else Shift(args.shift, args.batch_key)
    return {"shift": shift, **read_checks(args), "random_state": args.seed}


def add_labels(parser: argparse.ArgumentParser, text: str) -> None:
    parser.add_argument("--labels", metavar="COLUMN", help=text)


def add_training(parser: argparse.ArgumentParser) -> None:
    add_fields(parser, Training)
    text = "on Ctrl-C, go on with the best so far, of the noise or of the prior, whichever is being learned; otherwise "
    text += "the old output stays, and the exit code is 130"
    parser.add_argument("--keep-interrupted", action="store_true", help=text)


def read_training(args: argparse.Namespace) -> Training:
    """In a shell, Ctrl-C means stop: what comes next in a script must not go on with half a training."""
    return replace(read_fields(args, Training), keep_interrupted=args.keep_interrupted)


def add_posterior(parser: argparse.ArgumentParser) -> None:
    """What decides the posterior."""
    add_fields(parser, Options, skip=("shift", "layer", "gene_key", "check", "random_state"))
    for cls in (StudentT, Direct, Gibbs):
        add_fields(parser, cls)


def read_posterior(args: argparse.Namespace) -> dict[str, Any]:
    likelihood, method = args.likelihood, args.method
    direct, gibbs, heavy = read_fields(args, Direct), read_fields(args, Gibbs), read_fields(args, StudentT)
    if method == "gibbs":
        method = gibbs
    elif method in ("auto", "direct") and direct != Direct():
        method = direct
    if likelihood == "gaussian" or (likelihood == "auto" and args.noise != "estimate"):
        likelihood = Gaussian(args.noise)
    elif likelihood == "student_t":
        likelihood = heavy
    # A flag that changes nothing would be taken for one that did.
    for flag, own, chosen in (
        ("--method gibbs", gibbs != Gibbs(), isinstance(method, Gibbs)),
        ("--method direct", direct != Direct(), isinstance(method, Direct)),
        ("--likelihood student_t", heavy != StudentT(noise=heavy.noise), isinstance(likelihood, StudentT)),
    ):
        if own and not chosen:
            raise InputError(f"There are flags that belong to {flag}: pass it as well, or leave them out.")
    return {"rho": args.rho, "n_samples": args.n_samples, "likelihood": likelihood, "method": method}
