"""The doctor of a node with GPUs: the real binding over a stand-in for the driver, MPS over a fake of its program."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from agents.devices.mps import MpsControl
from agents.devices.nvml.originals import Original, Originals
from agents.devices.nvml.writer import DEFAULT_MODE, EXCLUSIVE_PROCESS_MODE, PROHIBITED_MODE
from tests.support import fake_mps
from tests.support.nvml_stub import NvmlState, environment, needs_gcc
from tests.support.nvml_stub.state import UNKNOWN
from tests.support.patience import patience

pytestmark = needs_gcc
ALONE = ["unshare", "--mount", *(["--map-root-user"] if os.geteuid() else [])]  # with mounts of its own
GPUWRIGHT = Path(sys.executable).with_name("gpuwright")


@dataclass(slots=True)
class Examined:
    """The output of `gpuwright agent doctor --json`."""

    code: int
    report: dict[str, Any]

    def level(self, check: str) -> str:
        """The worst of the findings there."""
        levels = [found["level"] for found in self.report["findings"] if found["check"] == check]
        return next((level for level in ("fail", "warn", "ok") if level in levels), "")

    def found(self, check: str) -> str:
        return " ".join(found["found"] for found in self.report["findings"] if found["check"] == check)


class Machine:
    """Two GPUs, MPS, and a doctor for them."""

    def __init__(self, where: Path) -> None:
        self.nvml = NvmlState(where / "nvml", gpus=2)
        self.uuids = (f"GPU-{uuid4()}", f"GPU-{uuid4()}")  # no other test's, whose daemons this machine has, too
        for number, uuid in enumerate(self.uuids):
            self.nvml.set(number, "uuid", uuid)
        self.state = where / "a"
        self.path = fake_mps.on_path()

    def examined(self, *around_it: str) -> Examined:
        words = ["agent", "doctor", "--json", "--state-dir", str(self.state)]
        around = os.environ | environment(self.nvml) | {"PATH": self.path}
        done = subprocess.run(
            [*around_it, GPUWRIGHT, *words], capture_output=True, text=True, env=around, timeout=patience()
        )
        assert done.stderr == ""
        return Examined(done.returncode, json.loads(done.stdout))


@pytest.fixture
def machine() -> Iterator[Machine]:
    with tempfile.TemporaryDirectory() as short:  # pytest's own are too long for a socket's name
        yield Machine(Path(short))


@pytest.mark.slow
def test_a_node_that_can_do_everything_gets_that_verdict(machine: Machine) -> None:
    examined = machine.examined()
    assert examined.code == 0, examined.report
    assert examined.report["verdict"].startswith("This node can do and enforce everything")
    assert "H100" in examined.found("gpu 0")
    assert "132 SMs" in examined.found("gpu 1")
    assert "not running yet for GPU 0, 1" in examined.found("mps daemon")
    assert machine.nvml.history() == [], "it tries, and changes nothing"
    assert not machine.state.exists()


@pytest.mark.slow
def test_without_the_mps_program_no_share_can_be_enforced(machine: Machine) -> None:
    machine.path = "/usr/bin:/bin"
    examined = machine.examined()
    assert examined.code == 1
    assert examined.level("mps program") == "fail"
    assert "cannot be enforced" in examined.found("gpu 0")


@pytest.mark.slow
def test_a_lost_gpu_is_reported_and_hides_no_other(machine: Machine) -> None:
    machine.nvml.lose(0)
    examined = machine.examined()
    assert examined.code == 1
    assert "2 GPUs" in examined.found("driver")
    assert examined.level("gpu") == "fail"
    assert examined.level("gpu 1") == "ok"


@pytest.mark.slow
def test_a_gpu_that_hangs_costs_one_line(machine: Machine) -> None:
    machine.nvml.hangs(1, "nvmlDeviceGetMemoryInfo")
    examined = machine.examined()
    assert examined.code == 1
    assert examined.level("gpu") == "fail"
    assert examined.level("gpu 0") == "ok"


@pytest.mark.slow
def test_a_missing_ability_of_a_device_is_named_with_its_consequence(machine: Machine) -> None:
    machine.nvml.drop(0, "energy_mj")
    machine.nvml.drop(0, "power_min_mw")
    examined = machine.examined()
    assert examined.code == 0
    assert examined.level("gpu 0") == "warn"
    assert "power limit cannot be set" in examined.found("gpu 0")
    assert examined.level("gpu 1") == "ok"


@pytest.mark.slow
def test_a_device_that_is_prohibited_or_that_a_process_has_to_itself_is_a_failure(machine: Machine) -> None:
    machine.nvml.set(0, "compute_mode", PROHIBITED_MODE)
    machine.nvml.set(1, "compute_mode", EXCLUSIVE_PROCESS_MODE)
    examined = machine.examined()
    assert (examined.level("compute mode 0"), examined.level("compute mode 1")) == ("fail", "warn")
    Originals(machine.state / "originals.json").keep(machine.uuids[1], Original(compute_mode=DEFAULT_MODE))
    assert machine.examined().level("compute mode 1") == "ok", "its own record says so"
    machine.nvml.process(1, os.getpid(), 1.0)
    examined = machine.examined()
    assert examined.level("compute mode 1") == "fail"
    assert f"process {os.getpid()} has it to itself" in examined.found("compute mode 1")
    hidden = machine.examined(*ALONE, "sh", "-c", f'mount -t tmpfs none /proc/{os.getpid()} && exec "$@"', "sh")
    assert hidden.found("compute mode 1") == examined.found("compute mode 1"), "it lives, whoever may read its name"


@pytest.mark.slow
def test_a_driver_that_fails_at_everything_is_no_traceback(machine: Machine) -> None:
    machine.nvml.fails(0, "nvmlDeviceGetUUID", UNKNOWN)
    machine.nvml.fails(1, "nvmlDeviceGetMemoryInfo", UNKNOWN)
    examined = machine.examined()
    assert examined.code == 1
    assert "this is a fault in gpuwright" not in json.dumps(examined.report).lower()


@pytest.mark.slow
def test_each_daemon_is_asked_and_one_that_hangs_is_named(machine: Machine) -> None:
    root = machine.state / "mps"
    control = MpsControl(root, fake_mps.program())
    machine.state.mkdir(mode=0o700)
    try:
        for number in (0, 1):
            control.start(machine.uuids[number])
        answers = machine.examined()
        assert answers.code == 0, answers.report
        assert answers.level("mps daemon 0") == answers.level("mps daemon 1") == "ok"
        fake_mps.switch(root / machine.uuids[1], "hang")
        hangs = machine.examined()
        assert hangs.code == 1
        assert hangs.level("mps daemon 0") == "ok"
        assert hangs.level("mps daemon 1") == "fail"
    finally:
        for number in (0, 1):
            fake_mps.kill(root / machine.uuids[number])


@pytest.mark.slow
def test_another_owners_daemon_is_named_with_its_gpu(machine: Machine) -> None:
    machine.state.mkdir(mode=0o700)
    other = machine.state.parent / "other"
    control = MpsControl(other, fake_mps.program(), quit_seconds=0)
    try:
        control.start(machine.uuids[1])
        examined = machine.examined()
        assert examined.code == 1
        assert examined.level("mps daemon 1") == "fail"
        assert f"of user {os.geteuid()} in {other}/{machine.uuids[1]}" in examined.found("mps daemon 1")
        assert "not running yet for GPU 0" in examined.found("mps daemon")
        assert "protocol 2" in examined.found("mps protocol")
    finally:
        control.stop(machine.uuids[1])
