"""Names of every slot that dice reads or writes, resolved once per call."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class PriorKeys:
    """Slots written by :func:`dice.tl.train_prior`."""

    key: str = "dice"

    @property
    def uns(self) -> str:
        return self.key

    @property
    def loadings(self) -> str:
        return f"{self.key}_loadings"

    @property
    def projection(self) -> str:
        return f"X_{self.key}_pca"

    @property
    def split(self) -> str:
        return f"{self.key}_split"

    @property
    def genes(self) -> str:
        """Genes that :func:`dice.tl.annotate` has chosen."""
        return f"{self.key}_genes"


@dataclass(frozen=True)
class DenoiseKeys:
    """Slots written by :func:`dice.tl.denoise`."""

    key: str = "X_dice"

    @property
    def mean(self) -> str:
        return self.key

    @property
    def projection(self) -> str:
        return f"{self.key}_pca"

    @property
    def samples(self) -> str:
        return f"{self.key}_samples"

    @property
    def uncertainty(self) -> str:
        return f"{self.key.removeprefix('X_')}_uncertainty"

    @property
    def empty(self) -> str:
        return f"{self.key.removeprefix('X_')}_empty"

    @property
    def uns(self) -> str:
        return self.key


@dataclass(frozen=True)
class LabelKeys:
    """Slots written by :func:`dice.tl.transfer_labels`."""

    key: str

    @property
    def label(self) -> str:
        return self.key

    @property
    def probability(self) -> str:
        return f"{self.key}_prob"

    @property
    def margin(self) -> str:
        return f"{self.key}_margin"

    @property
    def set(self) -> str:
        return f"{self.key}_set"

    @property
    def status(self) -> str:
        return f"{self.key}_status"

    @property
    def voted(self) -> str:
        return f"{self.key}_voted"

    @property
    def colors(self) -> str:
        return f"{self.key}_colors"

    @property
    def uns(self) -> str:
        return self.key


@dataclass(frozen=True)
class NoveltyKeys:
    """Slots written by :func:`dice.tl.novelty`."""

    key: str = "dice_novelty"

    @property
    def score(self) -> str:
        return self.key

    @property
    def p_value(self) -> str:
        return f"{self.key}_p"

    @property
    def flag(self) -> str:
        return f"{self.key}_flag" if self.key != "dice_novelty" else "dice_novel"

    @property
    def group_flag(self) -> str:
        return f"{self.key}_group_flag" if self.key != "dice_novelty" else "dice_novel_group"

    @property
    def uns(self) -> str:
        return self.key


@dataclass(frozen=True)
class ClusterKeys:
    """Slots written by :func:`dice.tl.cluster`."""

    key: str = "dice_cluster"

    @property
    def cluster(self) -> str:
        return self.key

    @property
    def confidence(self) -> str:
        return f"{self.key}_confidence"

    @property
    def colors(self) -> str:
        return f"{self.key}_colors"

    @property
    def uns(self) -> str:
        return self.key


@dataclass(frozen=True)
class AnnotateKeys:
    """Slots written by :func:`dice.tl.annotate` beside those of the verbs that it calls."""

    @property
    def uns(self) -> str:
        return "dice_annotate"

    @property
    def layer(self) -> str:
        """Layer with log-normalised values, where ``X`` holds raw counts."""
        return "dice_lognorm"


@dataclass(frozen=True)
class FeatureKeys:
    """Slots written by :func:`dice.tl.transfer_features`."""

    key: str

    @property
    def mean(self) -> str:
        return self.key

    @property
    def low(self) -> str:
        return f"{self.key}_low"

    @property
    def high(self) -> str:
        return f"{self.key}_high"

    @property
    def uns(self) -> str:
        return self.key


def names_of_results(key: str) -> frozenset[str]:
    """All slots that a call which writes its record under a key may have written, whichever call it was."""
    kinds = (DenoiseKeys, LabelKeys, NoveltyKeys, ClusterKeys, FeatureKeys)
    return frozenset(
        str(getattr(kind(key), name))
        for kind in kinds
        for name, value in vars(kind).items()
        if isinstance(value, property)
    )
