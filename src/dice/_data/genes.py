"""Match the genes of a query with the genes of a prior, by name."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from anndata import AnnData
from numpy.typing import NDArray

from dice import _log
from dice._arguments import is_text, known_key, number, said
from dice._data.gene_names import Species, names_of, species_of, unified
from dice._errors import InputError
from dice._model.schema import MAX_NAME
from dice._types import Codes, Mask
from dice.options import Options

#: Share of the prior's genes below which a warning is shown, and share below which a query is refused.
FEW, TOO_FEW = 0.8, 0.2
#: Number of missing genes listed in the report.
NAMED_GENES = 10
#: Ways in which genes with another name are found. The first way that applies is reported.
WAYS = ("ortholog", "former symbol", "Ensembl id")
#: Missing names that were stored as text.
_NAMELESS = ("nan", "None", "<NA>")


@dataclass(frozen=True)
class GeneMatch:
    """Genes that a query and a prior share, in the order of the prior.

    ``query`` and ``prior`` hold the positions of the shared genes in the query and in the prior. ``names`` are all
    genes of the query, ``wanted`` all genes of the prior, and ``missing`` the genes that only the prior has. ``ways``
    counts the genes that were found by name, Ensembl id, former symbol, case and ortholog.
    """

    query: Codes
    prior: Codes
    names: pd.Index
    wanted: pd.Index
    missing: NDArray[np.object_] = field(default_factory=lambda: np.empty(0, dtype=object))
    ways: Mapping[str, int] = field(default_factory=dict)

    @property
    def fraction(self) -> float:
        """Share of the prior's genes that the query has."""
        return len(self.prior) / len(self.wanted)

    def __str__(self) -> str:
        return f"{len(self.prior)}/{len(self.wanted)} genes found"

    def report(self) -> dict[str, Any]:
        """Return the match in a form that files can hold."""
        return {
            "text": str(self),
            "n_found": len(self.prior),
            "n_prior": len(self.wanted),
            "fraction": self.fraction,
            "missing": self.missing[:NAMED_GENES].astype(str),
            "ways": dict(self.ways),
        }


def match_genes(
    adata: AnnData, genes: NDArray[np.object_], *, gene_key: str | None = None, min_overlap: float = TOO_FEW,
    species: str = "auto",
) -> GeneMatch:  # fmt: skip
    """Find the `genes` of a prior in a query. Missing genes are unobserved.

    Genes that are not found by name are searched by Ensembl id, by former symbol, without regard to case, and between
    human and mouse by one-to-one ortholog. Ambiguous names do not match.

    Parameters
    ----------
    adata
        The query.
    genes
        Names in the prior.
    gene_key
        Column of ``adata.var`` with the query's names; None uses ``adata.var_names``.
    min_overlap
        Share of the prior's genes that the query must have.
    species
        Species of the query; ``"auto"`` finds the species by the names.
    """
    number("min_gene_overlap", min_overlap, least=0, most=1)
    match = _match(adata, genes, gene_key, species)
    _judge(match, adata, gene_key, min_overlap)
    if match.ways.keys() - {"name"}:
        _log.say(f"{match}: {', '.join(f'{n:,} by {way}' for way, n in match.ways.items())}.")
    return match


def _match(adata: AnnData, genes: Any, gene_key: str | None, species: str = "auto") -> GeneMatch:
    names, wanted = gene_names(adata, gene_key), _as_text(genes)
    check_unique(names[names != ""], _where(gene_key))
    positions, ways = _positions(names, wanted, species)
    found = np.flatnonzero(positions >= 0)
    missing = wanted[positions < 0].to_numpy(dtype=object)
    return GeneMatch(positions[found], found, names, wanted, missing, ways)


def genes_in_both(adata: AnnData, reference: AnnData, options: Options) -> Mask:
    """Return a mask (n_vars,) of the reference genes that the query also has. Raise an error if there are none."""
    check_storable(reference.var_names, "reference.var_names")
    match = _match(adata, reference.var_names, options.gene_key, options.check.species)
    if len(match.prior) < TOO_FEW * min(len(match.wanted), len(match.names)):
        _judge(match, adata, options.gene_key, min_overlap=0.0)
    return np.isin(np.arange(len(match.wanted)), match.prior)


def share_of_genes(adata: AnnData, genes: NDArray[np.object_], options: Options) -> float:
    """Return the share of the genes of a prior that a query has."""
    return _share(gene_names(adata, options.gene_key), _as_text(genes), options.check.species)


def gene_names(adata: AnnData, gene_key: str | None = None) -> pd.Index:
    """Return the names of all genes as text, from ``var_names`` or a column of ``var``; missing names are empty."""
    if gene_key is not None:
        known_key(gene_key, adata.var, "column", "adata.var")
    return _as_text(adata.var_names if gene_key is None else adata.var[gene_key])


def by_name(adata: AnnData, genes: NDArray[Any] | None = None) -> Codes:
    """Return the positions of genes (a mask, positions, or all), sorted by name, so that file order has no effect."""
    positions = np.arange(adata.n_vars) if genes is None else np.arange(adata.n_vars)[genes]
    return positions[np.argsort(adata.var_names.to_numpy(dtype=str)[positions], kind="stable")]


def check_unique(names: pd.Index, where: str) -> None:
    """Raise an error if gene names are duplicated."""
    if not names.is_unique:
        doubles = list(names[names.duplicated()].unique()[:5])
        who = where.partition(".")[0] if where.startswith(("adata.", "reference.")) else "adata"
        column = where.startswith(f"{who}.var[")
        fix = f"{who} = {who}[:, ~{where}.duplicated()]" if column else f"{who}.var_names_make_unique()"
        raise InputError(f"{where} holds duplicate names, for example {doubles}: call {fix} first.")


def check_storable(names: pd.Index, where: str) -> None:
    """Check that names of genes are unique and that files can hold them."""
    check_unique(names, where)
    odd = [name for name in names if not is_text(name, MAX_NAME)]
    if odd:
        raise InputError(f"{where} holds names that files cannot store, for example {said(odd[0])}: rename them.")


def _where(gene_key: str | None) -> str:
    return "adata.var_names" if gene_key is None else f"adata.var[{gene_key!r}]"


def _as_text(values: Any) -> pd.Index:
    """Return values as text. Missing values become empty text."""
    raw = np.asarray(values, dtype=object)
    text = ["" if gone else str(value).strip() for value, gone in zip(raw, pd.isna(raw), strict=True)]
    return pd.Index(["" if name in _NAMELESS else name for name in text], dtype=object)


def _positions(names: pd.Index, wanted: pd.Index, species: str = "auto") -> tuple[Codes, dict[str, int]]:
    """Return the position in `names` of every wanted gene, or -1 if it is missing.

    Also return how many genes were matched in each way, for example by name or by identifier.
    """
    exact = _indexer(names, wanted)
    if (exact >= 0).all():
        return exact, {"name": len(exact)}
    theirs = species_of(wanted)
    ours: Species | None = (species_of(names) or theirs) if species == "auto" else species  # type: ignore[assignment]
    if ours is not None and theirs not in (None, ours):
        # The same letters in other case are not the same gene in two species: such genes need an ortholog.
        spelled = [names_of(ours).symbol(name)[1] in ("case", "former symbol") for name in names]
        exact[(exact >= 0) & np.array(spelled)[exact]] = -1
    own, by = unified(names, ours, theirs)
    other, theirs_by = unified(wanted, theirs, theirs)
    found = np.where(exact >= 0, exact, _indexer(own, other))
    # A gene of the query that was found by name must not be found again.
    found[(exact < 0) & np.isin(found, exact[exact >= 0])] = -1
    pairs = [(by[found[prior]], theirs_by[prior]) for prior in np.flatnonzero((exact < 0) & (found >= 0))]
    ways = Counter(next((way for way in WAYS if way in pair), "case or version") for pair in pairs)
    ways["name"] = int((exact >= 0).sum())
    return found, {way: ways[way] for way in ("name", *WAYS, "case or version") if ways[way]}


def _indexer(names: pd.Index, wanted: pd.Index) -> Codes:
    """Return the position of every wanted name; -1 if missing or ambiguous."""
    alone = np.flatnonzero(~names.duplicated(keep=False) & (names != ""))
    found = names[alone].get_indexer(wanted)
    found[wanted.duplicated(keep=False)] = -1
    return np.where(found >= 0, np.append(alone, -1)[found], -1)


def _judge(match: GeneMatch, adata: AnnData, gene_key: str | None, min_overlap: float) -> None:
    """Warn if few genes were found, and raise an error if too few genes were found."""
    if match.fraction >= max(FEW, min_overlap):
        return
    hint = _diagnose(match, adata)
    share = f"{match} ({match.fraction:.0%})"
    if not len(match.prior):
        raise InputError(
            f"No genes are shared: the reference has names like {list(match.wanted[:3])}, but {_where(gene_key)} has "
            f"names like {list(match.names[:3])}; {hint or 'set adata.var_names to the same kind of identifier'}."
        )
    if match.fraction < min_overlap:
        enough = np.floor(100 * match.fraction) / 100  # a threshold that this query passes
        raise InputError(
            f"Only {share}; missing genes are, for example, {list(match.missing[:3])}: "
            f"{hint or 'train a prior on the shared genes with dice.tl.annotate(adata, reference)'}, or pass "
            f"check=dice.Checks(min_gene_overlap={enough:g}) to go on."
        )
    advice = f"; {hint}" if hint else ""
    _log.warn(f"{share}: all others are treated as unobserved, for example {list(match.missing[:3])}{advice}.")


def _diagnose(match: GeneMatch, adata: AnnData) -> str:
    """Return the likely reason for missing genes and its fix, or empty text."""
    better = match.fraction + 0.1  # Much better, not just different.
    if _share(_as_text(adata.obs_names), match.wanted) > better:
        return "adata seems to be transposed, with genes as observations: pass adata.T"
    keys: list[str | None] = [None, *adata.var.columns]
    shares = {key: _share(gene_names(adata, key), match.wanted) for key in keys}
    best = max(shares, key=lambda key: shares[key])
    if shares[best] > better:
        call = "leave gene_key out" if best is None else f"pass gene_key={best!r}"
        return f"{_where(best)} matches {shares[best]:.0%} of the prior's genes: {call}"
    return ""


def _share(names: pd.Index, wanted: pd.Index, species: str = "auto") -> float:
    return float((_positions(names, wanted, species)[0] >= 0).mean())
