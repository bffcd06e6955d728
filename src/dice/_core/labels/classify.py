"""Classifiers of cells, and what their probabilities are worth together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from dice._types import Floats

#: Class probabilities (n, C) of the cells (n, p) of a representation.
Predictor: TypeAlias = Callable[[Floats], Floats]

N_NEIGHBORS = 15
#: Neighbours that all classes together have in advance, so that no probability is 0.
PSEUDO_NEIGHBORS = 0.1
#: Inverse strength of the L2 penalty for standardised genes and for scaled latents.
GENE_STRENGTH, LATENT_STRENGTH = 0.1, 0.5
#: Cells that are compared with all others at once.
CHUNK = 2048
#: Probabilities count as at least this in a log-loss: one sure error is not the end.
FLOOR = 1e-4


def fit_logistic(x: Floats, codes: NDArray[np.integer], n_classes: int, *, strength: float) -> Predictor:
    """Multinomial logistic regression with an L2 penalty, by L-BFGS; classes without cells get next to nothing.

    Parameters
    ----------
    x
        Cells (n, p), features of comparable size.
    codes
        Class (n,) of every cell.
    n_classes
        Number of classes C.
    strength
        Inverse of the penalty per cell, as scikit-learn's ``C``.
    """
    centre = x.mean(0)
    cells, labels = _tensor(x - centre), torch.as_tensor(codes, dtype=torch.int64)
    weight = torch.zeros(x.shape[1], n_classes, requires_grad=True)
    bias = torch.zeros(n_classes, requires_grad=True)
    optimizer = torch.optim.LBFGS([weight, bias], max_iter=100, tolerance_grad=1e-5, line_search_fn="strong_wolfe")

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        penalty = weight.square().sum() / (2 * strength * len(cells))
        loss: torch.Tensor = nn.functional.cross_entropy(cells @ weight + bias, labels) + penalty
        loss.backward()
        return loss

    optimizer.step(closure)
    slopes, offset = weight.detach(), bias.detach()
    return lambda new: torch.softmax(_tensor(new - centre) @ slopes + offset, dim=1).numpy()


def fit_neighbors(x: Floats, codes: NDArray[np.integer], n_classes: int) -> Predictor:
    """Shares of the classes among the nearest cells."""
    cells = _tensor(x)
    votes = nn.functional.one_hot(torch.as_tensor(codes, dtype=torch.int64), n_classes).float()
    k = min(N_NEIGHBORS, len(cells))

    def predict(new: Floats) -> Floats:
        chunks = _tensor(new).split(CHUNK)
        nearest = [torch.cdist(chunk, cells).topk(k, largest=False).indices for chunk in chunks]
        found = torch.cat([votes[index].sum(1) for index in nearest])
        return ((found + PSEUDO_NEIGHBORS / n_classes) / (k + PSEUDO_NEIGHBORS)).numpy()

    return predict


def log_loss(probabilities: Floats, codes: NDArray[np.integer]) -> float:
    """Mean surprise at the true classes."""
    return float(-np.log(np.maximum(probabilities[np.arange(len(codes)), codes], FLOOR)).mean())


def macro_f1(probabilities: Floats, codes: NDArray[np.integer]) -> float:
    """F1 of the most likely class, averaged over the classes that there are."""
    guess = probabilities.argmax(1)
    scores = []
    for label in np.unique(codes):
        hit = np.sum((guess == label) & (codes == label))
        scores.append(2 * hit / (np.sum(guess == label) + np.sum(codes == label)))
    return float(np.mean(scores))


def blend(candidates: Sequence[Floats], codes: NDArray[np.integer], *, n_steps: int = 300) -> Floats:
    """Weights of the candidates' probabilities (n, C) whose mixture is least surprised by the true classes.

    The likelihood is concave in the weights, and every step of expectation maximisation raises it: the mixture is at
    least as good, on these cells, as the best of the candidates.
    """
    rows = np.arange(len(codes))
    true = np.maximum(np.stack([p[rows, codes] for p in candidates]), FLOOR)
    weights = np.full(len(true), 1 / len(true))
    for _ in range(n_steps):
        shares = weights[:, None] * true
        weights = (shares / shares.sum(0)).mean(1)
    return weights


def _tensor(x: Floats) -> torch.Tensor:
    return torch.as_tensor(np.ascontiguousarray(x), dtype=torch.float32)
