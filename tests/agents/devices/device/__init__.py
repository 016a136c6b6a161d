"""The conformance suite of devices and MPS, the stages it runs on, and a test for each implementation."""

import pytest

pytest.register_assert_rewrite(
    "tests.agents.devices.device.checks", "tests.agents.devices.device.of_devices", "tests.agents.devices.device.of_mps"
)
