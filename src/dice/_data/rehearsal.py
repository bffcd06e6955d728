"""Several calls as one: each works on a stand-in, and what they wrote goes to the user's object at the end, or not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

from anndata import AnnData

from dice._data.read import names
from dice._data.write import Slots, watching, write
from dice._keys import names_of_results


@dataclass
class Rehearsal:
    """A user's object, and one with the same matrices whose other slots can be written to without touching it."""

    adata: AnnData
    stage: AnnData = field(init=False)
    written: Slots = field(default_factory=Slots)

    def __post_init__(self) -> None:
        adata = self.adata
        slots = {name: dict(getattr(adata, name)) for name in ("uns", "obsm", "varm", "obsp")}
        slots["layers"] = {name: adata.layers[name] for name in names(adata, "layers")}
        self.stage = AnnData(adata.X, obs=adata.obs.copy(), var=adata.var.copy(), **slots)

    def watch(self, target: AnnData, slots: Slots) -> None:
        if target is self.stage:
            self.written = self.written | slots

    def leave_out_earlier(self) -> None:
        """Take what earlier calls have made, and this one has not, off the stage: the user's object keeps it."""
        for name, keys in _earlier_results(self.stage, self.written).items():
            for key in keys:
                del getattr(self.stage, name)[key]

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


def _earlier_results(adata: AnnData, written: Slots) -> dict[str, list[str]]:
    """Keys in ``uns``, ``obs`` and ``obsm`` of what calls of dice have made, but for those that were `written` now."""
    records = [
        key for key, entry in adata.uns.items() if isinstance(entry, Mapping) and {"call", "warnings"} <= set(entry)
    ]
    made = {slot for key in records if key not in written.uns for slot in names_of_results(key)}
    return {
        name: [key for key in getattr(adata, name) if key in made and key not in getattr(written, name)]
        for name in ("uns", "obs", "obsm")
    }
