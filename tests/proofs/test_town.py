"""Real planners, APIs, agents and a sidecar are killed and paused; nobody who asks for an answer notices."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import KINDS_OF_DATABASE
from tests.proofs.town import siege, town
from tests.support.postgres import GivenDatabase
from tests.support.soak import SOAK, scaled


# Every day where a connection is the least sure: behind PgBouncer, in transaction mode.
@pytest.mark.slow
@pytest.mark.parametrize("each_database", KINDS_OF_DATABASE if SOAK else ["pgbouncer"], indirect=True)
def test_case_1_case_2_case_3_case_10_killed_and_paused_processes_cost_no_request(
    each_database: GivenDatabase, tmp_path: Path
) -> None:
    """In the long form on each kind of database."""
    database = each_database
    direct = {"GPUWRIGHT_DATABASE_DIRECT": "1"} if database.direct else {}
    with town(database.url, database.direct_url, tmp_path, scaled(20, 3), direct) as made:
        outcome = siege(made, scaled(50, 4), seed=1)
        assert outcome.failed == (), made.blows
        assert made.twice() == [], made.blows
        assert made.out_of_order() == [], made.blows
