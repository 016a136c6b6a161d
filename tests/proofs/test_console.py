"""The console before a large fleet; every day a small one, so that the proof itself stays true."""

from __future__ import annotations

import pytest

from tests.proofs.console import CHROMIUM, LOOKS, MOST_PAINT_MS, VISITS, town
from tests.support.needs import need
from tests.support.postgres import DatabaseServer
from tests.support.soak import SOAK, scaled

MOST_BYTES = 300_000


@pytest.mark.slow
def test_the_page_of_a_large_fleet_is_small_and_breaks_no_rule_of_axe(postgres: DatabaseServer) -> None:
    need(CHROMIUM, "chromium")
    size = (scaled(1000, 20), scaled(300, 10), scaled(60, 10))
    looks = list(LOOKS)[: scaled(len(LOOKS), 1)]
    for figures in town(postgres, *size, None, scaled(VISITS, 1), looks):
        print(figures)
        assert figures.violations == ()
        assert figures.page_bytes <= MOST_BYTES
        assert not SOAK or figures.first_paint_ms <= MOST_PAINT_MS
