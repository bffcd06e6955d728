"""Names of human and mouse genes: symbols, Ensembl ids, former symbols and one-to-one orthologs.

The table is made by ``priors/gene_names.py`` of the repository, which names its sources and their dates.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Literal

import pandas as pd

Species = Literal["human", "mouse"]
#: Ensembl's stable identifiers, for genes of any species, with or without a version.
ENSEMBL = re.compile(r"(ENS[A-Z]*G\d{6,})(\.\d+)?")
PREFIX: dict[Species, str] = {"human": "ENSG", "mouse": "ENSMUSG"}
#: Share of the names of an object that must be known for its species to be told by them.
KNOWN = 0.1


@dataclass(frozen=True)
class Names:
    """Names of the genes of a species, each with the symbol of today."""

    symbols: frozenset[str]
    #: By the symbol in capitals, the Ensembl id, or the former symbol in capitals.
    current: dict[str, str]
    ids: dict[str, str]
    former: dict[str, str]
    #: Symbols of the one-to-one orthologs in the other species.
    orthologs: dict[str, str]

    def symbol(self, name: str) -> tuple[str, str]:
        """The symbol of today, and by what it was found: ``"id"``, ``"former symbol"``, or nothing if it is a symbol.

        An unknown name stays as it is.
        """
        capitals = name.upper()
        if capitals in self.ids:
            return self.ids[capitals], "id"
        if name in self.symbols:
            return name, ""
        if capitals in self.current:
            return self.current[capitals], ""
        return (self.former[capitals], "former symbol") if capitals in self.former else (name, "")


@cache
def names_of(species: Species) -> Names:
    """The names of a species, read from the table of the package once."""
    table = _table()
    rows = table[table["species"] == species]
    pairs = table.loc[table["mouse"] != "", ["symbol", "mouse"]].to_numpy()
    ids = ((number, symbol) for symbol, some in zip(rows["symbol"], rows["ids"], strict=True) for number in some.split())
    former = ((old, new) for new, some in zip(rows["symbol"], rows["former"], strict=True) for old in some.split())
    capitals = rows["symbol"].str.upper()
    alone = ~capitals.duplicated(keep=False)
    return Names(
        frozenset(rows["symbol"]),
        dict(zip(capitals[alone], rows["symbol"][alone], strict=True)),
        {f"{PREFIX[species]}{number:0>11}": symbol for number, symbol in ids},
        {old.upper(): new for old, new in former},
        dict(pairs) if species == "human" else dict(pairs[:, ::-1]),
    )


@cache
def _table() -> pd.DataFrame:
    with files("dice._data").joinpath("gene_names.csv.gz").open("rb") as file:
        return pd.read_csv(file, compression="gzip", dtype=str, keep_default_na=False)


def species_of(names: pd.Index) -> Species | None:
    """The species that most names belong to, by symbols in its spelling or by ids; None if few are known."""
    bare = without_versions(names)
    shares: dict[Species, float] = {
        species: sum(name in known.symbols or name in known.ids for name in bare) / max(len(bare), 1)
        for species, known in ((species, names_of(species)) for species in PREFIX)
    }
    best = max(shares, key=lambda species: shares[species])
    return best if shares[best] >= KNOWN else None


def without_versions(names: pd.Index) -> pd.Index:
    """ENSG00000141510.18 becomes ENSG00000141510; all else stays, also the suffix of pseudoautosomal genes."""
    return pd.Index([ENSEMBL.sub(r"\1", name) for name in names], dtype=object)


def unified(names: pd.Index, species: Species | None, wanted: Species | None) -> tuple[pd.Index, list[str]]:
    """Names in capitals that are the same for the same gene, and what each was found by.

    Symbols are those of the species that is `wanted`; a gene without a one-to-one ortholog there has no name.
    """
    bare = without_versions(names)
    if species is None:
        return bare.str.upper(), [""] * len(bare)
    known = names_of(species)
    found = [known.symbol(name) for name in bare]
    if wanted in (None, species):
        return pd.Index([symbol.upper() for symbol, _ in found], dtype=object), [way for _, way in found]
    other = [known.orthologs.get(symbol, "") for symbol, _ in found]
    return pd.Index([symbol.upper() for symbol in other], dtype=object), ["ortholog"] * len(other)
