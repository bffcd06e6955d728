"""Exceptions of dice. Each message is one sentence with the problem and the fix."""


class DiceError(Exception):
    """Base class of all errors raised by dice on purpose."""


class InputError(DiceError, ValueError):
    """An argument or a matrix cannot be used as it is."""


class SlotError(DiceError, KeyError):
    """A call needs a slot that the AnnData object does not have."""

    # KeyError would print the message in quotes.
    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


class PriorFormatError(DiceError, ValueError):
    """A stored prior is damaged, forged, or written by a newer version."""


class FileError(DiceError, OSError):
    """A file cannot be written, read or downloaded."""


class TrainingError(DiceError, RuntimeError):
    """Training of a prior cannot go on."""


class DiceWarning(UserWarning):
    """Category of all warnings issued by dice."""
