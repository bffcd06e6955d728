"""A tree of labels from an ontology of cell types, in which a term may have several parents."""

from __future__ import annotations

from typing import Any

from dice._errors import InputError


def parents_in_ontology(path: str, labels: list[str]) -> dict[str, str]:
    """Return the parent of every label and node, for labels that are ids or exact names of terms of an .obo file.

    A term with several parents cannot stand in a tree below all of them. Terms are therefore added from specific to
    general (few labels first, then many ancestors), and only if their labels are nested in those of earlier terms.
    """
    graph = _read(path)
    import networkx as nx  # obonet needs it as well

    by_name = {data["name"]: term for term, data in graph.nodes(data=True) if "name" in data}
    terms = {label: label if label in graph else by_name.get(label, "") for label in labels}
    unknown = sorted(label for label, term in terms.items() if not term)
    if unknown:
        raise InputError(f"{path!r} has no terms with the ids or names {unknown[:5]}: rename these labels.")
    ancestors = {label: nx.descendants(graph, term) - {term} for label, term in terms.items()}
    held: dict[str, set[str]] = {term: {label} for label, term in terms.items()}
    for label, above in ancestors.items():
        for term in above:
            held.setdefault(term, set()).add(label)
    own = {term: label for label, term in terms.items()}
    # Terms of cells come first: their cells should not become a label beside those below them.
    order = sorted(held, key=lambda t: (t not in own, len(held[t]), -len(nx.descendants(graph, t)), t))
    kept: dict[str, frozenset[str]] = {}
    for term in order:
        members = frozenset(held[term])
        nested = all(members < other or other < members or not members & other for other in kept.values())
        if nested and len(members) > 1 and (term in own or len(members) < len(labels)):
            kept[own.get(term) or graph.nodes[term].get("name", term)] = members
    parents = {}
    for name in [*labels, *(name for name in kept if name not in terms)]:
        members = kept.get(name, frozenset([name]))
        above = [other for other in kept if other != name and members < kept[other]]
        if above:
            parents[name] = min(above, key=lambda other: len(kept[other]))
    return parents


def _read(path: str) -> Any:
    """Return the terms of an .obo file, with edges from every term to what it is a kind of."""
    try:
        import networkx as nx
        import obonet
    except ImportError as error:
        raise ImportError('An .obo file needs the package obonet: pip install "scdice[ontology]".') from error
    try:
        found = obonet.read_obo(path)
    except (OSError, ValueError) as error:
        raise InputError(f"{path!r} must be an ontology in the .obo format: {error}") from error
    graph = nx.DiGraph((child, parent) for child, parent, kind in found.edges(keys=True) if kind == "is_a")
    graph.add_nodes_from(found.nodes(data=True))
    return graph
