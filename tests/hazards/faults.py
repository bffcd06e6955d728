"""Kills, full disks and broken files, many times over: `make faults`. Writes docs/benchmarks/faults.csv.

A fault is survived if nothing is lost: the old file is whole, the next call gets the same result as if nothing had
happened, and what cannot be done is refused with one sentence.

    python tests/hazards/faults.py            all of them
    python tests/hazards/faults.py zarr save  those whose name holds one of these words; other rows stay as they are
"""

from __future__ import annotations

import csv
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests"))

import anndata as ad  # noqa: E402
import numpy as np  # noqa: E402
import torch  # noqa: E402

import dice  # noqa: E402
from dice._data.files import read  # noqa: E402
from dice._data.files import write_file as write  # noqa: E402
from dice._files import remove  # noqa: E402
from dice._train import train as _train  # noqa: E402
from hazards.forgery import assert_sentence, fixture  # noqa: E402

TABLE = ROOT / "docs" / "benchmarks" / "faults.csv"
#: Kills while files are written and while it is computed, which takes longer; and trials of other faults.
KILLS, KILLS_AT_WORK, TRIALS = 100, 60, 50
#: Bytes that are left on a full disk: enough for the few that are tried before the work, and not for a checkpoint.
ROOM = 50_000
RNG = np.random.default_rng(0)


def forked(action: Callable[[], None]) -> int:
    """Run an action in a process of its own, which may be killed; it reports by its exit status."""
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        action()
        status = 0
    except BaseException:  # noqa: BLE001 - the child must end here, whatever happened
        traceback.print_exc()
    finally:
        os._exit(status)


def kill_after(child: int, seconds: float) -> bool:
    """Kill -9 after some time; False if the child had ended before, as it should, with status 0."""
    time.sleep(seconds)
    os.kill(child, signal.SIGKILL)
    status = os.waitpid(child, 0)[1]
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0
    return os.WIFSIGNALED(status)


def refused(action: Callable[[], object]) -> None:
    try:
        action()
    except dice.DiceError as error:
        assert_sentence(error)
    else:
        raise AssertionError("nothing was refused")


def cells(n: int = 300, d: int = 30) -> ad.AnnData:
    rng = np.random.default_rng(0)
    rates = np.exp(rng.normal(size=(3, d)))[rng.integers(3, size=n)]
    return ad.AnnData(np.log1p(rng.poisson(rates)).astype(np.float32))


def killed_training(folder: Path) -> int:
    """Training with a checkpoint is killed and taken up until it ends, again and again: always the same prior.

    The cells are counts, so that it may be killed in the training of the measurement as well.
    """
    _train.EVERY_STEPS = 5
    adata, state = cells(), folder / "state.npz"
    arguments = {"max_steps": 400, "batch_size": 64}
    begin = time.perf_counter()
    expected = dice.tl.train_prior(adata, n_latent=5, copy=True, training=dice.Training(**arguments)).uns["dice"][
        "sha256"
    ]
    seconds = time.perf_counter() - begin

    def train() -> None:
        training = dice.Training(checkpoint=state, **arguments)
        prior = dice.tl.train_prior(adata, n_latent=5, copy=True, training=training).uns["dice"]
        assert prior["sha256"] == expected

    kills = 0
    while kills < KILLS_AT_WORK:
        killed = kill_after(forked(train), RNG.uniform(0, 0.7 * seconds))
        kills += killed
        if state.exists():
            with np.load(state) as arrays:
                assert 0 < arrays["progress"][0] <= 400
        if not killed:
            state.unlink()
    train()
    return kills


def killed_save(folder: Path) -> int:
    """Prior.save is killed while it replaces a file: there is always one whole prior, the old or the new."""
    priors = [dice.Prior.load(fixture(kind)) for kind in ("gmm", "labels")]
    known = {prior.to_arrays()["sha256"] for prior in priors}
    path = folder / "prior.h5ad"
    priors[0].save(path)

    def save() -> None:
        while True:
            for prior in priors:
                prior.save(path)

    for _ in range(KILLS):
        assert kill_after(forked(save), RNG.uniform(0, 0.15))
        assert dice.Prior.load(path).to_arrays()["sha256"] in known
    return KILLS


def killed_stream(folder: Path) -> int:
    """Denoising from file to file is killed: the store is whole or not there, and the next call is not disturbed."""
    adata, source, output = cells(600), folder / "query.h5ad", folder / "denoised.zarr"
    dice.tl.train_prior(adata, n_latent=5, training=dice.Training(max_steps=50))
    prior = dice.Prior.from_anndata(adata)
    adata.write_h5ad(source)

    def denoise() -> None:
        dice.tl.denoise_to_zarr(source, prior, output, chunk_size=20, n_samples=2)

    begin = time.perf_counter()
    denoise()
    seconds = time.perf_counter() - begin
    expected = {key: ad.read_zarr(output).obsm[key] for key in ("X_dice", "X_dice_samples")}
    shutil.rmtree(output)
    kills = 0
    while kills < KILLS_AT_WORK:
        killed = kill_after(forked(denoise), RNG.uniform(0, 0.7 * seconds))
        kills += killed
        assert killed or output.exists()
        if output.exists():
            result = ad.read_zarr(output)
            for key, values in expected.items():
                np.testing.assert_allclose(result.obsm[key], values, atol=1e-4)
            shutil.rmtree(output)
    return kills


def _killed_output(folder: Path, name: str) -> int:
    """The writer of all commands is killed while it replaces an output: there is always one whole, old or new."""
    path, versions = folder / name, [cells(300 + 10 * number) for number in range(2)]
    write(versions[0], path)

    def replace() -> None:
        while True:
            for version in versions:
                write(version, path)

    for _ in range(KILLS):
        assert kill_after(forked(replace), RNG.uniform(0.02, 0.4))
        # A store takes two renamings: between them, the old one is beside its place.
        found = path if path.exists() else next(iter(sorted(folder.glob(f".*.{name}"))))
        result = read(found)
        np.testing.assert_array_equal(result.X, versions[(result.n_obs - 300) // 10].X)
        for rest in folder.glob(f".*.{name}"):
            if path.exists():
                remove(rest)
            else:
                rest.rename(path)
    return KILLS


def killed_file(folder: Path) -> int:
    """An .h5ad file that a command replaces."""
    return _killed_output(folder, "out.h5ad")


def killed_store(folder: Path) -> int:
    """A store of zarr that a command replaces."""
    return _killed_output(folder, "out.zarr")


def full_disk(folder: Path) -> int:
    """No room for the next byte, at any place: the old file stays, and no half of a new one."""
    prior = dice.Prior.load(fixture("labels"))
    prior.save(folder / "prior.h5ad")
    before = (folder / "prior.h5ad").read_bytes()

    def save() -> None:
        room = int(RNG.integers(len(before)))
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))
        refused(lambda: prior.save(folder / "prior.h5ad"))

    for _ in range(KILLS):
        RNG.random()
        assert os.waitpid(forked(save), 0)[1] == 0
        assert (folder / "prior.h5ad").read_bytes() == before
        assert [file.name for file in folder.iterdir()] == ["prior.h5ad"]
    return KILLS


def full_disk_in_training(folder: Path) -> int:
    """A checkpoint that does not fit is warned of, and the training ends as ever."""
    adata, arguments = cells(), {"max_steps": 60, "batch_size": 64}
    expected = dice.tl.train_prior(adata, n_latent=5, copy=True, training=dice.Training(**arguments)).uns["dice"][
        "sha256"
    ]

    def train() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (ROOM, ROOM))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            training = dice.Training(checkpoint=folder / "state.npz", **arguments)
            prior = dice.tl.train_prior(adata, n_latent=5, copy=True, training=training).uns["dice"]
        assert any("could not be written" in str(warning.message) for warning in caught)
        assert prior["sha256"] == expected

    for _ in range(5):
        assert os.waitpid(forked(train), 0)[1] == 0
        assert not list(folder.iterdir())
    return 5


def read_only_folder(folder: Path) -> int:
    """Refused at once, for a prior and for a checkpoint; as another user where this one may write everywhere."""
    prior, adata = dice.Prior.load(fixture("plain")), cells()
    folder.chmod(0o555)

    def write() -> None:
        if os.getuid() == 0:
            os.setuid(65534)
        refused(lambda: prior.save(folder / "prior.h5ad"))
        refused(lambda: dice.tl.train_prior(adata, n_latent=3, training=dice.Training(checkpoint=folder / "state.npz")))
        assert "dice" not in adata.uns

    assert os.waitpid(forked(write), 0)[1] == 0
    folder.chmod(0o755)
    assert not list(folder.iterdir())
    return 2


def vanished_file(folder: Path) -> int:
    """A prior that is no longer there, and a query whose file goes away or is cut short while it is read."""
    query = cells()
    dice.tl.train_prior(query, n_latent=5, training=dice.Training(max_steps=20))
    prior = dice.Prior.from_anndata(query)
    prior.save(folder / "prior.h5ad")
    (folder / "prior.h5ad").unlink()
    refused(lambda: dice.tl.denoise(query, folder / "prior.h5ad"))
    for _ in range(TRIALS):
        query.write_h5ad(folder / "query.h5ad")
        backed = ad.read_h5ad(folder / "query.h5ad", backed="r")
        os.truncate(folder / "query.h5ad", int(RNG.integers(2000)))
        with dice.settings.using(chunk_size=10):
            refused(lambda backed=backed: dice.tl.denoise(backed, prior))
        assert "X_dice" not in backed.obsm
        backed.file.close()
    return TRIALS + 1


def truncated_prior(folder: Path) -> int:
    """A file that ends too early is refused, wherever it ends."""
    contents = [fixture(kind).read_bytes() for kind in ("paper", "labels")]
    for trial in range(TRIALS):
        content = contents[trial % 2]
        (folder / "prior.h5ad").write_bytes(content[: RNG.integers(len(content))])
        refused(lambda: dice.Prior.load(folder / "prior.h5ad"))
    return TRIALS


FAULTS = {
    "kill -9 while a command writes its .h5ad": killed_file,
    "kill -9 while a command writes its .zarr": killed_store,
    "kill -9 in a training with checkpoint": killed_training,
    "kill -9 in Prior.save": killed_save,
    "kill -9 in denoising from file to file": killed_stream,
    "full disk in Prior.save": full_disk,
    "full disk for a checkpoint": full_disk_in_training,
    "read-only folder": read_only_folder,
    "vanished or truncated file of a prior or a query": vanished_file,
    "truncated prior": truncated_prior,
}


def main() -> int:
    torch.set_num_threads(1)
    dice.settings.verbosity = 0
    with TABLE.open(newline="") as file:
        rows, failed = {row["fault"]: row for row in csv.DictReader(file)}, 0
    chosen = [name for name in FAULTS if not sys.argv[1:] or any(word in name for word in sys.argv[1:])]
    for name in chosen:
        inject = FAULTS[name]
        folder, begin, injected, lost = Path(tempfile.mkdtemp()), time.perf_counter(), 0, 0
        try:
            injected = inject(folder)
        except Exception:  # noqa: BLE001 - the others are tried all the same
            traceback.print_exc()
            lost = 1
        finally:
            shutil.rmtree(folder)
        minutes = (time.perf_counter() - begin) / 60
        rows[name] = {"fault": name, "injected": injected, "lost": lost, "minutes": round(minutes, 1)}
        print(rows[name], flush=True)
        failed += lost
    with TABLE.open("w", newline="") as file:
        writer = csv.DictWriter(file, ["fault", "injected", "lost", "minutes"], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows[name] for name in FAULTS if name in rows)
    return failed


if __name__ == "__main__":
    sys.exit(main())
