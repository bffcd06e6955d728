"""Ctrl-C that waits, and Ctrl-C that is not forgotten."""

from __future__ import annotations

import signal
import threading
from contextlib import suppress

import pytest

from dice._files import atomic
from dice._processes import interrupts


@pytest.fixture(autouse=True)
def ctrl_c():
    """Ctrl-C as a terminal has it: a shell that starts tests in the background has it ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    signal.signal(signal.SIGINT, before)


def test_a_first_one_waits_and_a_second_one_does_not():
    with interrupts(wait=True) as interrupted:
        assert not interrupted()
        signal.raise_signal(signal.SIGINT)
        assert interrupted()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_one_that_was_swallowed_is_remembered():
    with interrupts(wait=False) as interrupted:
        for _ in range(2):
            with suppress(KeyboardInterrupt):
                signal.raise_signal(signal.SIGINT)
                pytest.fail("it goes on")
        assert interrupted()


def test_a_handler_of_the_users_own_is_left_alone():
    heard = []
    before = signal.signal(signal.SIGINT, lambda *_: heard.append(1))
    with interrupts(wait=True) as interrupted:
        signal.raise_signal(signal.SIGINT)
        assert not interrupted()
    signal.signal(signal.SIGINT, before)
    assert heard == [1]


def test_other_threads_have_no_handlers():
    told = []

    def work():
        with interrupts(wait=True) as interrupted:
            told.append(interrupted())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert told == [False]


def test_a_file_whose_writing_was_interrupted_is_not_replaced(tmp_path):
    """Where Ctrl-C lands in a callback of the garbage collector, Python prints it and goes on."""
    output = tmp_path / "out"
    output.write_text("old")

    def write():
        with atomic(output) as draft:
            with suppress(KeyboardInterrupt):
                signal.raise_signal(signal.SIGINT)
            draft.write_text("new")

    with pytest.raises(KeyboardInterrupt):
        write()
    assert output.read_text() == "old"
    assert list(tmp_path.iterdir()) == [output]
