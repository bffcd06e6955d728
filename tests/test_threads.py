"""Threads of the process: as many after a call as before it, whoever else is calling."""

from __future__ import annotations

import subprocess
import sys

CODE = """
import threading, torch
import numpy as np
from dice._model.arrays import fit_logistic
from dice._processes import one_torch_thread
torch.set_num_threads(2)
seen, entered, left = [], threading.Event(), threading.Event()
def second():
    entered.wait()
    with one_torch_thread():
        seen.append(torch.get_num_threads())
        left.wait()
thread = threading.Thread(target=second)
thread.start()
with one_torch_thread():
    seen.append(torch.get_num_threads())
    entered.set()
    while len(seen) < 2:
        pass
left.set()
thread.join()
step = torch.optim.LBFGS.step
def watched(self, closure):
    seen.append(torch.get_num_threads())
    return step(self, closure)
torch.optim.LBFGS.step = watched
fit_logistic(np.eye(4, dtype=np.float32), np.arange(4) % 2, 2, strength=1.0)
later = threading.Thread(target=lambda: seen.append(torch.get_num_threads()))
later.start()
later.join()
print(*seen, torch.get_num_threads())
"""


def test_threads_that_overlap_leave_their_number_as_it_was():
    """The second one met the number that the first had set for itself, and left it for good."""
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.split() == ["1", "1", "1", "2", "2"]
