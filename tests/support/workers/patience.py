"""How long a test may take before it counts as hanging."""

from __future__ import annotations

import pytest

from tests.support.patience import patience

SECONDS, SLOW_SECONDS = 60.0, 600.0


def find_patience(item: pytest.Item) -> float:
    """Returns what the test or the command line says; else a minute, ten for a slow one, more on busy cores."""
    given = item.config.getvalue("timeout")
    if marker := item.get_closest_marker("timeout"):
        return float(marker.args[0])
    if given is not None:
        return float(given)
    return patience(SLOW_SECONDS if item.get_closest_marker("slow") else SECONDS)
