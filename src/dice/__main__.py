"""``python -m dice`` is the command ``dice``."""

from __future__ import annotations

import sys

from dice.cli import main

sys.exit(main())
