from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from anndata import AnnData

ROOT = Path(__file__).resolve().parents[1]


#: Tests of workflows, figures, mutants, benchmarks and whole programs, and of maps, which compile UMAP: they run last,
#: and not in ``make quick``.
SLOW = (
    "benchmarks", "test_cli.py", "test_doctests.py", "test_figures.py", "test_files.py", "test_graph.py",
    "test_load.py", "test_mutants.py", "test_out_of_core.py", "test_readme.py", "test_report_browser.py",
    "test_supply_chain.py", "test_tutorials.py", "test_workflows.py",
)  # fmt: skip


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark slow tests, and run them after the others."""
    for item in items:
        if not set(item.path.relative_to(ROOT / "tests").parts).isdisjoint(SLOW):
            item.add_marker("slow")
    items.sort(key=lambda item: item.get_closest_marker("slow") is not None)


@pytest.fixture(scope="session")
def shared_data() -> Callable[[str], Path]:
    """Path of a shared data set by its name; without the file, the test is skipped with a reason.

    The folder is the environment variable DICE_DATA, by default ../shared/data from the repository.
    """
    folder = Path(os.environ.get("DICE_DATA", ROOT.parent / "shared" / "data"))

    def path(name: str) -> Path:
        file = folder / f"{name}.h5ad"
        if not file.is_file():
            pytest.skip(f"{file} is not there: set DICE_DATA to the folder of the shared data sets")
        return file

    return path


@pytest.fixture(scope="session")
def counted_pair() -> tuple[AnnData, AnnData]:
    """Counts of ten types: a reference with its prior, and a query. Copy what a test changes."""
    import walk

    return walk.counted_pair()


@pytest.fixture(autouse=True)
def settings_as_before():
    """Scripts that are imported by tests may silence the package: for themselves alone."""
    from dice import settings

    with settings.using(verbosity=settings.verbosity, device=settings.device, chunk_size=settings.chunk_size):
        yield
