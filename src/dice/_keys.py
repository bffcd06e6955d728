"""Names of all slots that dice reads or writes."""

from collections.abc import Mapping
from typing import ClassVar

#: Status of a transferred label, as stored in ``obs``.
CONFIDENT, AMBIGUOUS, UNLIKE = STATUSES = ("confident", "ambiguous", "unlike the reference")

#: Layer for the values of a panel, normalised on the genes that query and reference share. A prior that was trained on
#: this layer is for panels.
PANEL_LAYER = "dice_panel"


class Keys:
    """Names of the slots of one call, by content: ``DenoiseKeys("X_dice").samples`` is ``"X_dice_samples"``.

    A subclass gives its default key and the template of each name; ``{stem}`` is the key without ``X_``. ``uns`` is the
    key itself unless it has a template. `own` are names that differ for the default key.
    """

    default: ClassVar[str]
    table: ClassVar[Mapping[str, str]]
    own: ClassVar[Mapping[str, str]]

    def __init_subclass__(cls, default: str = "", own: Mapping[str, str] | None = None, **table: str) -> None:
        cls.default, cls.own, cls.table = default, own or {}, {"uns": "{key}"} | table

    def __init__(self, key: str | None = None) -> None:
        self.key = self.default if key is None else key

    def __getattr__(self, name: str) -> str:
        if name not in self.table:
            raise AttributeError(name)
        template = self.own.get(name) if self.key == self.default else None
        return (template or self.table[name]).format(key=self.key, stem=self.key.removeprefix("X_"))


class PriorKeys(
    Keys, default="dice", loadings="{key}_loadings", projection="X_{key}_pca", split="{key}_split", genes="{key}_genes"
):
    """Slots of :func:`dice.tl.train_prior`; `genes` marks the genes that :func:`dice.tl.annotate` has chosen."""


class DenoiseKeys(
    Keys, default="X_dice", mean="{key}", projection="{key}_pca", samples="{key}_samples",
    uncertainty="{stem}_uncertainty", empty="{stem}_empty",
):  # fmt: skip
    """Slots of :func:`dice.tl.denoise`."""


class LabelKeys(
    Keys, label="{key}", probability="{key}_prob", margin="{key}_margin", set="{key}_set", status="{key}_status",
    voted="{key}_voted", views="{key}_views", colors="{key}_colors",
):  # fmt: skip
    """Slots of :func:`dice.tl.transfer_labels`."""


class SafeKeys(
    Keys, uns="{key}_safe", label="{key}_safe", level="{key}_level", probability="{key}_safe_prob", at="{key}_at_"
):
    """Slots of :func:`dice.tl.safe_labels`, by the key of the labels. The name of a level is appended to `at`."""


class NoveltyKeys(
    Keys, default="dice_novelty", own={"flag": "dice_novel", "group_flag": "dice_novel_group"},
    score="{key}", p_value="{key}_p", flag="{key}_flag", group="{key}_group", group_flag="{key}_group_flag",
):  # fmt: skip
    """Slots of :func:`dice.tl.novelty`."""


class ClusterKeys(
    Keys, default="dice_cluster", cluster="{key}", confidence="{key}_confidence", colors="{key}_colors",
    leaves="{key}_leaves",
):  # fmt: skip
    """Slots of :func:`dice.tl.cluster`."""


class AnnotateKeys(Keys, default="dice_annotate", layer="dice_lognorm"):
    """Slots of :func:`dice.tl.annotate` besides the slots of its steps; `layer` holds log-normalised expression."""


class FeatureKeys(Keys, mean="{key}", low="{key}_low", high="{key}_high"):
    """Slots of :func:`dice.tl.transfer_features`."""


def names_of_results(key: str) -> frozenset[str]:
    """Return all slots that any call with its record under `key` may have written."""
    calls = (DenoiseKeys, LabelKeys, SafeKeys, NoveltyKeys, ClusterKeys, FeatureKeys)
    return frozenset(getattr(call(key), name) for call in calls for name in call.table)
