"""Files from the net: cached, checked, and resumed where a connection broke."""

from __future__ import annotations

import logging
import os
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dice import _log
from dice._errors import DiceError

if TYPE_CHECKING:
    from collections.abc import Iterator

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
    """A file on a server: its name in the cache, where it is, and what it must hash to."""

    name: str
    url: str
    sha256: str


def cache_folder(cache_dir: str | os.PathLike[str] | None = None) -> Path:
    """`cache_dir`, else ``$DICE_CACHE``, else the platform's folder for caches."""
    chosen = cache_dir or os.environ.get(CACHE_VARIABLE)
    return Path(chosen or _pooch().os_cache("scdice")).expanduser().resolve()


def fetch(remote: Remote, *, cache_dir: str | os.PathLike[str] | None = None) -> Path:
    """Path of the file in the cache, downloaded unless it is there with the right checksum.

    A download that broke off leaves ``<name>.part`` in the cache, and the next call goes on from
    there. The file gets its name only when it is whole and its checksum is right.
    """
    path = cache_folder(cache_dir) / remote.name
    part = path.with_name(f"{path.name}.part")
    resumed = part.exists()
    pooch = _pooch()
    try:
        with _quiet(pooch.get_logger()):
            found = pooch.retrieve(
                remote.url,
                known_hash=f"sha256:{remote.sha256}",
                fname=path.name,
                path=path.parent,
                downloader=_Resuming(part, path),
            )
    except ValueError as error:  # pooch's word for a wrong checksum; the file is gone by now
        if resumed:  # from the remains of another version perhaps: once more, from the start
            return fetch(remote, cache_dir=cache_dir)
        raise DownloadError(
            f"{remote.url} is not the expected file (wrong SHA-256 checksum) and was discarded: "
            "try again, and report it to the developers of dice if that does not help."
        ) from error
    return Path(found)


@contextmanager
def _quiet(logger: logging.Logger) -> Iterator[None]:
    """Keep pooch from announcing what the progress bar shows."""
    level = logger.level
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.setLevel(level)


class _Resuming:
    """Downloader for pooch that goes on where an earlier attempt broke off."""

    def __init__(self, part: Path, path: Path) -> None:
        self.part = part
        self.path = path

    def __call__(self, url: str, output_file: str, pooch: Any) -> None:
        from requests import HTTPError, RequestException

        _log.info(f"Downloading {url} to {self.path}.")
        size = self._size()
        while True:
            try:
                self._get(url)
                break
            except HTTPError as error:
                raise self._failure(url, f"the server answered {error}") from error
            except RequestException as error:
                # As long as every attempt brings something new, another one is worthwhile.
                if self._size() <= size:
                    raise self._failure(url, f"no connection ({error})") from error
                size = self._size()
        self.part.replace(output_file)

    def _get(self, url: str) -> None:
        """One attempt: ask for what is missing, and append it."""
        import requests

        have = self._size()
        # Bytes as they are stored: positions in a compressed stream would mean nothing.
        headers = {"Accept-Encoding": "identity"}
        if have:
            headers["Range"] = f"bytes={have}-"
        with requests.get(url, headers=headers, stream=True, timeout=TIMEOUT) as answer:
            if have and answer.status_code == requests.codes.requested_range_not_satisfiable:
                return  # nothing is missing; if there is too much, the checksum will tell
            answer.raise_for_status()
            if answer.status_code != requests.codes.partial_content:
                have = 0  # this server cannot resume
            total = have + int(answer.headers.get("Content-Length", 0))
            bar = _log.progress(total=total, desc=self.path.name, unit="B", unit_scale=True, initial=have)
            with self.part.open("ab" if have else "wb") as file, bar:
                for block in answer.iter_content(BLOCK):
                    file.write(block)
                    bar.update(len(block))
            if self._size() < total:  # old versions of urllib3 do not notice
                raise requests.ConnectionError("the connection broke off")

    def _size(self) -> int:
        return self.part.stat().st_size if self.part.exists() else 0

    def _failure(self, url: str, reason: str) -> DownloadError:
        return DownloadError(
            f"{self.path.name} cannot be downloaded, {reason}: call again when {url} can be "
            "reached, to go on where this download stopped, or download it by hand to "
            f"{self.path}."
        )


def _pooch() -> Any:
    try:
        import pooch
    except ImportError as error:
        raise ImportError(
            'Downloads need the package pooch: install it with pip install "scdice[datasets]".'
        ) from error
    return pooch
