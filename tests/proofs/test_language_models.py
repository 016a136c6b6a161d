"""Twelve services, four of them language models, keep their SLOs under moving load; SQL costs what the ledger paid."""

from __future__ import annotations

import pytest

from tests.proofs.language_models import prove


@pytest.mark.soak  # half an hour of waiting; real streams are measured every day elsewhere
@pytest.mark.timeout(3600)
def test_language_models_keep_their_promises_beside_everything_else() -> None:
    assert prove(10) == 0
