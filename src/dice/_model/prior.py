"""A learned prior: projection, denoiser and statistics of the reference, and their form as plain arrays."""

import json
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import asdict, dataclass, field
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from dice._arguments import said
from dice._errors import PriorFormatError
from dice._keys import PANEL_LAYER
from dice._labels.model import LabelModel, describe
from dice._model import networks, schema
from dice._model.likelihood import GaussianLikelihood, Latents
from dice._model.networks import Denoiser
from dice._model.offsets import SoftClusters
from dice._model.projection import Projection
from dice._model.schema import checksum
from dice._types import Floats, Mask

_PROJECTION = ("mean", "scale", "center", "loadings", "singular_values", "gene_noise", "noise", "bulk")
_AS_STORED = ("genes", "latent_scale", "history", "statistics", "params", "calibration")


@dataclass(frozen=True, eq=False)
class LearnedPrior:
    """Everything about a reference that a query needs: projection, denoiser, statistics and labels.

    Parameters
    ----------
    genes
        Names of the d genes, in the order of the loadings.
    projection
        Standardisation, loadings and noise of the reference.
    denoiser
        D(z; depth, s) in units of `latent_scale`, in inference mode.
    latent_scale
        Factor between PCA units and scaled units: latents, noise and rho are divided by it for the denoiser.
    preset
        Name of the preset.
    history
        Training loss and held-out loss by step.
    statistics
        Statistics of the reference's matrix, to compare a query with.
    params
        Arguments of the call that trained the prior.
    calibration
        Latents ``y`` (m, k) and residual variances ``residual`` (m,) of calibration cells in PCA units, or None. The
        training does not use these cells.
    soft_clusters
        Soft clusters of the reference; None if it has too few cells.
    labels
        Label model of the reference; None without labels.
    """

    genes: NDArray[np.object_]
    projection: Projection
    denoiser: Denoiser
    latent_scale: float
    preset: str
    history: Mapping[str, NDArray] = field(default_factory=dict)
    statistics: Mapping[str, float] = field(default_factory=dict)
    params: Mapping[str, Any] = field(default_factory=dict)
    calibration: Mapping[str, NDArray[np.float32]] | None = None
    soft_clusters: SoftClusters | None = None
    labels: LabelModel | None = None

    def __str__(self) -> str:
        """Describe the prior, and its labels by their card."""
        return repr(self) if self.labels is None else f"{self!r}\n{describe(self.labels.card)}"

    def __repr__(self) -> str:
        return f"Prior({self.preset!r}, {len(self.genes)} genes, {self.n_latent} latents)"

    @property
    def is_panel(self) -> bool:
        """Whether the prior was learned from values of :func:`dice.pp.normalize_panel`."""
        return bool(self.params.get("layer") == PANEL_LAYER)

    @property
    def n_latent(self) -> int:
        return int(self.projection.loadings.shape[1])

    @property
    def latent_variances(self) -> NDArray[np.floating]:
        """Variances (k,) of the reference's latents in PCA units."""
        squares = np.square(self.projection.singular_values[: self.n_latent])
        return self.latent_scale**2 * squares / squares.mean()

    @property
    def measured(self) -> bool:
        """Whether the noise of counts was learned, so that the noise of a cell follows from its depth."""
        return self.denoiser.counted

    @property
    def typical(self) -> float:
        """Log depth of a typical cell of the reference; NaN if the noise of counts was not learned."""
        return self.denoiser.typical

    def denoise(self, y: Tensor, s: Tensor | float, log_depth: Tensor | None = None) -> Tensor:
        """Return E[U | y] in PCA units for y (n, k) with Gaussian noise of standard deviation s, () or (n,).

        With log depths (n,), y also has the noise of counts at these depths.
        """
        level = torch.as_tensor(s, dtype=y.dtype, device=y.device)
        return self.denoiser(y / self.latent_scale, level / self.latent_scale, log_depth) * self.latent_scale

    def mean(
        self, y: NDArray[np.floating], log_depth: NDArray[np.floating] | None = None, rho: float = 0.0
    ) -> NDArray[np.float32]:
        """Return the posterior mean (n, k) of cells as an array in PCA units.

        Cells of unknown depth (NaN) are treated as cells of typical depth.
        """
        with torch.inference_mode():
            depths = None if log_depth is None else torch.as_tensor(self.known_depth(log_depth))
            return self.denoise(torch.as_tensor(np.asarray(y, np.float32)), rho, depths).numpy()

    def clean(self, likelihood: GaussianLikelihood, latents: Latents, own: Mask) -> Floats:
        """Return the posterior mean (n, k) of the reference's cells in PCA units.

        The loadings were computed from the `own` cells, and the latents of these cells are corrected for this. Cells
        without counts keep their noisy latents. If the prior has no counts, all cells keep their noisy latents.
        """
        if not self.measured:
            return latents.y
        y = likelihood.honest(latents, own)
        known = np.flatnonzero(~np.isnan(latents.log_depth))
        y[known] = self.mean(y[known], latents.log_depth[known])
        return y

    def known_depth(self, log_depth: NDArray[np.floating]) -> NDArray[np.float32]:
        """Return log depths (n,), with the typical log depth for cells of unknown depth (NaN)."""
        return np.where(np.isnan(log_depth), self.typical, log_depth).astype(np.float32)

    def denoiser_on(self, device: torch.device) -> Denoiser:
        """Return the denoiser on `device`, as a copy if it is on another device."""
        here = next(iter(self.denoiser.state_dict().values())).device
        return self.denoiser if here == device else deepcopy(self.denoiser).to(device)

    def to_arrays(self) -> dict[str, Any]:
        """Return the prior as plain arrays, numbers and strings, with format number and checksum."""
        cap = self.projection.cap
        config: dict[str, Any] = {"preset": self.preset, "kind": self.denoiser.kind, "denoiser": self.denoiser.config}
        config["cap"] = float(cap) if np.isfinite(cap) else None
        raw: dict[str, Any] = {name: getattr(self.projection, name) for name in _PROJECTION}
        raw |= {"format": schema.FORMAT, "config": json.dumps(config, sort_keys=True)}
        raw |= {"genes": np.asarray(self.genes, dtype=object), "latent_scale": float(self.latent_scale)}
        raw |= {"weights": _weights(self.denoiser), "params": json.dumps(dict(self.params), sort_keys=True)}
        raw["history"] = {name: np.asarray(v, np.float32) for name, v in self.history.items()}
        raw["statistics"] = {name: float(v) for name, v in self.statistics.items()}
        if self.calibration is not None:
            raw["calibration"] = {name: np.asarray(x, np.float32) for name, x in self.calibration.items()}
        if self.soft_clusters is not None:
            raw["soft_clusters"] = asdict(self.soft_clusters)
        if self.labels is not None:
            raw |= {"labels": self.labels.to_arrays(), "card": json.dumps(dict(self.labels.card), sort_keys=True)}
        raw["sha256"] = checksum(raw)
        return raw

    @classmethod
    def from_arrays(cls, raw: Mapping[str, Any]) -> Self:
        """Check a stored prior against the schema, then build it."""
        fields = schema.validate(raw)
        config, clusters = fields["config"], fields["soft_clusters"]
        cap = np.inf if config["cap"] is None else config["cap"]
        labels, sizes = fields["labels"], fields["loadings"].shape[::-1]
        return cls(
            projection=Projection(cap=cap, **{name: fields[name] for name in _PROJECTION}),
            denoiser=_build(config["kind"], config["denoiser"], fields["weights"]),
            preset=config["preset"],
            soft_clusters=None if clusters is None else SoftClusters(**clusters),
            labels=None if labels is None else LabelModel.from_arrays(labels, fields["card"], *sizes),
            **{name: fields[name] for name in _AS_STORED},
        )


def _weights(network: nn.Module) -> dict[str, NDArray]:
    """Return the weights by name, without the step counters of batch normalisation."""
    return {
        name: tensor.detach().cpu().numpy().astype(np.float32)
        for name, tensor in network.state_dict().items()
        if tensor.is_floating_point()
    }


def _build(kind: str, config: dict[str, int], weights: Mapping[str, NDArray]) -> Denoiser:
    network = networks.NETWORKS.get(kind)
    if network is None:
        raise PriorFormatError(f"The stored prior has a denoiser of the unknown kind {said(kind)}.")
    bounds = {"n_latent": schema.MAX_LATENT, **network.bounds}
    if set(config) != set(bounds) or any(not 0 < value <= bounds[name] for name, value in config.items()):
        raise PriorFormatError("The stored prior's 'config' has values that are out of bounds.")
    # Shapes are checked against an empty network (on the meta device) before memory is allocated.
    with torch.device("meta"):
        expected = network(**config).state_dict()
    shapes = {n: tuple(t.shape) for n, t in expected.items() if t.is_floating_point()}
    schema.check_arrays(weights, shapes, "weights")
    built = network.empty(config)
    built.load_state_dict({name: torch.tensor(weights[name]) for name in shapes}, strict=False)
    built.requires_grad_(False).eval()
    if not built.is_sound():
        raise PriorFormatError("The stored prior's weights do not make a denoiser: its outputs are not plausible.")
    return built
