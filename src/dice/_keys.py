"""Names of all slots that dice reads or writes."""

from __future__ import annotations

from typing import ClassVar

#: Status of a transferred label, as stored in ``obs``.
CONFIDENT, AMBIGUOUS, UNLIKE = STATUSES = ("confident", "ambiguous", "unlike the reference")

#: Layer for the values of a panel, normalised on the genes that query and reference share. A prior that was trained on
#: this layer is for panels.
PANEL_LAYER = "dice_panel"


class Keys:
    """Names of the slots of one call, by content: ``DenoiseKeys("X_dice").samples`` is ``"X_dice_samples"``."""

    #: The default key.
    default: ClassVar[str] = ""
    #: Template of each name, by content; ``{stem}`` is the key without ``X_``. ``uns`` is always the key itself.
    table: ClassVar[dict[str, str]] = {}
    #: Names that differ for the default key.
    own: ClassVar[dict[str, str]] = {}

    def __init__(self, key: str | None = None) -> None:
        self.key = self.default if key is None else key

    def __getattr__(self, name: str) -> str:
        if name != "uns" and name not in self.table:
            raise AttributeError(name)
        if self.key == self.default and name in self.own:
            return self.own[name]
        return self.table.get(name, "{key}").format(key=self.key, stem=self.key.removeprefix("X_"))

    def all(self) -> frozenset[str]:
        """Return all names of the call."""
        return frozenset(getattr(self, name) for name in (*self.table, "uns"))


class PriorKeys(Keys):
    """Slots of :func:`dice.tl.train_prior`; `genes` are those that :func:`dice.tl.annotate` has chosen."""

    default = "dice"
    table: ClassVar[dict[str, str]] = {
        "loadings": "{key}_loadings", "projection": "X_{key}_pca", "split": "{key}_split", "genes": "{key}_genes"
    }  # fmt: skip


class DenoiseKeys(Keys):
    """Slots of :func:`dice.tl.denoise`."""

    default = "X_dice"
    table: ClassVar[dict[str, str]] = {
        "mean": "{key}", "projection": "{key}_pca", "samples": "{key}_samples", "uncertainty": "{stem}_uncertainty",
        "empty": "{stem}_empty",
    }  # fmt: skip


class LabelKeys(Keys):
    """Slots of :func:`dice.tl.transfer_labels`."""

    table: ClassVar[dict[str, str]] = {
        "label": "{key}", "probability": "{key}_prob", "margin": "{key}_margin", "set": "{key}_set",
        "status": "{key}_status", "voted": "{key}_voted", "views": "{key}_views",
        "colors": "{key}_colors",
    }  # fmt: skip


class SafeKeys(Keys):
    """Slots of :func:`dice.tl.safe_labels`; the key is that of the labels. `at` is followed by the name of a level."""

    table: ClassVar[dict[str, str]] = {
        "label": "{key}_safe", "level": "{key}_level", "probability": "{key}_safe_prob", "at": "{key}_at_",
        "uns": "{key}_safe",
    }  # fmt: skip


class NoveltyKeys(Keys):
    """Slots of :func:`dice.tl.novelty`."""

    default = "dice_novelty"
    table: ClassVar[dict[str, str]] = {
        "score": "{key}", "p_value": "{key}_p", "flag": "{key}_flag",
        "group": "{key}_group", "group_flag": "{key}_group_flag",
    }  # fmt: skip
    own: ClassVar[dict[str, str]] = {"flag": "dice_novel", "group_flag": "dice_novel_group"}


class ClusterKeys(Keys):
    """Slots of :func:`dice.tl.cluster`."""

    default = "dice_cluster"
    table: ClassVar[dict[str, str]] = {
        "cluster": "{key}", "confidence": "{key}_confidence", "colors": "{key}_colors", "leaves": "{key}_leaves"
    }  # fmt: skip


class AnnotateKeys(Keys):
    """Slots of :func:`dice.tl.annotate` beside those of its steps; the layer is log-normalised expression."""

    default = "dice_annotate"
    table: ClassVar[dict[str, str]] = {"layer": "dice_lognorm"}


class FeatureKeys(Keys):
    """Slots of :func:`dice.tl.transfer_features`."""

    table: ClassVar[dict[str, str]] = {"mean": "{key}", "low": "{key}_low", "high": "{key}_high"}


def names_of_results(key: str) -> frozenset[str]:
    """Return all slots that any call with its record under `key` may have written."""
    calls = (DenoiseKeys, LabelKeys, SafeKeys, NoveltyKeys, ClusterKeys, FeatureKeys)
    return frozenset().union(*(call(key).all() for call in calls))
