"""One HAProxy with its sidecar, and copies behind it, for the tests of the gateway."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.haproxy import Copies, Gateway, running_copies, running_gateway


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Gateway]:
    with running_gateway(tmp_path / "gateway") as running:
        yield running


@pytest.fixture(scope="module")
def copies() -> Iterator[Copies]:
    with running_copies(8) as running:
        yield running
