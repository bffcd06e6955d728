"""The messages that docs/faq.md explains exist, word by word."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SECTIONS = (ROOT / "docs" / "faq.md").read_text().split("## Questions")[0]
MESSAGES = re.findall(r"^### (.+)$", SECTIONS, flags=re.MULTILINE)
#: Sources as one line each, because a message may be broken over several strings.
SOURCE = "\n".join(
    re.sub(r'"\s*\n\s*f?"', "", path.read_text()) for path in sorted((ROOT / "src" / "dice").rglob("*.py"))
)


@pytest.mark.parametrize("message", MESSAGES)
def test_message_exists(message):
    assert message in SOURCE
