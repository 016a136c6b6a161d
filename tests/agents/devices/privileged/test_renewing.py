"""Settings of the agent survive a restart of the root helper."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from agents.devices.nvml.writer import EXCLUSIVE_PROCESS_MODE
from agents.devices.privileged.client import Privileged
from agents.seams.device import DeviceError, Trouble
from tests.agents.devices.privileged.file_devices import AS_BOUGHT, GPU, OTHER
from tests.agents.devices.privileged.running import Helper, running
from tests.support.patience import until

pytestmark = pytest.mark.slow


@pytest.fixture
def helper(tmp_path: Path) -> Iterator[Helper]:
    with running(tmp_path, uid=os.geteuid()) as started:
        yield started


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_a_restarted_helper_gets_all_settings_again(helper: Helper, how: signal.Signals) -> None:
    helper.client.lock_clock(GPU, 900)
    helper.client.set_power_mw(GPU, 200_000)
    helper.client.set_power_mw(GPU, 150_000)
    helper.client.set_compute_mode(OTHER, EXCLUSIVE_PROCESS_MODE)
    assert not helper.client.renew(), "it is the same helper"
    helper.stop(how)
    helper.start()
    assert helper.device() == helper.device(OTHER) == AS_BOUGHT
    assert helper.client.renew()
    assert helper.device() == {"clock": 900, "power": 150_000, "mode": 0}
    assert helper.device(OTHER)["mode"] == EXCLUSIVE_PROCESS_MODE
    assert not helper.client.renew()
    assert helper.stop() == 0
    assert helper.device() == helper.device(OTHER) == AS_BOUGHT


def test_a_clock_that_was_freed_is_not_locked_again(helper: Helper) -> None:
    helper.client.lock_clock(GPU, 900)
    helper.client.reset_clock(GPU)
    helper.stop()
    helper.start()
    assert not helper.client.renew()
    assert helper.device() == AS_BOUGHT


def test_a_change_right_after_the_restart_does_not_hide_it(helper: Helper) -> None:
    helper.client.set_power_mw(GPU, 150_000)
    helper.client.set_power_mw(OTHER, 150_000)
    helper.stop()
    helper.start()
    helper.client.set_power_mw(OTHER, 200_000)
    assert helper.client.renew()
    assert (helper.device()["power"], helper.device(OTHER)["power"]) == (150_000, 200_000)


def test_a_device_that_is_gone_does_not_keep_the_others_from_being_set(helper: Helper) -> None:
    helper.client.set_power_mw(OTHER, 150_000)
    helper.client.set_power_mw(GPU, 150_000)
    helper.stop()
    helper.without(OTHER)
    helper.start()
    assert helper.client.renew()
    assert helper.device()["power"] == 150_000


def test_a_missing_helper_is_reported_and_waited_for(helper: Helper) -> None:
    helper.client.set_power_mw(GPU, 150_000)
    helper.stop()
    with pytest.raises(DeviceError) as caught:
        helper.client.renew()
    assert caught.value.trouble is Trouble.NO_PERMISSION
    helper.start()
    assert helper.client.renew()


def test_it_is_done_without_being_asked(helper: Helper) -> None:
    client = Privileged(helper.socket, seconds=30, renew_seconds=0.05)
    client.set_power_mw(GPU, 150_000)
    helper.stop()
    helper.start()
    until(lambda: helper.device()["power"] == 150_000, "nobody set it again")
    client.close()
