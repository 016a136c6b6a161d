"""The machine under the kit: its first GPU, or stand-ins for NVIDIA's library and program when asked for."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from agents.contract.campaigns import CopySetting, ProfilingTask
from agents.devices.mps import MpsControl
from agents.devices.nvml.device import NvmlDevice
from agents.keeper.drivers import NodeDrivers
from agents.keeper.filler import Filler
from agents.profiling.copy import WarmCopy, warm_copy
from agents.profiling.seat import ProfilingSeat
from agents.runtime.process import ProcessRuntime
from agents.seams.device import DeviceError, GpuDevice, Trouble
from agents.talk.copy_client import TcpCopyClient
from agents.templates.reading import Template, read

Args = Mapping[str, str | int | float | bool]
HOST = "127.0.0.1"
TEMPLATE = "gpuwright-serve"
KERNELS = ("arithmetic", "bandwidth", "cache", "launches")
# Milliseconds by share, as made up as they look: they only show that the kit works.
STAND_IN_LATENCIES = {
    "arithmetic": "1:10=12,100=2;32:10=60,100=10",
    "bandwidth": "1:10=18,50=6,100=6",
    "cache": "1:10=12,100=3",
    "launches": "1:10=5,100=5",
}
Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class KitOptions:
    """The extent of a run. Clocks, power limit and compute mode are left alone unless the GPU's owner allows it."""

    seconds: float = 2.0  # for one timing
    is_short: bool = False
    changes_settings: bool = False
    is_stand_in: bool = False


class StepSkipped(Exception):
    """The step cannot run here; the message says why."""


@dataclass
class StepTime:
    """How long a step may go on."""

    ends_at: float  # by time.monotonic()
    left_out: int = 0  # what there was no time for

    def take(self, items: Iterable[Item]) -> Iterator[Item]:
        """Yields items while there is time for one as long as the longest so far."""
        longest = 0.0
        pending = list(items)
        for place, item in enumerate(pending):
            began = time.monotonic()
            if began + longest > self.ends_at:
                self.left_out += len(pending) - place
                return
            yield item
            longest = max(longest, time.monotonic() - began)


class NoSettings:
    """A Writer that refuses, as the driver refuses users other than root."""

    def lock_clock(self, uuid: str, mhz: int) -> None:
        raise _left_alone(uuid)

    def reset_clock(self, uuid: str) -> None:
        raise _left_alone(uuid)

    def set_power_mw(self, uuid: str, milliwatts: int) -> None:
        raise _left_alone(uuid)

    def set_compute_mode(self, uuid: str, mode: int) -> None:
        raise _left_alone(uuid)


def _left_alone(uuid: str) -> DeviceError:
    return DeviceError(Trouble.NO_PERMISSION, uuid, "settings are left alone")


@dataclass(frozen=True, slots=True)
class Stand:
    """The first GPU, and the means to run copies on it."""

    folder: Path
    program: str  # that controls MPS daemons
    options: KitOptions
    drivers: NodeDrivers
    gpu: GpuDevice
    templates: Mapping[str, Template]
    time: StepTime

    @property
    def filler(self) -> Filler:
        return Filler(self.templates, HOST)

    @property
    def seat(self) -> ProfilingSeat:
        return ProfilingSeat(self.drivers, self.filler, HOST, lambda index: self.gpu, lambda index: "")

    def args(self, load: str) -> Args:
        """Returns the template's arguments for one of the four loads."""
        return {"latency": STAND_IN_LATENCIES[load]} if self.options.is_stand_in else {"kernel": load}

    def task(
        self, name: str, args: Args, sm_percent: float, batch: int = 1, clock_mhz: int = 0, sequence: int = 1
    ) -> ProfilingTask:
        """Returns the order to measure one setting; without a clock at the GPU's highest."""
        highest = max(self.gpu.clocks_mhz, default=1)
        return ProfilingTask(
            campaign=f"kit-{name}",
            sequence=sequence,
            gpu=self.gpu.index,
            model=name,
            variant="kit",
            template=TEMPLATE,
            setting=CopySetting(batch, sm_percent, clock_mhz or highest),
            args=dict(args),
            locks_clock=bool(clock_mhz),
            least_seconds=self.options.seconds,
            most_seconds=5 * self.options.seconds,
        )

    @contextmanager
    def warm(self, task: ProfilingTask) -> Iterator[WarmCopy]:
        """Yields a copy that is limited and answers, and ends it afterwards."""
        with warm_copy(task, self.gpu, self.seat, lambda: None) as copy:
            yield copy


def open_stand(folder: Path, options: KitOptions, program: str, step_time: StepTime) -> Stand:
    """Opens the first GPU; raises DeviceError if it does not answer."""
    models = folder / "models"
    models.mkdir(exist_ok=True)
    drivers = open_drivers(folder, program, options)
    gpus = drivers.device.gpus()
    if not gpus:
        raise DeviceError(Trouble.NO_DRIVER, "", "no GPU answers")
    return Stand(folder, program, options, drivers, gpus[0], read(models=models), step_time)


def open_drivers(folder: Path, program: str, options: KitOptions) -> NodeDrivers:
    """Opens what a node's agent opens."""
    device = NvmlDevice(folder / "originals.json", None if options.changes_settings else NoSettings())
    return NodeDrivers(
        device, MpsControl(folder / "mps", program), ProcessRuntime(folder / "copies"), TcpCopyClient(HOST)
    )


def put_stand_ins(folder: Path) -> str:
    """Puts the stand-ins of the tests in the place of NVIDIA's library and program; returns the program."""
    from tests.support import fake_mps, nvml_stub
    from tests.support.nvml_stub.state import VARIABLE

    if VARIABLE not in os.environ:
        nvml_stub.NvmlState(folder / "nvml", gpus=1)
        os.environ[VARIABLE] = str(folder / "nvml")
    os.environ["PATH"] = fake_mps.on_path()
    nvml_stub.load()
    return fake_mps.program()
