"""Thousands of forged priors, damaged files and odd objects: `make fuzz`. Writes docs/benchmarks/fuzz.csv.

Each input is tried in a worker process with little memory and a clock, and under Python's audit hooks: a crash, a
hang, an error that is not ours or a look at other files is found and counted. Input number i of a kind is always the
same one; to see what became of it:

    python tests/hazards/fuzz.py forged-prior 4711

With names of kinds alone, these are tried, and the rows of the others stay as they are:

    python tests/hazards/fuzz.py forged-file flipped-file
"""

from __future__ import annotations

import csv
import faulthandler
import os
import resource
import select
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
TABLE = ROOT / "docs" / "benchmarks" / "fuzz.csv"
#: Inputs of each kind.
KINDS = {"forged-file": 2_500, "forged-cells": 500, "forged-prior": 7_500, "flipped-file": 2_500, "odd-anndata": 1_000}
#: Memory and time that one input may take, and how many a worker tries before a new one takes over.
BYTES, SECONDS, BATCH = 2 * 2**30, 300, 250
VERDICTS = ("refused", "accepted", "wrong", "hung", "lost in HDF5")
#: Events that no input may cause, whatever it is.
FORBIDDEN = (
    "os.system",
    "os.exec",
    "os.posix_spawn",
    "subprocess.Popen",
    "socket.",
    "pickle.find_class",
    "shutil.rmtree",
)


def forged_prior(rng: Any, folder: Path) -> str:
    """A prior with one field changed, as it is and through a random door as a file."""
    from hazards import forged_files, forgery

    raw = forgery.forge(rng)
    verdict = forgery.verdict(raw)
    if not forgery.is_endless(raw):
        forged_files.check_fields(raw, rng, folder)
    return verdict


def forged_file(rng: Any, folder: Path) -> str:
    """A file that is made to harm, at a random door."""
    from hazards import forged_files

    return forged_files.verdict(rng, folder)


def forged_cells(rng: Any, folder: Path) -> str:
    """A file of a reference that is made to harm outside of its prior, at a door that reads all of it."""
    from hazards import forged_files

    return forged_files.verdict_on_cells(rng, folder)


def flipped_file(rng: Any, folder: Path) -> str:
    """Some bytes of a saved prior changed, or the file cut short."""
    import dice
    from hazards import forgery

    kind = forgery.KINDS[rng.integers(len(forgery.KINDS))]
    content = bytearray(forgery.content(kind))
    for _ in range(int(rng.choice([1, 1, 2, 8, 64]))):
        content[rng.integers(len(content))] ^= 1 << rng.integers(8)
    if rng.random() < 0.1:
        del content[rng.integers(len(content)) :]
    path = folder / "flipped.h5ad"
    path.write_bytes(content)
    try:
        prior = dice.Prior.load(path)
    except dice.DiceError as error:
        forgery.assert_sentence(error)
        return "refused"
    # The change was somewhere else in the file: what was read is the original to the bit.
    assert prior.to_arrays()["sha256"] == forgery.stored(kind)["sha256"]
    return "accepted"


def odd_anndata(rng: Any, folder: Path) -> str:
    from hazards import oddities

    return oddities.verdict(rng)


def is_own_pickle(caller: Any) -> bool:
    """Whether dask unpickles what it has pickled a line before, to name a step of a stream: no byte is from a file."""
    return (caller.f_globals.get("__name__"), caller.f_code.co_name) == ("dask.tokenize", "_normalize_pickle")


def work(kind: str, numbers: range) -> None:
    """Try inputs one by one, saying before and after each what it was."""
    import anndata as ad
    import matplotlib.font_manager  # noqa: F401 - colours of labels need it, and its list of fonts is a file
    import numpy as np

    import dice

    dice.settings.verbosity = 0
    warnings.simplefilter("error", RuntimeWarning)
    for category in (dice.DiceWarning, UserWarning, FutureWarning, ad.ImplicitModificationWarning):
        warnings.simplefilter("ignore", category)
    attempt = globals()[kind.replace("-", "_")]
    if kind == "odd-anndata":
        from hazards import oddities

        oddities.warm_up()
    folder = Path(tempfile.mkdtemp())
    os.chdir(folder)
    tempfile.tempdir = str(folder)
    if kind in ("forged-file", "forged-cells", "forged-prior"):
        from hazards import forged_files

        forged_files.warm_up(folder)
    if kind in ("forged-prior", "flipped-file"):
        from hazards import forgery

        forgery.warm_up()
    seen: list[str] = []
    home = (str(folder), sys.prefix, sys.base_prefix, str(ROOT), "/proc", "/sys")

    def audit(event: str, arguments: tuple[Any, ...]) -> None:
        place = event in ("open", "shutil.rmtree") and isinstance(arguments[0], str | Path)
        outside = place and not str(Path(arguments[0]).absolute()).startswith(home)
        own = event == "pickle.find_class" and is_own_pickle(sys._getframe(1))
        if outside or (event.startswith(FORBIDDEN) and not place and not own):
            seen.append(f"{event} {arguments}")

    # A forged file must be refused before memory is asked for, so that there is much of it.
    most = BYTES * (4 if kind in ("forged-file", "forged-cells") else 1)
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))
    sys.addaudithook(audit)
    try:
        for number in numbers:
            print(f"{number} ...", flush=True)
            # Whoever hangs says where: flipped bytes can make the HDF5 library itself go round in circles.
            faulthandler.dump_traceback_later(SECONDS, exit=True, file=sys.stdout)
            seen.clear()
            try:
                verdict = attempt(np.random.default_rng([len(kind), number]), folder)
                # scanpy's and numba's own caches may be read in an analysis, but not because of a prior.
                assert not seen or kind == "odd-anndata", f"forbidden: {seen}"
            except Exception:  # noqa: BLE001 - any error that is not ours is what we look for
                verdict = "WRONG " + traceback.format_exc()
            print(f"{number} {verdict!r}", flush=True)
    finally:
        faulthandler.cancel_dump_traceback_later()
        shutil.rmtree(folder)
    print(f"memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024}", flush=True)


def supervise(kind: str, numbers: range) -> tuple[Counter[str], list[str], int]:
    """Verdicts on a batch, what went wrong, and the largest memory in MB; a worker that dies is replaced."""
    verdicts: Counter[str] = Counter()
    wrong: list[str] = []
    memory, start = 0, numbers.start
    while start < numbers.stop:
        command = [sys.executable, __file__, "--work", kind, str(start), str(numbers.stop)]
        worker = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, bufsize=0, cwd=ROOT)
        stuck = ""
        while line := _next_line(worker):
            first, _, rest = line.partition(" ")
            if first == "memory":
                memory, start = max(memory, int(rest)), numbers.stop
            elif not first.isdigit():
                stuck += line
                continue
            elif rest.startswith("'WRONG"):
                wrong.append(f"{kind} {first}: {rest}")
                verdicts["wrong"] += 1
            elif rest != "...\n":
                verdicts[rest.strip().strip("'")] += 1
            start = int(first) + 1 if first.isdigit() else start
        worker.kill()
        if worker.wait() and start < numbers.stop:
            # A flipped bit may make the HDF5 library itself crash, or never return: counted, and told apart.
            # The main thread comes last: others, such as that of a progress bar, only wait.
            main_thread = stuck.rpartition("(most recent call first)")[2].splitlines()
            innermost = next((line for line in main_thread if line.startswith("  File")), "")
            how = "hung" if innermost and ("h5py" not in innermost or kind != "flipped-file") else "lost in HDF5"
            verdicts[how] += 1
            if how == "hung" or kind != "flipped-file":
                wrong.append(f"{kind} {start - 1}: exit status {worker.returncode}\n{stuck}")
    return verdicts, wrong, memory


def _next_line(worker: subprocess.Popen[bytes]) -> str:
    assert worker.stdout is not None
    ready, _, _ = select.select([worker.stdout], [], [], 10 * SECONDS)
    return worker.stdout.readline().decode() if ready else ""


def main(kinds: list[str]) -> int:
    os.environ.update(OMP_NUM_THREADS="1", NUMBA_NUM_THREADS="1", MPLBACKEND="agg")
    problems: list[str] = []
    for kind in kinds or KINDS:
        begin, total, tried, most = time.perf_counter(), KINDS[kind], 0, 0
        verdicts: Counter[str] = Counter()
        batches = [range(start, min(start + BATCH, total)) for start in range(0, total, BATCH)]
        with ThreadPoolExecutor(int(os.environ.get("JOBS", "2"))) as pool:
            found = pool.map(lambda batch, kind=kind: supervise(kind, batch), batches)
            for batch, (more, wrong, memory) in zip(batches, found, strict=True):
                verdicts, tried, most = verdicts + more, tried + len(batch), max(most, memory)
                problems += wrong
                print(*wrong, sep="\n", end="\n" * bool(wrong))
                row = {"input": kind, "tried": tried} | {name: verdicts[name] for name in VERDICTS}
                row |= {"largest memory (MB)": most, "minutes": round((time.perf_counter() - begin) / 60, 1)}
                publish(row)
        print(row, flush=True)
    return bool(problems)


def publish(row: dict[str, Any]) -> None:
    """Write the row of a kind into the table, in the order of the kinds; a run that is ended keeps what it tried."""
    with TABLE.open(newline="") as file:
        rows = {old["input"]: old for old in csv.DictReader(file)} | {row["input"]: row}
    with TABLE.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(row), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows[kind] for kind in KINDS if kind in rows)


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT / "tests"))
    if sys.argv[1:2] == ["--work"]:
        work(sys.argv[2], range(int(sys.argv[3]), int(sys.argv[4])))
    elif sys.argv[2:] and sys.argv[2].isdigit():
        work(sys.argv[1], range(int(sys.argv[2]), int(sys.argv[2]) + 1))
    else:
        sys.exit(main(sys.argv[1:]))
