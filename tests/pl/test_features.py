from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from dice import pl

NAMES = ["CD4", "CD8", "isotype"]


@pytest.fixture
def predicted(query):
    """Predictions with known errors: of every feature the first ten cells are outside of their intervals."""
    rng, n = np.random.default_rng(0), query.n_obs
    truth = rng.normal(size=(n, 3))
    mean = truth + np.where(np.arange(n) < 10, 2.0, 0.1)[:, None]
    tables = {"": mean, "_low": mean - 1, "_high": mean + 1}
    for end, values in tables.items():
        query.obsm[f"protein_dice{end}"] = pd.DataFrame(values, query.obs_names, NAMES)
    query.obsm["protein"] = pd.DataFrame(truth, query.obs_names, NAMES)
    table = {"name": np.array(NAMES), "correlation": np.array([0.5, 0.9, np.nan]), "useless": np.array([0, 0, 1], bool)}
    query.uns["protein_dice"] = {"call": {"alpha": 0.1}, "features": table}
    return query


def test_ranked_covered_and_drawn(predicted):
    axes = pl.features(predicted, "protein", show=False)
    assert len(axes) == 5
    assert axes[0].get_title() == "2 of 3 features can be used"
    assert axes[0].texts[0].get_text() == "best predicted:\nCD8\nCD4\nisotype"
    n = predicted.n_obs
    assert axes[1].get_title() == f"intervals cover {(n - 10) / n:.1%} on average"
    assert [ax.get_title().split(":")[0] for ax in axes[2:]] == ["CD8", "CD4", "isotype"]
    assert axes[4].get_title().endswith("useless")
    outside = next(c for c in axes[2].collections if c.get_label() == "outside")
    assert len(outside.get_offsets()) == 10


def test_without_measured_features(predicted):
    del predicted.obsm["protein"]
    assert len(pl.features(predicted, "protein", show=False)) == 1


def test_chosen_features_and_missing_values(predicted):
    predicted.obsm["protein"] = predicted.obsm["protein"][["CD4"]].where(np.arange(predicted.n_obs)[:, None] > 3)
    axes = pl.features(predicted, "protein", names="CD4", show=False)
    n = predicted.n_obs
    assert axes[1].get_title() == f"intervals cover {(n - 10) / (n - 4):.1%} on average"
    axes[0].figure.canvas.draw()


@pytest.mark.parametrize("n", [0, 1, 20])
def test_few_cells(predicted, n):
    axes = pl.features(predicted[:n], "protein", show=False)
    axes[0].figure.canvas.draw()
    # Features are ranked by the reference, whatever the cells; every cell is drawn, the first ten outside.
    assert axes[0].get_title() == "2 of 3 features can be used"
    for ax in axes[2:]:
        drawn = {dots.get_label(): len(dots.get_offsets()) for dots in ax.collections}
        assert drawn["outside"] == min(n, 10)
        assert drawn["inside"] == max(n - 10, 0)


def test_errors(predicted):
    with pytest.raises(KeyError, match=r"dice\.tl\.transfer_features"):
        pl.features(predicted, "adt", show=False)
    with pytest.raises(KeyError, match="no feature 'CD19'"):
        pl.features(predicted, "protein", names=["CD19"], show=False)
    predicted.obsm["other"] = predicted.obsm["protein"].set_axis(list("abc"), axis=1)
    with pytest.raises(ValueError, match="has none of the predicted features"):
        pl.features(predicted, "protein", truth_key="other", show=False)
    with pytest.raises(KeyError, match="adata has no features 'nothing'"):
        pl.features(predicted, "protein", truth_key="nothing", show=False)


@pytest.mark.parametrize("key", ["protein", "layer:protein", "mod:protein", "pro/tein", ["CD4", "CD8", "isotype"]])
def test_keys_as_they_were_passed(predicted, key):
    """However features were named, they are found, and what was measured of them too."""
    truth, title = predicted.obsm.pop("protein"), {"pro/tein": "pro_tein"}.get(str(key), "protein")
    title = title if isinstance(key, str) else "features"
    for end in ("", "_low", "_high"):
        predicted.obsm[f"{title}_dice{end}"] = predicted.obsm.pop(f"protein_dice{end}")
    predicted.uns[f"{title}_dice"] = predicted.uns.pop("protein_dice")
    assert len(pl.features(predicted, key, show=False)) == 1
    if key == "layer:protein":
        predicted = predicted[:, :3].copy()
        predicted.var_names, predicted.layers["protein"] = NAMES, truth.to_numpy()
    elif key == "mod:protein":
        predicted.obsm["measured"] = truth
        assert len(pl.features(predicted, key, truth_key="measured", show=False)) == 5
        return
    elif isinstance(key, str):
        predicted.obsm[key] = truth
    else:
        predicted.obs[NAMES] = truth
    axes, n = pl.features(predicted, key, show=False), predicted.n_obs
    assert axes[1].get_title() == f"intervals cover {(n - 10) / n:.1%} on average"


def test_what_was_measured_may_be_a_column(predicted):
    predicted.obs["CD8"] = predicted.obsm.pop("protein")["CD8"]
    axes, n = pl.features(predicted, "protein", truth_key="CD8", names="CD8", show=False), predicted.n_obs
    assert axes[1].get_title() == f"intervals cover {(n - 10) / n:.1%} on average"
    predicted.obs["CD8"] = "high"
    with pytest.raises(ValueError, match=r"\['CD8'\], which are not real numbers"):
        pl.features(predicted, "protein", truth_key="CD8", show=False)


def test_a_predicted_feature_colours_the_map(predicted):
    axes = pl.comparison(predicted, color="protein_dice:CD4", use_rep="X_dice", show=False)
    values = np.asarray(axes[0].collections[0].get_array())
    np.testing.assert_allclose(np.sort(values), np.sort(predicted.obsm["protein_dice"]["CD4"]))
    with pytest.raises(KeyError, match="TABLE:COLUMN"):
        pl.comparison(predicted, color="protein_dice:CD19", use_rep="X_dice", show=False)
