"""No request fails while shares change: real copies, real HAProxy, reloads at random moments."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.proofs.handovers import prove
from tests.support.soak import SOAK, scaled

HANDOVERS = [
    (60, "strict"),
    (97, "overlap"),
    pytest.param(60, "overlap", marks=pytest.mark.soak),  # the other three are shorter forms enough
    (97, "strict"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("packing", "mode"), HANDOVERS)
def test_no_request_fails_while_shares_change(tmp_path: Path, packing: int, mode: str) -> None:
    changes = scaled(200, 2 if (packing, mode) == (97, "strict") else 6)
    result = prove(packing, mode, changes, 90, 1, tmp_path, 0.3 if SOAK else 0.1)
    assert result.failed == []
    assert result.changes == changes
    assert result.held == (changes if (packing, mode) == (97, "strict") else 0)
