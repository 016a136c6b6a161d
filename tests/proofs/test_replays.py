"""Decisions that are recorded come out the same where there is hardly any time for them."""

from __future__ import annotations

import pytest

from tests.proofs.replays import prove
from tests.support.soak import scaled


@pytest.mark.slow
@pytest.mark.timeout(scaled(3600, 900))
def test_recorded_decisions_are_made_again_at_nice_19_next_to_a_busy_loop() -> None:
    seen = prove(scaled(1000, 4))
    assert not seen.differences, seen
    assert len(seen.kinds) >= 2, seen
