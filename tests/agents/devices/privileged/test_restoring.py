"""The root helper restores what it has set: when it ends or, after a crash, when it next starts."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from agents.seams.device import DeviceError
from tests.agents.devices.privileged.file_devices import AS_BOUGHT, GPU, OTHER
from tests.agents.devices.privileged.running import ROOT, Helper, running
from tests.support.patience import patience, until
from tests.support.soak import scaled


@pytest.fixture
def helper(tmp_path: Path) -> Iterator[Helper]:
    with running(tmp_path, uid=os.geteuid()) as started:
        yield started


@pytest.mark.slow
def test_a_death_between_the_write_and_its_answer_is_undone_by_the_next_start(helper: Helper) -> None:
    helper.fault(sleep_seconds=600)
    asking = threading.Thread(target=lambda: suppressed(lambda: helper.client.set_power_mw(GPU, 150_000)))
    asking.start()
    until(lambda: helper.device()["power"] == 150_000)
    helper.stop(signal.SIGKILL)
    asking.join(patience())
    assert helper.device()["power"] == 150_000, "nobody has put it back yet"
    helper.fault()
    helper.start()
    assert helper.device() == AS_BOUGHT


@pytest.mark.slow
def test_what_one_life_changed_twice_goes_back_to_what_was_before_the_first(helper: Helper) -> None:
    for mw in (150_000, 200_000, 120_000):
        helper.client.set_power_mw(GPU, mw)
    helper.stop(signal.SIGKILL)
    helper.start()
    assert helper.device()["power"] == AS_BOUGHT["power"]


@pytest.mark.slow
def test_killed_at_any_moment_the_originals_are_never_lost(helper: Helper) -> None:
    rng = random.Random(7)
    for _ in range(scaled(60, 6)):
        ended = threading.Event()
        churn = threading.Thread(target=churned, args=(helper, random.Random(rng.random()), ended))
        churn.start()
        time.sleep(rng.uniform(0.0, 0.15))
        helper.stop(signal.SIGKILL)
        ended.set()
        churn.join(patience())
        helper.start()
        assert helper.device(GPU) == AS_BOUGHT
        assert helper.device(OTHER) == AS_BOUGHT


def test_an_agent_that_is_gone_is_no_reason_to_undo_anything(helper: Helper) -> None:
    helper.client.set_power_mw(GPU, 150_000)
    for _ in range(3):
        helper.connected().close()
        assert helper.client.hello().ok
    assert helper.device()["power"] == 150_000


@pytest.mark.slow
def test_a_restart_shows_as_another_start_in_hello(helper: Helper) -> None:
    first = helper.client.hello().started
    assert helper.client.hello().started == first
    helper.stop()
    helper.start()
    assert helper.client.hello().started != first


@pytest.mark.slow
def test_a_device_that_is_gone_when_all_is_undone_is_remembered(helper: Helper) -> None:
    helper.client.set_power_mw(GPU, 150_000)
    helper.client.set_power_mw(OTHER, 150_000)
    board = helper.where / "board.json"
    devices = json.loads(board.read_text())
    lost = devices.pop(GPU)
    board.write_text(json.dumps(devices))
    assert helper.stop() == 0
    assert helper.device(OTHER) == AS_BOUGHT, "one lost device hides no other"
    board.write_text(json.dumps(devices | {GPU: lost}))
    helper.start()
    assert helper.device(GPU) == AS_BOUGHT


@pytest.mark.slow
def test_what_was_original_before_the_machine_was_booted_is_forgotten(helper: Helper) -> None:
    helper.client.set_power_mw(GPU, 150_000)
    helper.stop(signal.SIGKILL)
    kept = helper.where / "state" / "originals.json"
    kept.write_text(json.dumps(json.loads(kept.read_text()) | {"bootId": "another"}))
    helper.preset(power=222_000)  # as an administrator's boot script would
    helper.start()
    assert helper.device()["power"] == 222_000


@pytest.mark.slow
def test_damaged_originals_are_not_guessed(helper: Helper) -> None:
    helper.client.set_power_mw(GPU, 150_000)
    helper.stop(signal.SIGKILL)
    (helper.where / "state" / "originals.json").write_text("{")
    words = ["-m", "tests.agents.devices.privileged.file_devices", str(helper.where), "-", "-"]
    second_start = subprocess.run(
        [sys.executable, *words], cwd=ROOT, capture_output=True, text=True, timeout=patience()
    )
    assert second_start.returncode == 1
    assert "move it away" in second_start.stderr
    assert "Traceback" not in second_start.stderr


def test_originals_that_cannot_be_written_forbid_the_change(helper: Helper) -> None:
    (helper.where / "state" / "originals.json.new").mkdir()
    with pytest.raises(DeviceError, match="nothing was changed"):
        helper.client.set_power_mw(GPU, 150_000)
    assert helper.writes() == []


def churned(helper: Helper, rng: random.Random, ended: threading.Event) -> None:
    """Changes as fast as they are taken, until the helper dies."""
    while not ended.is_set():
        uuid = rng.choice((GPU, OTHER))
        change = rng.choice(
            (
                lambda: helper.client.set_power_mw(uuid, rng.randrange(100_000, 300_000)),  # noqa: B023
                lambda: helper.client.set_compute_mode(uuid, rng.choice((0, 3))),  # noqa: B023
                lambda: helper.client.lock_clock(uuid, 900),  # noqa: B023
            )
        )
        suppressed(change)


def suppressed(change: object) -> None:
    assert callable(change)
    with suppress(DeviceError):
        change()
