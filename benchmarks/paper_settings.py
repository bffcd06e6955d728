"""The paper's own settings, 35 million weights and 10,000 epochs: how long, and what is learned in an hour?

Bone marrow cells of a CITE-seq study (bmmc; 4,000 reference and 1,000 query cells, 3,000 variable genes) stand for the
paper's, which have to be downloaded: 25 latents, batches of 4,048, AdamW at 1e-4 with cosine decay over all 10,000
epochs, mixtures of five cells of a label. The network of the ``"default"`` preset learns from the same cells, labels
and latents, with mixtures of 20 cells as is its own. Both are judged by the same held-out cells while they learn:

* ``held_out``     denoising loss, relative to that of the best linear denoiser,
* ``ari``, ``nmi`` of Leiden clusters of the query, denoised by one evaluation, at the best of the paper's 39
  resolutions; ``ari_1`` at resolution 1. `rho` is 0.5, the end of the paper's annealing, with its noise of 1.
  ``half`` has a `rho` of half a latent scale instead.

Algorithm 1 as printed would take 306,990 evaluations of this network for a cell; its mean is that of one evaluation.

    make bench-paper [ARGS="--minutes 60"]

trains for so many minutes by the clock, and writes docs/benchmarks/paper_settings (.csv, .md and .png) while it does.
``--minutes 0`` draws page and picture again from the .csv.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from dataclasses import replace

import anndata as ad
import numpy as np
import pandas as pd
import report
import torch
from data import pair

import dice
from dice._model import networks, training_data
from dice._model.training import make_trainer

LABELS, N_LATENT = "cell_type", 25
#: The paper's: its reference of CITE-seq cells, its epochs, and the end of its annealing.
PAPER_CELLS, EPOCHS, RHO = 9_000, 10_000, 0.5
#: Cells that are learned from here: nine tenths of the reference.
CELLS = 3_600
#: An evaluation of the large network costs two thirds of a step; so many steps apart it is little beside them.
EVALUATE_EVERY = 5
#: How often the query is denoised while the large network learns.
CHECKPOINTS = 8
SMALL = "default"


class Course:
    """Trainings of several networks on the same cells, and what they come to."""

    def __init__(self, reference: ad.AnnData, query: ad.AnnData, seed: int) -> None:
        self.query, self.seed = query, seed
        # What both networks share (PCA, split, latent scale) does not depend on the network: the quickest one will do.
        training = dice.Training(calibration_fraction=0.0, max_steps=1)
        options = {"n_latent": N_LATENT, "labels_key": LABELS, "preset": "paper-small", "random_state": seed}
        dice.tl.train_prior(reference, training=training, **options)
        self.prior = dice.Prior.from_anndata(reference)
        roles = reference.obs["dice_split"].map({role: code for code, role in enumerate(training_data.ROLES)})
        latents = reference.obsm["X_dice_pca"]
        self.data = training_data.plain_data(latents, roles.to_numpy(np.int8), torch.device("cpu"))
        codes = pd.Categorical(reference.obs[LABELS]).codes[self.data.cells]
        self.labels = codes.astype(np.int64)

    def train(self, preset: str, minutes: float, every: int | None) -> Iterator[dict[str, object]]:
        """Rows of a network's evaluations, with the query's figures at a few of them and at the last."""
        mixup = dice.Mixup() if networks.by_preset()[preset][1].mixup else None
        noise = self.prior.projection.noise / self.prior.latent_scale
        trainer = make_trainer(
            preset, self.data, noise=noise, labels=self.labels, mixup=mixup, seed=self.seed, evaluate_every=every
        )  # fmt: skip
        weights = sum(parameter.numel() for parameter in trainer.denoiser.parameters())
        per_epoch = int(np.ceil(len(self.data.train) / trainer.config.batch_size))
        spent, judged, before = np.zeros(2), 0.0, clocks()
        for step in trainer.steps():
            spent += clocks() - before
            last = trainer.finished or spent[0] > 60 * minutes
            if last and (not trainer.history or trainer.history[-1][0] != step):
                trainer.evaluate()
            if trainer.history and trainer.history[-1][0] == step:
                _, loss, held_out = trainer.history[-1]
                row = {
                    "network": preset,
                    "weights": weights,
                    "epoch": step / per_epoch,
                    "seconds": float(spent[0]),
                }
                row |= {"cpu_seconds": float(spent[1]), "loss": loss, "held_out": held_out}
                if last or spent[0] - judged > 60 * minutes / CHECKPOINTS:
                    judged = spent[0]
                    if last:  # The best weights, or the last ones where the preset has no early stopping.
                        trainer.restore_best()
                    row |= self.figures((trainer.denoiser if last else trainer.average.module).eval())
                yield row
            if last:
                return
            before = clocks()

    def figures(self, denoiser: object) -> dict[str, float]:
        """The query's clusters with one network."""
        prior = replace(self.prior, denoiser=denoiser)
        found = {}
        for suffix, rho in (("", RHO), ("_half", self.prior.latent_scale / 2)):
            dice.tl.denoise(
                self.query, prior, rho=rho, likelihood=dice.Gaussian(1.0), method=dice.Direct(uncertainty=False),
                shift=False,
            )  # fmt: skip
            found |= {f"{name}{suffix}": value for name, value in self.clusters(self.query.obsm["X_dice"]).items()}
        return found

    def clusters(self, embedding: np.ndarray) -> dict[str, float]:
        """Agreement of an embedding's Leiden clusters with the labels."""
        sweep = dice.metrics.leiden_sweep(embedding, self.query.obs[LABELS])
        default = sweep[sweep.resolution == 1.0].iloc[0]
        found = {"ari": sweep.ari.max(), "nmi": sweep.nmi.max(), "ari_1": default.ari}
        return {name: float(value) for name, value in found.items()}

    def projected(self) -> dict[str, object]:
        """The query as it is projected, for comparison."""
        expression = self.query[:, self.prior.genes].X
        return {"network": "none (PCA)", **self.clusters(self.prior.projection.project(expression))}


def clocks() -> np.ndarray:
    """Seconds by the wall and of the processor."""
    return np.array([time.perf_counter(), time.process_time()])


def hours(rows: pd.DataFrame) -> pd.DataFrame:
    """What 10,000 epochs take, on these cells and on as many as the paper has."""
    found = []
    for network, own in rows[rows.weights.notna()].groupby("network", sort=False):
        epochs = own.epoch.diff().fillna(own.epoch)
        row = {"network": network, "weights": f"{own.weights.iloc[0]:,.0f}", "epochs made": round(own.epoch.iloc[-1])}
        row["minutes"] = f"{own.seconds.iloc[-1] / 60:.1f}"
        for name, column in (("by the clock", "seconds"), ("CPU", "cpu_seconds")):
            epoch = float((own[column].diff().fillna(own[column]) / epochs).median())
            # The default network stops by itself, long before.
            length = epoch * EPOCHS / 3600 if network != SMALL else np.nan
            row |= {f"seconds of an epoch, {name}": f"{epoch:.2f}", f"hours of {EPOCHS:,}, {name}": f"{length:.1f}"}
        row[f"... with {PAPER_CELLS:,} cells, CPU"] = f"{length * PAPER_CELLS / CELLS:.1f}"
        found.append(row)
    return pd.DataFrame(found).replace("nan", "-")


def quality(rows: pd.DataFrame) -> pd.DataFrame:
    """Evaluations at which the query was denoised."""
    columns = [name for name in rows if name not in ("seed", "weights", "loss")]
    own = rows[rows.ari.notna()][columns].copy()
    for name in columns[1:]:
        own[name] = [("-" if np.isnan(x) else f"{x:.0f}" if x > 10 else f"{x:.3f}") for x in own[name].astype(float)]
    return own


def draw(rows: pd.DataFrame) -> None:
    """Held-out loss and ARI against the minutes of training."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import NullFormatter

    figure = Figure(figsize=(8, 3.2), layout="constrained")
    panels = loss, ari = figure.subplots(1, 2)
    styles = {"ari": ("o-", "rho 0.5"), "ari_half": ("s--", "rho of half a latent scale")}
    for network, own in rows[rows.weights.notna()].groupby("network", sort=False):
        label = f"{network}, {own.weights.iloc[0] / 1e6:.1f} million weights"
        (line,) = loss.plot(own.cpu_seconds / 60, own.held_out, label=label)
        judged = own[own.ari.notna()]
        for name, (style, _) in styles.items():
            ari.plot(judged.cpu_seconds / 60, judged[name], style, color=line.get_color(), markersize=5)
    loss.axhline(1, color="grey", linewidth=1, label="best linear denoiser")
    for style, label in styles.values():
        ari.plot([], [], style, color="black", markersize=5, label=label)
    ari.axhline(rows[rows.weights.isna()].ari.iloc[0], color="grey", linewidth=1, label="PCA")
    loss.set(yscale="log", yticks=[0.6, 0.8, 1, 1.5, 2], ylabel="held-out loss")
    ari.set(ylabel="ARI at the best resolution")
    minutes = rows.cpu_seconds / 60
    for axes in panels:
        axes.set(xscale="log", xlabel="CPU minutes of training", xlim=(minutes.min() / 1.5, minutes.max() * 1.5))
        axes.legend(frameon=False, fontsize=8, loc="best" if axes is loss else "lower left")
        axes.spines[["top", "right"]].set_visible(False)
        axes.xaxis.set_major_formatter("{x:g}")
    loss.yaxis.set_major_formatter("{x:g}")
    loss.yaxis.set_minor_formatter(NullFormatter())
    report.OUT.mkdir(parents=True, exist_ok=True)
    figure.savefig(report.OUT / "paper_settings.png", dpi=150)


def publish(rows: list[dict[str, object]]) -> None:
    """Tables and picture of what there is so far."""
    table = pd.DataFrame(rows)
    draw(table)
    note = f"{about()}\n\n![Held-out loss and ARI while the networks learn](paper_settings.png)"
    tables = {"Time": hours(table), "Clusters of the query": quality(table)}
    report.save("paper_settings", "The paper's own settings for an hour", table, tables, note)


def about() -> str:
    """What this script's own words say of its columns."""
    return __doc__.split("\n\n", 1)[1].split("\n\n    make", 1)[0].replace("``", "`")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--minutes", type=float, default=60.0, help="of training the large network")
    parser.add_argument("--network", default="paper", choices=["paper", "paper-small"], help="paper-small for a trial")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    report.prepare()
    if arguments.minutes == 0:
        publish(pd.read_csv(report.OUT / "paper_settings.csv").to_dict("records"))
        return
    course = Course(*pair("bmmc", arguments.seed), arguments.seed)
    rows = [{"seed": arguments.seed} | course.projected()]
    for preset, every in ((SMALL, None), (arguments.network, EVALUATE_EVERY)):
        for row in course.train(preset, arguments.minutes, every):
            print({name: round(x, 3) if isinstance(x, float) else x for name, x in row.items()}, flush=True)
            rows.append({"seed": arguments.seed} | row)
            if preset != SMALL or "ari" in row:
                publish(rows)


if __name__ == "__main__":
    main()
