"""Options of functions that read a query: method, likelihood, shift and checks."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from dice import settings
from dice._arguments import choice, number, said, seed, settle, whole_number
from dice._errors import InputError
from dice.options._posterior import Direct, Gaussian, Gibbs, Noise, StudentT

if TYPE_CHECKING:
    import torch

#: A user-defined likelihood: a function from residuals (cells, genes) to log densities (cells,), in torch operations.
LogDensity: TypeAlias = Callable[[Any], Any]
Rho: TypeAlias = float | Sequence[float] | Literal["auto"]
#: How a posterior is computed: by one evaluation, by the fastest chain for Gaussian noise, or by Algorithm 1.
Method: TypeAlias = Literal["direct", "split", "gibbs"]

STRATEGIES = ("auto", "offset", "clusters", "mean", "centered", "standardized", "profiles")
#: Strategies for labels only. They do not move the embedding.
FOR_LABELS = ("centered", "standardized", "profiles")


@dataclass(frozen=True)
class Shift:
    """Settings for a query that differs from the reference as a whole: pass it as ``shift=``.

    Parameters
    ----------
    strategy
        ``"offset"`` uses the prior to find one offset for all cells, whatever the composition of the query.
        ``"clusters"`` finds one offset for each of up to 100 soft clusters of the reference. ``"mean"`` moves the mean
        of the query to the mean of the reference, which is right if both have the same composition. Three strategies
        are for labels only, and allow for a different composition: ``"centered"`` matches the mean of the latents,
        ``"standardized"`` matches the mean and variance of every gene, and ``"profiles"`` compares cells with the mean
        profile of every label. ``"auto"`` averages several views for labels, and does not move embeddings
        (:doc:`/shift`).
    batch_key
        Column of ``adata.obs`` with batches of the query. Each batch gets its own offsets. The offsets of small batches
        are shrunk towards those of the whole query.
    """

    strategy: Literal["auto", "offset", "clusters", "mean", "centered", "standardized", "profiles"] = "auto"
    batch_key: str | None = None

    def __post_init__(self) -> None:
        choice("shift", self.strategy, STRATEGIES)


@dataclass(frozen=True)
class Checks:
    """Checks of a query before the work starts: pass it as ``check=``. True and False set `values` only.

    Parameters
    ----------
    values
        Whether to log-normalise raw counts in ``X``, and to refuse values unlike those of the reference: scaled,
        unlogged or twice logged values, and raw counts in a layer.
    min_gene_overlap
        Smallest share of the prior's genes that the query must have.
    species
        Species of the query: ``"human"``, ``"mouse"``, or ``"auto"`` to recognise it by the names of the genes. If the
        species of query and prior differ, genes are matched by one-to-one orthologs.
    """

    values: bool = True
    min_gene_overlap: float = 0.2
    species: Literal["auto", "human", "mouse"] = "auto"

    def __post_init__(self) -> None:
        number("min_gene_overlap", self.min_gene_overlap, least=0, most=1)
        choice("species", self.species, ("auto", "human", "mouse"))


#: Settings objects by the names of `likelihood` and `method`.
_LIKELIHOODS: dict[str, Any] = {"auto": "auto", "gaussian": Gaussian(), "student_t": StudentT()}
_METHODS: dict[str, Any] = {"auto": "auto", "direct": Direct(), "gibbs": Gibbs()}


@dataclass(frozen=True)
class Options:
    """The options of a call, as documented in :func:`dice.tl.denoise`. Names are replaced by settings objects."""

    rho: Rho = "auto"
    n_samples: int = 0
    likelihood: Any = "auto"
    method: Any = "auto"
    shift: Any = "auto"
    layer: str | None = None
    gene_key: str | None = None
    check: Any = True
    random_state: Any = 0
    uncertainty: bool = True
    #: Device and chunk size, from the package-wide settings at the start of the call.
    device: str = field(default_factory=lambda: settings.device)
    chunk_size: int | None = field(default_factory=lambda: settings.chunk_size)

    def __post_init__(self) -> None:
        rho, size, shift, check = self.rho, self.chunk_size, self.shift, self.check
        settle(
            self,
            rho=rho if isinstance(rho, str) and rho == "auto" else check_rho(rho),
            n_samples=whole_number("n_samples", self.n_samples, least=0),
            random_state=seed(self.random_state),
            chunk_size=None if size is None else whole_number("chunk_size", size),
            method=_named("method", self.method, _METHODS, "a dice.Direct or a dice.Gibbs"),
            likelihood=_named(
                "likelihood", self.likelihood, _LIKELIHOODS, "a dice.Gaussian or a dice.StudentT or a function"
            ),
            shift=shift if shift is False or isinstance(shift, Mapping | Shift) else Shift(shift),
            check=check if isinstance(check, Checks) else Checks(values=choice("check", check, (True, False))),
        )
        if isinstance(self.method, Direct):
            settle(self, uncertainty=self.uncertainty and self.method.uncertainty)

    @property
    def gibbs(self) -> Gibbs:
        """Settings of the Gibbs chains, which ``"auto"`` runs if the direct method is not exact."""
        return self.method if isinstance(self.method, Gibbs) else _METHODS["gibbs"]

    def computed_by(self, *, isotropic: bool) -> Method:
        """Return the method for assumed noise: the direct method if it is exact, otherwise the fastest exact chain."""
        gaussian = isinstance(self.likelihood, str | Gaussian) and np.ndim(self.rho) == 0
        if isinstance(self.method, Gibbs):
            if self.method.fast and not gaussian:
                raise InputError("Gibbs(fast=True) is for Gaussian noise and a single rho: pass dice.Gibbs().")
            return "split" if self.method.fast else "gibbs"
        if gaussian and isotropic:
            return "direct"
        if self.method == "auto":
            return "split" if gaussian else "gibbs"
        raise InputError("method='direct' needs one rho, all genes and equal Gaussian noise: pass method='auto'.")

    @property
    def measurable(self) -> bool:
        """Whether likelihood, method and rho allow for the noise of counts, if the prior has learned it."""
        return not isinstance(self.method, Gibbs) and isinstance(self.likelihood, str) and np.ndim(self.rho) == 0

    @property
    def noise(self) -> Noise:
        """Noise of the likelihood. It is "estimate" for an automatic or user-defined likelihood."""
        return self.likelihood.noise if isinstance(self.likelihood, Gaussian | StudentT) else "estimate"

    @property
    def batch_key(self) -> str | None:
        if isinstance(self.shift, Mapping):
            return self.shift.get("batch_key")
        return self.shift.batch_key if self.shift else None

    def arguments(self, **found: Any) -> dict[str, Any]:
        """Return all arguments that affect the result. Arguments in `found` replace those of the call."""
        names = ("rho", "method", "likelihood", "layer", "gene_key", "check", "random_state")
        # For a stored shift, only the strategy is kept here, because the shift itself is stored, too.
        shift = self.shift["strategy"] if isinstance(self.shift, Mapping) else self.shift
        return {**{name: getattr(self, name) for name in names}, "shift": shift, **found}


RHO = "a number of at least 0, a (start, end) pair, a sequence or 'auto'"


def check_rho(rho: Any, name: str = "rho", expected: str = RHO) -> float | list[float]:
    """Return rho as a number or a list of numbers. `name` and `expected` are words for the error message."""
    try:
        values = np.asarray(rho, dtype=np.float64)
    except (TypeError, ValueError):
        values = np.array(np.nan)
    if values.ndim > 1 or not values.size or not np.isfinite(values).all() or (values < 0).any():
        raise InputError(f"`{name}` must be {expected}, got {said(rho)}.")
    return float(values) if values.ndim == 0 else values.tolist()


def _named(name: str, value: Any, words: Mapping[str, Any], objects: str) -> Any:
    """Return the settings object for a word. If `value` is already a settings object, return it."""
    kinds = tuple(type(word) for word in words.values() if not isinstance(word, str))
    if isinstance(value, kinds) or (name == "likelihood" and callable(value)):
        return value
    if not isinstance(value, str) or value not in words:
        raise InputError(f"`{name}` must be one of {list(words)}, {objects}, got {said(value)}.")
    return words[value]


def torch_device(name: str) -> "torch.device":
    """Return a torch device. ``"auto"`` is CUDA if available, otherwise the CPU."""
    import torch

    name = ("cuda" if torch.cuda.is_available() else "cpu") if str(name) == "auto" else name
    try:
        chosen = torch.device(name)
        torch.empty(0, device=chosen)
    except (RuntimeError, AssertionError, TypeError) as error:
        raise InputError(f"The device {said(name)} cannot be used here: set dice.settings.device = 'cpu'.") from error
    return chosen
