"""Every error that a user can meet: of our own kind, one sentence, with the culprit and what to do instead."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path

import dice
from dice import _errors

SOURCE = Path(dice.__file__).parent
#: What scanpy's users catch for the same mistake.
EXPECTED = {
    _errors.InputError: ValueError,
    _errors.SlotError: KeyError,
    _errors.PriorFormatError: ValueError,
    _errors.FileError: OSError,
    _errors.TrainingError: RuntimeError,
}
#: Errors of a programmer, not of a user: abstract methods, wrong use of inner parts, names that do not exist.
INNER = {"AttributeError", "TypeError", "RuntimeError", "NotImplementedError", "KeyboardInterrupt", "SystemExit"}
#: A missing package, and a broken connection that the same module catches.
INNER |= {"ImportError", "requests.ConnectionError"}
#: What a sentence says to do, or what it names as possible.
ADVICE = re.compile(
    r"[:;]|available|pass |call |use |install |train |is not |are not |not between|unknown|needs |must |<…>$"
)


def raised() -> dict[str, ast.Call]:
    """All errors that are raised with a message, by place."""
    found = {}
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
                found[f"{path.relative_to(SOURCE)}:{node.lineno}"] = node.exc
    return found


RAISED = raised()
OURS = {place: call for place, call in RAISED.items() if ast.unparse(call.func) not in INNER}


def text_of(call: ast.Call) -> str:
    """The message with a placeholder for all that is known only then; nothing where it is a variable."""
    argument = call.args[0] if call.args else ast.Constant("")
    if isinstance(argument, ast.Constant):
        return str(argument.value)
    if isinstance(argument, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else "<…>" for part in argument.values)
    return ""


def test_every_class_is_a_dice_error_and_what_scanpy_users_catch():
    classes = {c for _, c in inspect.getmembers(_errors, inspect.isclass) if issubclass(c, dice.DiceError)}
    assert classes == {dice.DiceError, *EXPECTED}
    for error, familiar in EXPECTED.items():
        assert issubclass(error, dice.DiceError)
        assert issubclass(error, familiar)
        assert str(error("One sentence.")) == "One sentence."
    assert issubclass(dice.DiceWarning, UserWarning)


def test_nothing_else_is_raised():
    names = {error.__name__ for error in EXPECTED} | {"BadValuesError", "failure"}
    odd = {place: ast.unparse(call.func) for place, call in OURS.items() if ast.unparse(call.func) not in names}
    assert not odd
    assert len(OURS) > 80


def test_inner_errors_stay_inside():
    """Errors of a programmer are few, and none is in the functions that users call."""
    inner = {place: ast.unparse(call.func) for place, call in RAISED.items() if place not in OURS}
    faces = {place for place in inner if place.startswith(("pp/", "tl/", "pl/", "_data/"))}
    assert {inner[place] for place in faces} <= {"KeyboardInterrupt"}


#: Turns of phrase that a reader has to read twice.
RIDDLES = re.compile(
    r"(?<!There )\b(is|are|was|were) (no|none)\b(?! longer)|so many|of (his|its) own|says not|that is said"
)


def test_a_message_is_one_sentence_with_advice():
    for place, call in OURS.items():
        text = text_of(call)
        if not text:
            continue  # Built elsewhere: the tests of that function read it.
        told = f"{place}: {text}"
        assert "\n" not in text, told
        assert text.endswith((".", "?", "<…>")), told
        assert not re.search(r"[a-z)]\. [A-Z]", text.replace("<…>.", "")), f"two sentences, {told}"
        assert text[0].isupper() or re.match(r"<…>|[a-z_]+[=. \[]|['\"`]", text), told
        assert "<…>" in text or len(text) > 30, f"names no culprit, {told}"
        # For a file that is no prior the advice is always the same: take another (docs/security.md).
        assert ADVICE.search(text) or ast.unparse(call.func) == "PriorFormatError", f"gives no advice, {told}"


def test_messages_are_plain_english():
    assert not {place: text_of(call) for place, call in OURS.items() if RIDDLES.search(text_of(call))}
