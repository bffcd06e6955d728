"""Names of human and mouse genes: symbols, Ensembl ids, former symbols and one-to-one orthologs.

The table is made by ``priors/gene_names.py`` of the repository, which names its sources and their dates.
"""

import re
from functools import cache
from importlib.resources import files
from typing import Literal, NamedTuple

import pandas as pd

Species = Literal["human", "mouse"]
#: Stable identifiers of Ensembl for genes of any species, with or without a version.
ENSEMBL = re.compile(r"(ENS[A-Z]*G\d{6,})(\.\d+)?")
PREFIX: dict[Species, str] = {"human": "ENSG", "mouse": "ENSMUSG"}
#: Smallest share of known names that identifies a species.
KNOWN = 0.1


class Names(NamedTuple):
    """Names of the genes of a species."""

    #: Current symbol and kind of name for every known name: symbols (as spelled and in capitals), Ensembl ids, and
    #: former symbols (in capitals).
    known: dict[str, tuple[str, str]]
    #: Symbols of the one-to-one orthologs in the other species.
    orthologs: dict[str, str]

    def symbol(self, name: str) -> tuple[str, str]:
        """Return the current symbol and the kind of name. An unknown name is returned unchanged."""
        return self.known.get(name) or self.known.get(name.upper()) or (name, "")


@cache
def names_of(species: Species) -> Names:
    """Return the names of a species. The table is read once."""
    table = _table()
    rows = table[table["species"] == species]
    found = {old.upper(): (row.symbol, "former symbol") for row in rows.itertuples() for old in row.former.split()}
    alone = rows[~rows["symbol"].str.upper().duplicated(keep=False)]
    found |= {symbol.upper(): (symbol, "case") for symbol in alone["symbol"]}
    found |= {
        f"{PREFIX[species]}{number:0>11}": (row.symbol, "Ensembl id")
        for row in rows.itertuples()
        for number in row.ids.split()
    }
    found |= {symbol: (symbol, "name") for symbol in rows["symbol"]}
    pairs = table.loc[table["mouse"] != "", ["symbol", "mouse"]].to_numpy()
    return Names(found, dict(pairs if species == "human" else pairs[:, ::-1]))


@cache
def _table() -> pd.DataFrame:
    with files("dice._data").joinpath("gene_names.csv.gz").open("rb") as file:
        return pd.read_csv(file, compression="gzip", dtype=str, keep_default_na=False)


def species_of(names: pd.Index) -> Species | None:
    """Return the species of most names, by symbols in their usual case and Ensembl ids. None if few names are known."""
    bare, kinds = without_versions(names), ("name", "Ensembl id")
    known: dict[Species, int] = {
        species: sum(names_of(species).known.get(name, ("", ""))[1] in kinds for name in bare) for species in PREFIX
    }
    best = max(known, key=lambda species: known[species])
    return best if known[best] >= KNOWN * max(len(bare), 1) else None


def without_versions(names: pd.Index) -> pd.Index:
    """Remove versions: ENSG00000141510.18 becomes ENSG00000141510. The suffix of pseudoautosomal genes stays."""
    return pd.Index([ENSEMBL.sub(r"\1", name) for name in names], dtype=object)


def unified(names: pd.Index, species: Species | None, wanted: Species | None) -> tuple[pd.Index, list[str]]:
    """Return symbols of the `wanted` species in capitals, and the kind of name that gave each symbol.

    A gene without a one-to-one ortholog in that species has no name.
    """
    bare = without_versions(names)
    found = [(name, "") if species is None else names_of(species).symbol(name) for name in bare]
    if species is not None and wanted not in (None, species):
        found = [(names_of(species).orthologs.get(symbol, ""), "ortholog") for symbol, _ in found]
    return pd.Index([symbol.upper() for symbol, _ in found], dtype=object), [way for _, way in found]
