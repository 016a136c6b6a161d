"""The contract of every device and its MPS, simulated or real: one list of checks, each run on a fresh machine.

A check takes a `Made` and raises AssertionError, or lets a DeviceError through, where the implementation falls
short. An implementation runs them all:

    @pytest.mark.parametrize("check", CHECKS, ids=named)
    def test_it_conforms(check: Check, made: Made) -> None:
        check(made)
"""

from tests.agents.devices.device import of_devices, of_mps
from tests.agents.devices.device.checks import CHECKS, Check, named

__all__ = ["CHECKS", "Check", "named", "of_devices", "of_mps"]
