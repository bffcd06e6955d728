"""Downloads from a server on this machine that can be told to misbehave."""

from __future__ import annotations

import gzip
import hashlib
import threading
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

import anndata as ad
import citeseq_cells
import neocortex_cells
import numpy as np
import pandas as pd
import pytest
from fetch import BLOCK, Remote, fetch

from dice import _log, settings
from dice._errors import DiceError, FileError
from dice.datasets._real import cache_folder

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CONTENT = np.random.default_rng(0).bytes(400_000)
HALF = len(CONTENT) // 2


class Server(ThreadingHTTPServer):
    """Serves `content` under any name that is not in `files`, and notes the ranges that were asked for."""

    daemon_threads = False
    block_on_close = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.content = CONTENT
        self.files: dict[str, bytes] = {}
        self.ranges: list[str | None] = []
        self.resumes = True
        self.breaks = 0  # how many of the next answers break off
        self.status = 200

    def url(self, name: str = "file.bin") -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/{name}"

    def remote(self, content: bytes = CONTENT) -> Remote:
        return Remote("file.bin", self.url(), hashlib.sha256(content).hexdigest())


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        wanted = self.headers["Range"]
        self.server.ranges.append(wanted)
        start = int(wanted.removeprefix("bytes=").removesuffix("-")) if wanted else 0
        content = self.server.files.get(self.path.strip("/"), self.server.content)
        if self.server.status != 200:
            self.send_error(self.server.status)
        elif wanted and self.server.resumes and start >= len(content):
            self.send_error(416)
        else:
            self.answer(content, start if self.server.resumes else 0)

    def answer(self, content: bytes, start: int) -> None:
        body = content[start:]
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.server.breaks:
            self.server.breaks -= 1
            body = body[: len(body) // 2]
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server(monkeypatch) -> Iterator[Server]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr(settings, "verbosity", 0)
    running = Server()
    thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield running
    running.shutdown()
    thread.join()
    running.server_close()


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_downloads_once(server, tmp_path) -> None:
    folder = tmp_path / "deep" / "cache"
    path = fetch(server.remote(), cache_dir=folder)
    assert path == folder / "file.bin"
    assert path.read_bytes() == CONTENT
    assert fetch(server.remote(), cache_dir=folder) == path
    assert server.ranges == [None]
    assert names(folder) == ["file.bin"]


def test_damaged_file_in_the_cache_is_replaced(server, tmp_path) -> None:
    (tmp_path / "file.bin").write_bytes(b"damaged")
    assert fetch(server.remote(), cache_dir=tmp_path).read_bytes() == CONTENT


def test_break_is_mended_in_the_same_call(server, tmp_path) -> None:
    server.breaks = 2
    assert fetch(server.remote(), cache_dir=tmp_path).read_bytes() == CONTENT
    assert server.ranges[0] is None
    starts = [int(wanted[6:-1]) for wanted in server.ranges[1:]]
    assert len(starts) == 2
    assert 0 < starts[0] <= HALF < starts[1] < len(CONTENT)
    assert names(tmp_path) == ["file.bin"]


def test_next_call_goes_on_after_a_break(server, tmp_path, monkeypatch) -> None:
    server.breaks = 1000
    # Nothing new fits into less than a block: the last attempt of the first call brings nothing.
    with pytest.raises(FileError, match=r"file\.bin cannot be downloaded.*call again"):
        fetch(server.remote(), cache_dir=tmp_path)
    assert names(tmp_path) == ["file.bin.part"]
    stored = (tmp_path / "file.bin.part").stat().st_size
    assert HALF / 2 < stored < len(CONTENT)
    server.breaks = 0
    server.ranges.clear()
    assert fetch(server.remote(), cache_dir=tmp_path).read_bytes() == CONTENT
    assert server.ranges == [f"bytes={stored}-"]


def test_server_that_cannot_resume(server, tmp_path) -> None:
    server.resumes = False
    (tmp_path / "file.bin.part").write_bytes(CONTENT[:HALF])
    assert fetch(server.remote(), cache_dir=tmp_path).read_bytes() == CONTENT
    assert server.ranges == [f"bytes={HALF}-"]
    (tmp_path / "file.bin").unlink()
    server.breaks = 1000
    with pytest.raises(FileError, match="no connection"):
        fetch(server.remote(), cache_dir=tmp_path)


def test_whole_part_needs_no_byte(server, tmp_path) -> None:
    (tmp_path / "file.bin.part").write_bytes(CONTENT)
    assert fetch(server.remote(), cache_dir=tmp_path).read_bytes() == CONTENT
    assert server.ranges == [f"bytes={len(CONTENT)}-"]


@pytest.mark.parametrize("remains", [b"x" * HALF, CONTENT + b"more"])
def test_remains_of_another_version_start_over(server, tmp_path, remains) -> None:
    (tmp_path / "file.bin.part").write_bytes(remains)
    assert fetch(server.remote(), cache_dir=tmp_path).read_bytes() == CONTENT
    assert server.ranges == [f"bytes={len(remains)}-", None]


def test_wrong_checksum_leaves_nothing(server, tmp_path) -> None:
    with pytest.raises(FileError, match=r"not the expected file.*checksum.*discarded"):
        fetch(server.remote(b"another file"), cache_dir=tmp_path)
    assert names(tmp_path) == []


def test_missing_file_on_the_server(server, tmp_path) -> None:
    server.status = 404
    with pytest.raises(FileError, match="the server answered 404") as caught:
        fetch(server.remote(), cache_dir=tmp_path)
    assert isinstance(caught.value, DiceError)
    assert isinstance(caught.value, OSError)
    assert str(tmp_path / "file.bin") in str(caught.value)
    assert names(tmp_path) == []


def test_offline(server, tmp_path) -> None:
    remote = server.remote()
    server.server_close()
    with pytest.raises(FileError, match=r"no connection.*call again.*by hand"):
        fetch(remote, cache_dir=tmp_path)
    assert names(tmp_path) == []


def test_one_progress_bar_or_nothing(server, tmp_path, monkeypatch, capfd) -> None:
    fetch(server.remote(), cache_dir=tmp_path / "silent")
    assert capfd.readouterr() == ("", "")
    monkeypatch.setattr(settings, "verbosity", 1)
    monkeypatch.setattr(_log, "_in_notebook", lambda: True)
    fetch(server.remote(), cache_dir=tmp_path / "shown")
    assert "file.bin: " in capfd.readouterr().err


def test_cache_folder(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("DICE_CACHE", str(tmp_path / "env"))
    assert cache_folder() == tmp_path / "env"
    assert cache_folder(tmp_path) == tmp_path
    monkeypatch.delenv("DICE_CACHE")
    assert "scdice" in str(cache_folder())


def test_pbmc_citeseq_comes_from_the_server(server, tmp_path, monkeypatch, citeseq) -> None:
    citeseq.write_h5ad(tmp_path / "made.h5ad", compression="gzip")
    server.content = (tmp_path / "made.h5ad").read_bytes()
    checksum = hashlib.sha256(server.content).hexdigest()
    remote = Remote("pbmc_seurat_v4.h5ad", server.url("pbmc_seurat_v4.h5ad"), checksum)
    monkeypatch.setattr(citeseq_cells, "FILE", remote)
    monkeypatch.setenv("DICE_CACHE", str(tmp_path / "cache"))
    cells = citeseq_cells.pbmc_citeseq()
    assert 0 < cells.n_obs < citeseq.n_obs
    assert names(tmp_path / "cache") == ["pbmc_seurat_v4.h5ad"]


@pytest.fixture
def browser(server, tmp_path, monkeypatch) -> Path:
    """Nowakowski's cells as the UCSC Cell Browser has them, on this machine; a query; and an empty cache."""
    rng = np.random.default_rng(0)
    cells = [f"Hi{i}.1" for i in range(30)]
    values = rng.gamma(0.3, size=(50, 30))
    values *= 1e6 / values.sum(0)
    matrix = pd.DataFrame(values, index=[f"ENSG{i}|GENE{i}" for i in range(50)], columns=cells)
    meta = pd.DataFrame({"Cell": cells[::-1], "WGCNAcluster": ["RG", "EN", ""] * 10, "Age": [12, "unknown", ""] * 10})
    server.files = {
        "exprMatrix.tsv.gz": gzip.compress(matrix.to_csv(sep="\t", index_label="gene").encode()),
        "meta.tsv": meta.to_csv(sep="\t", index=False).encode(),
    }
    for name in ("MATRIX", "META"):
        remote = getattr(neocortex_cells, name)
        file = remote.url.rpartition("/")[2]
        # As the browser publishes them: the first ten digits.
        digest = hashlib.md5(server.files[file], usedforsecurity=False).hexdigest()[:10]
        monkeypatch.setattr(neocortex_cells, name, replace(remote, url=server.url(file), digest=digest))
    monkeypatch.setenv("DICE_CACHE", str(tmp_path / "cache"))
    query = ad.AnnData(np.ones((4, 3), np.float32))
    query.write_h5ad(tmp_path / "query.h5ad")
    return tmp_path


def test_neocortex_comes_from_the_cell_browser(server, browser) -> None:
    reference, query = neocortex_cells.neocortex(query=browser / "query.h5ad")
    assert query.n_obs == 4
    assert reference.shape == (20, 50)
    assert list(reference.var_names[:2]) == ["GENE0", "GENE1"]
    # Rows of the two files are in opposite order: every third cell from the end has no type.
    assert list(reference.obs_names[:3]) == ["Hi1.1", "Hi2.1", "Hi4.1"]
    assert list(reference.obs["cell_type"][:3]) == ["EN", "RG", "EN"]
    np.testing.assert_allclose(np.expm1(reference.X.toarray()).sum(1), 1e4, rtol=1e-4)
    made = ["neocortex_nowakowski2017.h5ad", neocortex_cells.MATRIX.name, neocortex_cells.META.name]
    assert names(browser / "cache") == sorted(made)
    asked = len(server.ranges)
    neocortex_cells.neocortex(query=browser / "query.h5ad")
    assert len(server.ranges) == asked


def test_logarithms_from_the_cell_browser_are_not_taken_twice(browser) -> None:
    table = pd.DataFrame([[0.0, 13.5], [2.0, 1.0]], index=["A", "B"], columns=["c1", "c2"])
    table.to_csv(browser / "matrix.tsv", sep="\t")
    pd.DataFrame({"WGCNAcluster": ["RG", "EN"]}, index=["c1", "c2"]).to_csv(browser / "meta.tsv", sep="\t")
    cells = neocortex_cells._browser_cells(browser / "matrix.tsv", browser / "meta.tsv")
    assert cells.X.toarray().tolist() == [[0.0, 2.0], [13.5, 1.0]]


def test_neocortex_refuses_another_matrix(server, browser) -> None:
    server.files["exprMatrix.tsv.gz"] += b"more"
    with pytest.raises(FileError, match=r"not the expected file \(wrong md5 checksum\)"):
        neocortex_cells.neocortex(query=browser / "query.h5ad")
    assert names(browser / "cache") == []


def test_neocortex_asks_for_the_query_before_it_downloads(server, browser) -> None:
    with pytest.raises(FileError, match="Polioudakis 2019"):
        neocortex_cells.neocortex()
    assert server.ranges == []


def test_source_is_stated() -> None:
    remote = citeseq_cells.FILE
    assert remote.url.startswith("https://")
    assert remote.url.endswith(remote.name)
    assert len(bytes.fromhex(remote.digest)) == 32
    for remote in (neocortex_cells.MATRIX, neocortex_cells.META):
        assert remote.url.startswith("https://cells.ucsc.edu/cortex-dev/")
        assert len(bytes.fromhex(remote.digest)) == 5
    assert neocortex_cells.PORTAL.startswith("https://")
    assert BLOCK < 1 << 20
