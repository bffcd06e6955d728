"""Files from the net for the paper's experiments: cached, checked, and resumed where a connection broke."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import pooch

from dice import _log
from dice._errors import FileError
from dice.datasets._real import cache_folder

#: Bytes read at once. What was read in part when a connection breaks is lost, so this stays small.
BLOCK = 1 << 16
#: Seconds to wait for a connection, and for a sign of life from it.
TIMEOUT = (10, 60)


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
        return path.exists() and str(pooch.file_hash(path, alg=self.algorithm)).startswith(self.digest)


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
    raise FileError(
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
                raise FileError(
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
