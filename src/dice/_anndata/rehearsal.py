"""Several calls as one: each works on a stand-in, and what they wrote goes to the user's object at the end, or not."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

from anndata import AnnData

from dice._anndata.write import Slots, watching, write


@dataclass
class Rehearsal:
    """A user's object, and one with the same matrices whose other slots can be written to without touching it."""

    adata: AnnData
    stage: AnnData = field(init=False)
    written: Slots = field(default_factory=Slots)

    def __post_init__(self) -> None:
        adata = self.adata
        slots = {name: dict(getattr(adata, name)) for name in ("uns", "obsm", "varm", "obsp", "layers")}
        self.stage = AnnData(adata.X, obs=adata.obs.copy(), var=adata.var.copy(), **slots)

    def watch(self, target: AnnData, slots: Slots) -> None:
        if target is self.stage:
            self.written = self.written | slots

    def perform(self, *, copy: bool = False) -> AnnData | None:
        """Write everything to the user's object and return None, or to a copy of it and return that."""
        return write(self.adata, self.written, copy=copy)


@contextmanager
def rehearsing(*adatas: AnnData) -> Iterator[list[Rehearsal]]:
    """Stand-ins for some objects, within a block."""
    rehearsals = [Rehearsal(adata) for adata in adatas]
    with ExitStack() as stack:
        for rehearsal in rehearsals:
            stack.enter_context(watching(rehearsal.watch))
        yield rehearsals
