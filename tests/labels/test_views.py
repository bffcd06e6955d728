"""Views of a query beside what they are by definition, on cells whose shift is known."""

from __future__ import annotations

import numpy as np
import pytest

from dice._labels.views import (
    LabelMoments,
    OwnScale,
    Profiles,
    balanced,
    composition_of,
    excess_of_mean,
    label_moments,
    label_ratios,
    standardized_classifier,
    unexplained_share,
    with_ratios,
)
from dice._model.arrays import fit_logistic

N_GENES, N_LABELS = 60, 4


@pytest.fixture(scope="module")
def reference():
    return cells(800, 0, np.full(N_LABELS, 1 / N_LABELS))


def cells(n, seed, shares):
    """Cells of four types that differ in 15 genes each."""
    rng = np.random.default_rng(seed)
    codes = rng.choice(N_LABELS, size=n, p=shares)
    means = 2.0 * np.repeat(np.eye(N_LABELS), N_GENES // N_LABELS, axis=1)
    return (means[codes] + rng.normal(size=(n, N_GENES))).astype(np.float32), codes


def shifted(n, seed, shares):
    """The same types with another offset and spread of every gene."""
    x, codes = cells(n, seed, shares)
    rng = np.random.default_rng(99)
    # Every cell looks like the first type.
    offset = 2 * rng.normal(size=N_GENES) + 5 * (np.arange(N_GENES) < N_GENES // N_LABELS)
    return (x * rng.uniform(0.3, 2, N_GENES) + offset).astype(np.float32), codes


def moments_of(x, codes):
    return LabelMoments(*label_moments(x, codes, N_LABELS), np.bincount(codes, minlength=N_LABELS))


def test_moments_at_a_composition_are_those_of_cells_with_that_composition(reference):
    x, codes = reference
    moments = moments_of(x, codes)
    mean, deviation = moments.of(moments.composition)
    np.testing.assert_allclose(mean, x.mean(0), atol=1e-5)
    np.testing.assert_allclose(deviation, x.std(0), rtol=1e-5)
    shares = np.array([0.7, 0.3, 0, 0])
    chosen = np.concatenate([np.flatnonzero(codes == 0)[:140], np.flatnonzero(codes == 1)[:60]])
    mean, deviation = moments.of(shares)
    np.testing.assert_allclose(mean, x[chosen].mean(0), atol=0.35)
    np.testing.assert_allclose(deviation, x[chosen].std(0), rtol=0.25)


def test_own_standardisation_is_a_linear_classifier_of_the_query(reference):
    """The slopes that are scaled give what the classifier says of cells that are scaled."""
    x, codes = reference
    query, _ = shifted(500, 1, np.full(4, 0.25))
    classifier = fit_logistic(x, codes, N_LABELS, strength=0.1)
    own = OwnScale.of(query, moments_of(x, codes), np.full(4, 0.25))
    scaled = (query - own.mean) / own.deviation * own.reference_deviation + own.reference_mean
    np.testing.assert_allclose(
        standardized_classifier(classifier, own).logits(query), classifier.logits(scaled.astype(np.float32)), atol=1e-3
    )


@pytest.mark.parametrize("shares", [[0.25, 0.25, 0.25, 0.25], [0.6, 0.2, 0.1, 0.1], [0.5, 0.5, 0.0, 0.0]])
def test_matched_views_see_through_a_shift_of_every_gene_once_the_composition_is_known(reference, shares):
    (x, codes), shares = reference, np.array(shares)
    query, truth = shifted(600, 2, shares)
    classifier = fit_logistic(x, codes, N_LABELS, strength=0.1)
    assert (classifier(query).argmax(1) == truth).mean() < 0.8
    moments = moments_of(x, codes)
    own = OwnScale.of(query, moments, shares)
    assert (standardized_classifier(classifier, own)(query).argmax(1) == truth).mean() > 0.95
    view = Profiles.of(own, moments, np.ones(N_GENES))
    assert (view(query).argmax(1) == truth).mean() > 0.93
    # Cells that did not take part are read alike.
    half = Profiles.of(OwnScale.of(query[:300], moments, shares), moments, np.ones(N_GENES))
    assert (half(query[300:]).argmax(1) == truth[300:]).mean() > 0.92


def test_a_profile_is_the_nearest_mean_by_cosine(reference):
    """By definition: cosines of centred cells and centred means, in which a gene weighs the root of its spread."""
    x, codes = reference
    moments, scale = moments_of(x, codes), np.linspace(0.1, 3, N_GENES)
    query, _ = shifted(50, 3, np.full(4, 0.25))
    own = OwnScale.of(query, moments, np.full(4, 0.25))
    found = Profiles.of(own, moments, scale, 0.2)
    for i, cell in enumerate(query[:5] - own.mean):
        for label, mean in enumerate(moments.mean - own.reference_mean):
            a, b = cell * np.sqrt(scale), mean * np.sqrt(scale)
            cosine = a @ b / np.sqrt((a @ a) * (b @ b))
            assert found.cosines(query)[i, label] == pytest.approx(cosine, abs=1e-5)
    odds = np.exp(found.cosines(query) / 0.2)
    np.testing.assert_allclose(found(query), odds / odds.sum(1, keepdims=True), rtol=1e-4)


def test_a_rare_label_has_the_profile_of_a_common_one():
    """A regression gives cells between two labels to the common one, and a profile to neither."""
    x, codes = cells(1500, 4, np.array([0.9, 0.02, 0.04, 0.04]))
    moments = moments_of(x, codes)
    own = OwnScale(*moments.of(np.full(4, 0.25)), *moments.of(np.full(4, 0.25)))
    middle = moments.mean[:2].mean(0, keepdims=True)
    by_profile = Profiles.of(own, moments, np.ones(N_GENES))(middle.astype(np.float32))[0]
    by_regression = fit_logistic(x, codes, N_LABELS, strength=0.01)(middle.astype(np.float32))[0]
    assert by_profile[0] == pytest.approx(by_profile[1], rel=0.2)
    assert by_regression[0] > 2 * by_regression[1]


def test_a_label_without_cells_is_never_given(reference):
    x, codes = reference
    some = codes != 2
    moments = moments_of(x[some], codes[some])
    own = OwnScale(*moments.of(moments.composition), *moments.of(moments.composition))
    found = Profiles.of(own, moments, np.ones(N_GENES))
    assert (found(x)[:, 2] == 0).all()
    assert found.learn_temperature(x[~some], codes[~some]) == pytest.approx(0.1), "no cell tells: the middle"
    assert found.learn_temperature(x, codes) == found.learn_temperature(x[some], codes[some])


def test_the_temperature_has_the_smallest_log_loss(reference):
    x, codes = reference
    moments = moments_of(x, codes)
    own = OwnScale(*moments.of(moments.composition), *moments.of(moments.composition))
    noisy, labels = cells(400, 5, np.full(4, 0.25))
    noisy += 2 * np.random.default_rng(6).normal(size=noisy.shape).astype(np.float32)

    def loss(temperature):
        found = Profiles.of(own, moments, np.ones(N_GENES), temperature)(noisy)
        return -np.log(found[np.arange(len(labels)), labels]).mean()

    best = Profiles.of(own, moments, np.ones(N_GENES)).learn_temperature(noisy, labels)
    assert 0.01 < best < 1
    assert loss(best) < min(loss(best * 0.9), loss(best * 1.1))


def test_a_composition_is_shrunk_and_sharpened():
    uniform = np.full((90, 2), 0.5)
    np.testing.assert_allclose(composition_of(uniform, np.array([0.9, 0.1])), [0.54, 0.46])
    doubtful = np.tile([0.75, 0.25], (10**6, 1))
    np.testing.assert_allclose(composition_of(doubtful, np.array([0.5, 0.5])), [0.9, 0.1], atol=1e-4)


def test_the_share_that_composition_does_not_explain():
    centres, reference = np.array([[0.0, 0], [4, 0]]), np.array([0.5, 0.5])
    other = np.array([0.25, 0.75])
    assert unexplained_share(other @ centres, centres, other, reference) == 0
    assert unexplained_share(reference @ centres + [0, 3], centres, reference, reference) == 1
    assert unexplained_share(other @ centres + [0, 1], centres, other, reference) == pytest.approx(0.5)
    assert unexplained_share(reference @ centres, centres, reference, reference) == 0


def test_a_query_of_another_composition_is_labelled_as_by_a_reference_of_that_composition():
    """Bayes: with the ratio of the compositions, probabilities are those of the other prior; to the last digit."""
    rng = np.random.default_rng(0)
    likelihood = rng.gamma(1, size=(5000, 3))
    reference, query = np.array([0.6, 0.3, 0.1]), np.array([0.1, 0.3, 0.6])
    by_reference, by_query = (likelihood * shares / (likelihood @ shares)[:, None] for shares in (reference, query))
    np.testing.assert_allclose(with_ratios(by_reference, query / reference), by_query)


def test_labels_follow_the_composition_only_if_it_explains_the_shift():
    reference = np.array([0.5, 0.5, 0.0])
    probabilities = np.tile([0.9, 0.1, 0.0], (1000, 1))
    full, half, none = (label_ratios(probabilities, reference, unexplained) for unexplained in (0, 0.5, 1))
    assert full[0] > half[0] > 1 > half[1] > full[1]
    np.testing.assert_allclose(none, 1)
    np.testing.assert_allclose(full, [1.72, 0.28, 1], atol=0.01)
    assert full[2] == half[2] == 1, "a label without reference cells is left alone"


def test_the_excess_of_a_mean_is_shrunk_for_few_cells():
    values = np.full((10, 2), 3.0)
    np.testing.assert_allclose(excess_of_mean(values, np.array([1.0, 3.0])), [1.0, 0.0])
    np.testing.assert_allclose(excess_of_mean(np.full((10_000, 2), 3.0), np.ones(2)), 2, rtol=2e-3)


def test_labels_count_by_cells_or_alike_by_what_the_composition_explains():
    codes = np.repeat([0, 1, 2], [8000, 1500, 500])
    probabilities, reference = np.eye(4)[codes], np.full(4, 0.25)
    shares = np.array([0.8, 0.15, 0.05, 0.0])
    for unexplained, expected in ((0, shares), (0.5, np.sqrt(shares)), (1, [1, 1, 1, 0])):
        weights, composition = balanced(probabilities, reference, unexplained)
        summed = np.bincount(codes, weights, minlength=4) / weights.sum()
        np.testing.assert_allclose(summed, expected / np.sum(expected), atol=0.02)
        np.testing.assert_allclose(composition, summed, atol=0.005)


def test_the_shift_of_a_common_label_is_not_removed_from_the_others(reference):
    x, known = reference
    moments = moments_of(x, known)
    query, codes = cells(2000, 1, np.array([0.91, 0.03, 0.03, 0.03]))
    query[codes == 0] -= 3 * (np.arange(N_GENES) < 15)  # The common label alone is shifted.
    probabilities = np.eye(N_LABELS)[codes]
    alike, even = (
        OwnScale.of(query, moments, composition, weights).matched(query) - query
        for weights, composition in (balanced(probabilities, moments.composition, share) for share in (0, 1))
    )
    others = codes != 0
    assert np.abs(even[others, :15]).mean() < 0.6 * np.abs(alike[others, :15]).mean()
