"""Arguments that several verbs share."""

from __future__ import annotations

import argparse


def add_seed(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="seed of everything random (default 0)")


def add_device(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda or any torch device (default auto)")


def add_matrix(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--layer", help="layer to use in place of X")
    parser.add_argument("--no-check", action="store_true", help="take the values as they are")


def add_scheduler(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--scheduler", metavar="ADDRESS", help="dask scheduler whose workers share streamed work")


def add_calibration(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--calibrate",
        type=calibrate,
        default="auto",
        help="auto, offset, kinds, mean or none: of a query that stands apart",
    )
    parser.add_argument("--batch-key", metavar="COLUMN", help="column of obs with batches to calibrate each on its own")


def calibrate(text: str) -> str | bool:
    """One of the words that :func:`dice.tl.denoise` knows, or none."""
    return False if text == "none" else text


def rho(text: str) -> float | tuple[float, ...] | str:
    """A number, numbers with commas between them, or auto."""
    if text == "auto":
        return text
    values = tuple(float(part) for part in text.split(","))
    return values[0] if len(values) == 1 else values


def noise(text: str) -> float | str:
    """A number, or one of the words that :func:`dice.tl.denoise` knows."""
    try:
        return float(text)
    except ValueError:
        return text


def n_latent(text: str) -> int | str:
    """A whole number, or one of the words that :func:`dice.tl.train_prior` knows."""
    return int(text) if text.isdigit() else text
