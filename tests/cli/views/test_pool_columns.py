"""The table of pools says how often a spot node is taken back."""

from __future__ import annotations

from typing import Any

from app.manifests.model import Kind
from cli.views.columns import columns


def test_a_spot_pool_shows_the_rate_that_was_learned_and_others_show_none() -> None:
    (column,) = (found for found in columns(Kind.POOL, wide=True) if found.heading == "RECLAIMS/H")
    spot: dict[str, Any] = {"status": {"reclaims": {"ratePerHour": 0.0189}}}
    assert column.cell(spot) == "0.0189"
    assert column.cell({"status": {}}) == ""
