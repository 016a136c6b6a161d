"""The simulated device conforms, in virtual time inside the process that uses it."""

from __future__ import annotations

import pytest

from tests.agents.devices.device.conformance import CHECKS, Check, named
from tests.agents.devices.device.in_process import InProcess


@pytest.mark.parametrize("check", CHECKS, ids=named)
def test_the_simulated_device_conforms(check: Check) -> None:
    check(InProcess().made())
