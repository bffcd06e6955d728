"""``python -m dice`` is the command ``dice``."""

import sys

from dice.cli import main

sys.exit(main())
