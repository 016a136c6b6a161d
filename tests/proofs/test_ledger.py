"""The ledger says what the agents' journals say, after everything was killed at random: no hole, nothing twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.proofs.ledger import besieged, judged_by_journals
from tests.proofs.town import town
from tests.support.postgres import DatabaseServer
from tests.support.soak import scaled


@pytest.mark.slow
def test_what_was_killed_is_booked_once_and_every_gap_is_marked(postgres: DatabaseServer, tmp_path: Path) -> None:
    url = postgres.create()
    with town(url, url, tmp_path, scaled(6, 2), {"GPUWRIGHT_DATABASE_DIRECT": "1"}) as made:
        verdict = judged_by_journals(made, besieged(made, scaled(600, 5), seed=1), url)
    postgres.drop(url)
    assert verdict.wrong == []
    assert verdict.unmarked == 0
    assert verdict.copies > 0
