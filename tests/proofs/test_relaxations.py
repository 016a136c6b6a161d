"""The change that an explanation names serves the service, in 200 of 200; every day in 10."""

from __future__ import annotations

import pytest

from tests.proofs.relaxations import prove
from tests.support.soak import scaled


@pytest.mark.slow
def test_the_change_that_is_named_serves_the_service() -> None:
    found = prove(scaled(200, 10))
    assert found.failed == []
    assert any(case.is_displaced for case in found.cases)
