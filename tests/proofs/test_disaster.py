"""The database's machine is lost with its disk; what was acknowledged before the archive's last segment comes back."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.store.database.versions import LEAP_BY
from tests.proofs.disaster import disaster


@pytest.mark.soak  # minutes of real processes; the leap itself: tests/app/store/test_backup.py
def test_a_restore_to_a_moment_is_that_moment_and_nodes_believe_it_after_the_leap(tmp_path: Path) -> None:
    outcome = disaster(tmp_path, archive_seconds=2, seconds=8.0)
    assert outcome.wrong_at_the_moment == []
    assert outcome.refused, "an older epoch was taken before the leap"
    assert outcome.seen_after[0] > LEAP_BY
    assert outcome.copies_kept
