"""Execute the notebooks of this folder, each in a clean kernel and an empty folder, and store their outputs.

python tutorials/run.py [names]
"""

from __future__ import annotations

import base64
import io
import os
import resource
import sys
import tempfile
import time
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from PIL import Image

FOLDER = Path(__file__).parent
#: Seconds of CPU time that a notebook may take: under three minutes, even on one core.
LIMIT = 180
#: Data that do not come with the dependencies, in the folder that DICE_DATA names: without them a notebook is left out.
DATA = {"7_proteins": "bmmc_neurips_cite.h5ad", "8_tissue": "mpfc_starmap.h5ad"}
#: Read from the folder that a kernel starts in.
MATPLOTLIBRC = "figure.dpi: 72\nfigure.max_open_warning: 0\n"


def main() -> None:
    names = sys.argv[1:] or [path.stem for path in sorted(FOLDER.glob("*.ipynb"))]
    os.environ |= {"MPLBACKEND": "module://matplotlib_inline.backend_inline", "PYDEVD_DISABLE_FILE_VALIDATION": "1"}
    folder = Path(os.environ.setdefault("DICE_DATA", str(FOLDER.resolve().parents[1] / "shared" / "data")))
    for name in names:
        if name in DATA and not (folder / DATA[name]).exists():
            print(f"{name}: left out, because {DATA[name]} is not there: set DICE_DATA to its folder.", flush=True)
            continue
        path = FOLDER / f"{name}.ipynb"
        notebook = nbformat.read(path, as_version=4)
        wall, cpu = time.perf_counter(), _cpu_seconds()
        _execute(notebook)
        wall, cpu = time.perf_counter() - wall, _cpu_seconds() - cpu
        nbformat.write(_tidy(notebook), path)
        print(f"{name}: {wall:.0f} s, {cpu:.0f} s of CPU time, {path.stat().st_size / 1e3:.0f} kB", flush=True)
        if cpu > LIMIT:
            sys.exit(f"{name} takes more than {LIMIT} s of CPU time.")


def _execute(notebook: nbformat.NotebookNode) -> None:
    """Run all cells; an error, or anything on stderr, ends the program."""
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "matplotlibrc").write_text(MATPLOTLIBRC)
        client = NotebookClient(
            notebook, timeout=600, kernel_name="python3", record_timing=False,
            resources={"metadata": {"path": folder}},
        )  # fmt: skip
        client.execute()
    warned = [output.text for output in _outputs(notebook) if output.get("name") == "stderr"]
    if warned:
        sys.exit("\n".join(["Cells warn:", *warned]))


def _tidy(notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """Without what differs from machine to machine, and with pictures of 128 colours."""
    notebook.metadata = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    for output in _outputs(notebook):
        data = output.get("data", {})
        if "image/png" in data:
            image = Image.open(io.BytesIO(base64.b64decode(data["image/png"]))).convert("RGB")
            small = io.BytesIO()
            image.quantize(128, dither=Image.Dither.NONE).save(small, format="PNG", optimize=True)
            data["image/png"] = base64.b64encode(small.getvalue()).decode()
    return notebook


def _outputs(notebook: nbformat.NotebookNode) -> list[nbformat.NotebookNode]:
    return [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]


def _cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
