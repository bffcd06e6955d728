"""Figures and words beside the tables of synthetic.py."""

from __future__ import annotations

import pandas as pd
from report import OUT

RHOS = (5, 10, 20, 30, 60, 100)
#: What the paper prints for Setups 1-4: silhouette and cLISI of PCA and of DICE.
PRINTED = {
    "PCA": [(0.25, 1.27), (0.24, 1.27), (0.22, 1.32), (0.22, 1.35)],
    "DICE": [(0.37, 1.17), (0.36, 1.17), (0.34, 1.18), (0.28, 1.27)],
}
#: What Algorithm 1 came to, so that an interrupted run does not repeat it.
LITERAL = OUT / "synthetic_literal.csv"
ABOUT_LITERAL = (
    "Algorithm 1 as printed (paper-small network, 200 iterations, 10 chains, rho 20) on {cells} cells of Setup 1, seed "
    "0: distance to the exact posterior {literal:.3f}; one evaluation of the same network {direct:.3f}. The mean of "
    "ten draws is off by chance: at rho 20 a posterior is so wide that exact draws would be at a distance of 0.9."
)
ABOUT_K = """\
Setup 1 has 15 latents. `exact` is the posterior under the true clusters at the same k and rho. `to_truth` and
`to_exact` are relative to PCA with the same k; `gene_error` is the root mean square error of the expression that an
embedding stands for, in units of a gene's noise. The latent scale falls as k grows beyond 15, and with it the rho
called `scale`.

The paper varies k over the same values on CITE-seq and neocortex cells and shows the ARI as a picture without numbers.
It says that on CITE-seq DICE rises up to k = 100 and gains more on PCA as k grows, and that on neocortex k hardly
matters. `benchmarks/citeseq.py` and `benchmarks/neocortex.py` do the same with `--n-latent`.

![Setup 1 along k](ablation_k.png)"""


def about_setups(rows: pd.DataFrame) -> str:
    """Draw Setup 1 along rho, and put the printed numbers beside ours."""
    draw_rho(rows)
    lines = ["| paper, printed | Setup 1 | Setup 2 | Setup 3 | Setup 4 |", "|---|---|---|---|---|"]
    lines += [
        f"| {m} silhouette / cLISI | " + " | ".join(f"{s} / {c}" for s, c in v) + " |" for m, v in PRINTED.items()
    ]
    literal = pd.read_csv(LITERAL).to_dict("records") if LITERAL.exists() else []
    extra = [ABOUT_LITERAL.format(**row) for row in literal]
    return "\n\n".join(["\n".join(lines), *extra, "![Setup 1 along rho](synthetic_rho.png)"])


def about_k(rows: pd.DataFrame) -> str:
    draw_k(rows)
    return ABOUT_K


def draw_rho(rows: pd.DataFrame) -> None:
    """Sharpness and faithfulness along rho."""
    setup = rows[rows.data == "Setup 1"]
    fixed = setup[setup.rho.isin([str(rho) for rho in RHOS])]
    lines = _means(fixed.assign(rho=fixed.rho.astype(float)), fixed.method, "rho")
    level = setup[setup.method == "PCA"].mean(numeric_only=True)
    _draw(lines, ("silhouette", "clisi", "to_truth", "to_exact"), "rho", "synthetic_rho.png", level)


def draw_k(rows: pd.DataFrame) -> None:
    """The same along the number of latents."""
    names = rows.method + rows.rho.map({"-": "", "scale": ", rho = scale", "30": ", rho = 30"})
    _draw(_means(rows, names, "k"), ("silhouette", "clisi", "gene_error", "to_exact"), "k", "ablation_k.png")


def _means(rows: pd.DataFrame, names: pd.Series, along: str) -> dict[str, pd.DataFrame]:
    return {str(name): part.groupby(along).mean(numeric_only=True) for name, part in rows.groupby(names, sort=False)}


def _draw(
    lines: dict[str, pd.DataFrame], figures: tuple[str, ...], along: str, file: str, level: pd.Series | None = None
) -> None:
    """A panel for each figure and a line for each method; `level` is PCA's where it does not change along the axis."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, len(figures), figsize=(13, 3), layout="constrained")
    for ax, name in zip(axes, figures, strict=True):
        for number, (label, means) in enumerate(lines.items()):
            mean = means[name].dropna()
            if len(mean):
                style = f"C{number}o{'--' if label.startswith('exact') else '-'}"
                # As names, not numbers: the paper's values of k crowd each other on any scale.
                ax.plot([f"{value:g}" for value in mean.index], mean, style, markersize=4, label=label)
        if level is not None and name in ("silhouette", "clisi"):
            ax.axhline(level[name], color="0.6", label="PCA")
        ax.set(xlabel=along, title=name)
    axes[0].legend(frameon=False, fontsize="small")
    figure.savefig(OUT / file, dpi=80)
    plt.close(figure)
