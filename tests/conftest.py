from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).resolve().parents[1]


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


@pytest.fixture(autouse=True)
def settings_as_before():
    """Scripts that are imported by tests may silence the package: for themselves alone."""
    from dice import settings

    with settings.using(verbosity=settings.verbosity, device=settings.device, chunk_size=settings.chunk_size):
        yield
