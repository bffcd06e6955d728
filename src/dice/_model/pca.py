"""Exact, deterministic PCA of the reference, chunk by chunk.

The matrix is read three times: for mean and variance of the genes, for the Gram matrix of the standardised and capped
values, and for the projection. The first two passes are sums over chunks, which any number of workers can share. Each
worker needs memory of O(chunk x genes + genes^2).
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from scipy import linalg, sparse

from dice._model.arrays import Sums, Total
from dice._model.projection import Projection, Standardizer
from dice._types import Chunk, Floats

#: Values of scaled genes are capped at this value, as in the paper.
CAP = 10.0
#: With more genes than this, subspace iteration is used instead of the Gram matrix, which takes 8 bytes x genes^2.
MAX_GRAM_GENES = 8000
#: Number of leading singular values that are searched for an elbow, and computed in any case.
SPECTRUM = 100


def fit_projection(
    total: Total, *, n_latent: int | str, scale: bool = True, max_gram: int = MAX_GRAM_GENES
) -> Projection:
    """Compute the PCA of all cells.

    Parameters
    ----------
    total
        Callable that sums a function of chunks (dense or CSR) over all cells.
    n_latent
        Number k of latents, or ``"elbow"``.
    scale
        Whether to divide every gene by its standard deviation and cap values at 10, or only to centre them.
    max_gram
        Maximum number of genes for which the Gram matrix is computed.
    """
    standardizer, n_cells = fit_standardizer(total, scale=scale)
    n_genes = len(standardizer.mean)
    wanted = SPECTRUM if n_latent == "elbow" else max(int(n_latent), SPECTRUM)
    size = min(wanted, n_cells - 1, n_genes)
    solve = _eigen_gram if n_genes <= max_gram else _eigen_subspace
    spectrum = solve(total, standardizer, size)
    k = elbow(spectrum.singular_values) if n_latent == "elbow" else int(n_latent)
    loadings = spectrum.vectors[:, :k]
    # The variance of a gene that the loadings do not explain is noise.
    explained = loadings**2 @ (spectrum.singular_values[:k] ** 2 / (n_cells - 1))
    gene_noise = np.maximum(spectrum.variances - explained, 0)
    free = max(np.count_nonzero(spectrum.variances) - k, 1)
    return Projection(
        mean=standardizer.mean, scale=standardizer.scale, center=spectrum.center.astype(np.float32),
        cap=standardizer.cap, loadings=np.ascontiguousarray(loadings, dtype=np.float32),
        singular_values=spectrum.singular_values.astype(np.float32), gene_noise=gene_noise.astype(np.float32),
        noise=float(np.sqrt(gene_noise.sum() / free)), bulk=spectrum.bulk(k),
    )  # fmt: skip


@dataclass(frozen=True)
class Spectrum:
    """Leading singular values (m,) and right singular vectors (d, m) of the centred cells."""

    center: Floats
    #: Variance (d,) of every standardised gene.
    variances: Floats
    singular_values: Floats
    vectors: Floats
    #: Sum of all eigenvalues of the Gram matrix, and sum of their squares. None if only leading eigenvalues are known.
    powers: tuple[float, float] | None = None

    def bulk(self, k: int) -> float:
        """Return the mean of the eigenvalues beyond the k-th, each weighted by itself."""
        eigenvalues = np.square(self.singular_values, dtype=np.float64)
        first, second = self.powers or (eigenvalues.sum(), np.square(eigenvalues).sum())
        beneath, weighted = first - eigenvalues[:k].sum(), second - np.square(eigenvalues[:k]).sum()
        # A smaller remainder is rounding error.
        return float(max(weighted, 0) / beneath) if beneath > 1e-9 * first else 0.0


def fit_standardizer(total: Total, *, scale: bool) -> tuple[Standardizer, int]:
    """Measure mean and standard deviation of every gene in one pass. Return the standardiser and the number of cells.

    The standard deviation has ddof 1. Constant genes are divided by 1.
    """
    n, mean, variance = _moments(total, lambda chunk: chunk)
    deviation = np.sqrt(variance)
    constant = deviation <= 1e-6 * np.maximum(np.abs(mean), 1e-6)
    unit = np.where(constant | (not scale), 1.0, deviation)
    center = np.zeros_like(mean, dtype=np.float32)
    cap = CAP if scale else np.inf
    return Standardizer(mean.astype(np.float32), unit.astype(np.float32), center, cap), n


def _moments(total: Total, values_of: Callable[[Chunk], Chunk]) -> tuple[int, Floats, Floats]:
    """Return the number of cells, and the mean and variance (ddof 1) of every gene.

    `values_of` returns the values of a chunk.
    """

    def sums(chunk: Chunk) -> Sums:
        values = values_of(chunk).astype(np.float64)
        squared = values.multiply(values) if sparse.issparse(values) else values * values
        return values.shape[0], np.asarray(values.sum(0)).ravel(), np.asarray(squared.sum(0)).ravel()

    n, values, squares = total(sums)
    mean = values / n
    return int(n), mean, np.maximum(squares - n * mean**2, 0) / max(n - 1, 1)


def _eigen_gram(total: Total, standardizer: Standardizer, size: int) -> Spectrum:
    """Compute the leading `size` components from the Gram matrix of the genes."""

    def products(chunk: Chunk) -> Sums:
        values = standardizer(chunk).dense()
        return len(values), values.sum(0, dtype=np.float64), values.T @ values

    n, values, gram = total(products)
    center = values / n
    gram -= n * np.outer(center, center)
    variances = np.maximum(np.diagonal(gram), 0) / (n - 1)
    powers = float(np.trace(gram)), float(np.square(gram).sum())
    # Compute only the leading eigenvectors. All of them would take three times as long.
    leading = [len(gram) - size, len(gram) - 1]
    eigenvalues, vectors = linalg.eigh(gram, subset_by_index=leading, overwrite_a=True, check_finite=False)
    singular_values = np.sqrt(np.maximum(eigenvalues[::-1], 0))
    return Spectrum(center, variances, singular_values, fix_signs(vectors[:, ::-1]), powers)


def _eigen_subspace(total: Total, standardizer: Standardizer, size: int, *, max_passes: int = 30) -> Spectrum:
    """Compute the leading `size` components by block subspace iteration, which reads all cells once per iteration.

    Subspace iteration needs no genes x genes matrix. It starts from a fixed basis and stops when the singular values
    change by less than 1e-6 of their size.
    """
    n_genes = len(standardizer.mean)
    _, center, variances = _moments(total, lambda chunk: standardizer(chunk).dense())
    centred = replace(standardizer, center=center.astype(np.float32))

    def image_of(basis: Floats, chunk: Chunk) -> Sums:
        values = centred(chunk).dense()
        return (values.T @ (values @ basis),)

    guard = min(size + max(10, size // 2), n_genes)
    basis = linalg.qr(np.random.default_rng(0).normal(size=(n_genes, guard)), mode="economic")[0]
    previous = np.zeros(size)
    for _ in range(max_passes):
        (image,) = total(partial(image_of, basis.astype(np.float32)))
        eigenvalues, rotation = linalg.eigh(basis.T @ image)
        singular_values = np.sqrt(np.maximum(eigenvalues[::-1], 0))[:size]
        vectors = (basis @ rotation)[:, ::-1][:, :size]
        if np.allclose(singular_values, previous, rtol=1e-6):
            break
        previous = singular_values
        basis = linalg.qr(image, mode="economic")[0]
    return Spectrum(center, variances, singular_values, fix_signs(vectors))


def elbow(singular_values: Floats) -> int:
    """Return the number of latents at the elbow of the scree plot: the point that is farthest below the chord.

    Only the leading `SPECTRUM` values are used.
    """
    values = np.asarray(singular_values[:SPECTRUM], dtype=np.float64)
    if len(values) < 3 or values[0] == values[-1]:
        return max(len(values), 1)
    height = (values - values[-1]) / (values[0] - values[-1])
    chord = 1 - np.linspace(0, 1, len(values))
    # The elbow is the first value of the flat part. The values before the elbow are kept.
    return max(int(np.argmax(chord - height)), 1)


def fix_signs(vectors: Floats) -> Floats:
    """Flip every component so that its loading of largest magnitude is positive.

    If several loadings are largest up to rounding, the first of them decides, because rounding depends on the storage
    of the matrix.
    """
    magnitudes = np.abs(vectors)
    largest = (magnitudes >= (1 - 1e-4) * magnitudes.max(0)).argmax(0)
    signs = np.sign(vectors[largest, np.arange(vectors.shape[1])])
    return vectors * np.where(signs == 0, 1, signs)
