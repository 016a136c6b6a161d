"""The simulated device conforms over its driver: a process of its own, with real sockets and real clients."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agents.devices.device.conformance import CHECKS, Check, named
from tests.agents.devices.device.over_driver import OverDriver


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[OverDriver]:
    stage = OverDriver(tmp_path / "gpus")
    yield stage
    stage.close()


@pytest.mark.slow
@pytest.mark.parametrize("check", CHECKS, ids=named)
def test_the_simulated_driver_conforms(check: Check, stage: OverDriver) -> None:
    check(stage.made())
