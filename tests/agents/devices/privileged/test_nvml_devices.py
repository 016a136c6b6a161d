"""The root helper as it is installed, over the real NVML binding and a stand-in for the driver's library."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agents.devices.nvml.device import NvmlDevice
from agents.devices.nvml.writer import EXCLUSIVE_PROCESS_MODE, Writer
from agents.devices.privileged.client import Privileged
from agents.seams.device import DeviceError, Trouble
from tests.support.needs import need_no_gpu
from tests.support.nvml_stub import NvmlState, environment, load, needs_gcc
from tests.support.nvml_stub.state import NO_PERMISSION, VARIABLE, uuid_of
from tests.support.patience import patience, until

pytestmark = needs_gcc
ROOT = Path(__file__).parents[4]
GPU, OTHER = uuid_of(0), uuid_of(1)


class Installed:
    """`python -m agents.devices.privileged`, and the devices it has."""

    def __init__(self, where: Path) -> None:
        self.nvml = NvmlState(where / "nvml", gpus=2)
        self.client = Privileged(where / "run" / "socket", seconds=30, renew_seconds=0)
        self._where = where
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        words = ["--user", str(os.geteuid()), "--socket", f"{self._where}/run/socket"]
        with (self._where / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "agents.devices.privileged", *words, "--state-dir", f"{self._where}/state"],
                cwd=ROOT, env=os.environ | environment(self.nvml), stderr=log,
            )  # fmt: skip
        until(self._answers, f"no hello: {self.log()}")

    def stop(self, how: signal.Signals = signal.SIGTERM) -> int:
        assert self._process
        if self._process.poll() is None:
            self._process.send_signal(how)
        return self._process.wait(patience())

    def log(self) -> str:
        return (self._where / "log").read_text()

    def set(self, number: int = 0) -> dict[str, str | None]:
        """How a device is set now."""
        return {key: self.nvml.get(number, key) for key in ("locked_max_mhz", "power_limit_mw", "compute_mode")}

    def _answers(self) -> bool:
        assert self._process and self._process.poll() is None, self.log()
        try:
            return self.client.hello().ok
        except DeviceError:
            return False


@pytest.fixture
def installed(tmp_path: Path) -> Iterator[Installed]:
    helper = Installed(tmp_path)
    helper.start()
    yield helper
    helper.stop(signal.SIGKILL)


@pytest.mark.slow
def test_what_is_set_is_set_in_nvml_and_put_back_at_the_end(installed: Installed) -> None:
    before = installed.set()
    writer: Writer = installed.client
    writer.lock_clock(GPU, 1200)
    writer.set_power_mw(GPU, 300_000)
    writer.set_compute_mode(GPU, EXCLUSIVE_PROCESS_MODE)
    assert installed.set() == {"locked_max_mhz": "1200", "power_limit_mw": "300000", "compute_mode": "3"}
    assert installed.stop() == 0
    assert installed.set() == before
    assert {number for number, _, _ in installed.nvml.history()} == {0}


@pytest.mark.slow
def test_the_agents_device_sets_and_restores_through_it(installed: Installed, monkeypatch: pytest.MonkeyPatch) -> None:
    load()
    monkeypatch.setenv(VARIABLE, str(installed.nvml.folder))
    before = installed.set()
    device = NvmlDevice(installed.nvml.folder / "originals.json", writer=installed.client, settle_seconds=0.1)
    try:
        assert device.cap_power(GPU, 300.0).applied == 300.0
        assert device.exclusive(GPU, True).applied == 1.0
        device.lock_clock(GPU, 1200)
        assert installed.set() == {"locked_max_mhz": "1200", "power_limit_mw": "300000", "compute_mode": "3"}
        device.restore()
        assert installed.set() == before
    finally:
        device.close()


@pytest.mark.slow
def test_after_a_death_the_next_start_puts_it_back(installed: Installed) -> None:
    before = installed.set()
    installed.client.set_power_mw(GPU, 300_000)
    installed.client.lock_clock(GPU, 1200)
    installed.stop(signal.SIGKILL)
    assert installed.set() != before
    installed.start()
    assert installed.set() == before


@pytest.mark.slow
def test_nvml_gets_no_request_that_the_device_does_not_support(installed: Installed) -> None:
    asks: list[Callable[[], None]] = [
        lambda: installed.client.lock_clock(GPU, 1201),
        lambda: installed.client.set_power_mw(GPU, 700_001),
        lambda: installed.client.reset_clock("GPU-nobody"),
    ]
    for ask in asks:
        with pytest.raises(DeviceError):
            ask()
    assert installed.nvml.history() == []


@pytest.mark.slow
def test_a_lost_gpu_hides_no_other_and_is_known_again_when_it_comes_back(installed: Installed) -> None:
    installed.client.set_power_mw(GPU, 300_000)
    installed.nvml.lose(0)
    with pytest.raises(DeviceError) as caught:
        installed.client.set_power_mw(GPU, 400_000)
    assert caught.value.trouble is Trouble.LOST
    installed.client.set_power_mw(OTHER, 400_000)
    installed.nvml.give_back(0)
    installed.client.set_power_mw(GPU, 400_000)
    assert installed.set(0)["power_limit_mw"] == installed.set(1)["power_limit_mw"] == "400000"


@pytest.mark.slow
def test_a_call_that_nvml_refuses_is_reported_and_the_helper_continues(installed: Installed) -> None:
    installed.nvml.fails(0, "nvmlDeviceSetPowerManagementLimit", NO_PERMISSION)
    with pytest.raises(DeviceError) as caught:
        installed.client.set_power_mw(GPU, 300_000)
    assert caught.value.trouble is Trouble.NO_PERMISSION
    installed.nvml.works(0)
    installed.client.set_power_mw(GPU, 300_000)
    assert installed.set()["power_limit_mw"] == "300000"


@pytest.mark.slow
def test_without_a_driver_it_says_so_in_one_line(tmp_path: Path) -> None:
    need_no_gpu()
    words = ["--user", "0", "--socket", f"{tmp_path}/socket", "--state-dir", f"{tmp_path}/state"]
    done = subprocess.run(
        [sys.executable, "-m", "agents.devices.privileged", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=patience(),
    )
    assert done.returncode == 1
    assert "NVML" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("words", [[], ["--user", "no-such-user"], ["--group", "no-such-group"]])
def test_it_insists_on_knowing_who_may_speak(tmp_path: Path, words: list[str]) -> None:
    program = [sys.executable, "-m", "agents.devices.privileged", "--state-dir", str(tmp_path), *words]
    done = subprocess.run(program, cwd=ROOT, capture_output=True, text=True, timeout=patience())
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
