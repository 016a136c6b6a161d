"""The root helper's decisions, without a driver, a clock or a socket."""

from __future__ import annotations

import subprocess
import sys

import pytest

from agents.devices.privileged.root_devices import AllowedSettings
from agents.devices.privileged.rules import check_change
from agents.devices.privileged.server import RateLimiter
from agents.devices.privileged.wire import DeviceChange, LockClock, ResetClock, SetComputeMode, SetPower

V100 = AllowedSettings(frozenset({135, 1380, 1530}), 100_000, 250_000)
SILENT = AllowedSettings(frozenset(), 0, 0)


@pytest.mark.parametrize(
    ("change", "allowed", "trouble"),
    [
        (LockClock("GPU-1", 1380), V100, ""),
        (LockClock("GPU-1", 1381), V100, "out_of_range"),
        (LockClock("GPU-1", 1380), SILENT, "not_supported"),
        (SetPower("GPU-1", 100_000), V100, ""),
        (SetPower("GPU-1", 250_001), V100, "out_of_range"),
        (SetPower("GPU-1", 100_000), SILENT, "not_supported"),
        (ResetClock("GPU-1"), SILENT, ""),
        (SetComputeMode("GPU-1", "default"), SILENT, ""),
    ],
)
def test_only_what_the_device_says_it_supports_is_let_through(
    change: DeviceChange, allowed: AllowedSettings, trouble: str
) -> None:
    reply = check_change(change, allowed)
    assert (reply.trouble if reply else "") == trouble


def test_a_refusal_names_what_is_allowed() -> None:
    reply = check_change(SetPower("GPU-1", 99), V100)
    assert reply
    assert reply.message == "99 mW is outside 100000..250000 mW of GPU-1"


def test_a_bucket_gives_its_reserve_at_once_and_then_its_rate() -> None:
    bucket = RateLimiter(most=3, per_second=2)
    assert [bucket.take(100.0) for _ in range(4)] == [True, True, True, False]
    assert [bucket.take(101.0) for _ in range(3)] == [True, True, False]
    assert [bucket.take(9999.0) for _ in range(4)] == [True, True, True, False]


def test_the_root_process_knows_nothing_of_networks() -> None:
    program = (
        "import sys, agents.devices.privileged.server\n"
        "print(sorted(name for name in sys.modules if name.startswith('agents.') and 'privileged' not in name))\n"
        "print(sorted({'ssl', 'http', 'urllib.request', 'cli', 'yaml', 'asyncio'} & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    known = [
        "agents.devices",
        "agents.devices.nvml",
        "agents.devices.nvml.originals",
        "agents.devices.nvml.writer",
        "agents.host",
        "agents.host.clocks",
        "agents.host.durable",
        "agents.host.ownership",
        "agents.seams",
        "agents.seams.device",
    ]
    assert done.stdout.splitlines() == [str(known), "[]"]
