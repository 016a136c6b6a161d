"""Faults of all kinds break none of I1 to I9; without one of its defences the product is caught."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.proofs.campaign.removals import REMOVALS
from tests.proofs.campaign.running import KINDS, run_campaign
from tests.proofs.campaign.states import possible_pairs
from tests.support.soak import SOAK

pytestmark = pytest.mark.slow

FAULTS = 1000 if SOAK else 30
MOST_FAULTS = 400  # until a removal is noticed
QUICK = ("fsync", "pid-identity", "isolation", "commit-reread")  # noticed within a few faults


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """The product logs every fault."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("seed", range(10) if SOAK else [1])
def test_a_campaign_of_faults_breaks_no_invariant(database_url: str, tmp_path: Path, seed: int) -> None:
    result = run_campaign(database_url, tmp_path / "fleet", seed, FAULTS)
    assert result.violations == ()
    assert result.faults == FAULTS
    assert result.pairs <= possible_pairs(KINDS)
    assert {"idle", "rollout", "rising"} <= {state for state, _ in result.pairs}


@pytest.mark.parametrize("removal", REMOVALS if SOAK else QUICK)
def test_a_removed_defence_is_noticed(database_url: str, tmp_path: Path, removal: str) -> None:
    result = run_campaign(database_url, tmp_path / "fleet", 1, MOST_FAULTS, removal)
    assert any(found.startswith(REMOVALS[removal].invariant) for found in result.violations)
