"""Starts a copy for a measurement as the keeper starts any other, with the limits of MPS, and ends it again."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import msgspec

from agents.contract.assignments import AssignedInstance, Frame
from agents.contract.campaigns import ProfilingTask
from agents.host import clocks
from agents.keeper.copies import NodeCopy, Stage
from agents.keeper.drivers import ClientStuck, CopyFailed
from agents.keeper.ports import free_port
from agents.keeper.starting import StartContext, start_copy
from agents.keeper.stopping import SentSignals, stop_copy
from agents.profiling.closed_loop import LoopFailed
from agents.profiling.example import ExampleRequest, parse_example
from agents.profiling.seat import ProfilingSeat
from agents.runtime import LaunchError, Running
from agents.seams.device import DeviceError, GpuDevice, Trouble
from agents.templates import Filled

PROFILING = "profiling"  # begins the name of every measured copy
STEP_SECONDS = 0.02
AGAIN_SECONDS = 1.0  # until a runtime is asked again that could not do it
END_SECONDS = 30.0
FILL_MS = 2000.0  # how long the server waits for a batch to fill; the requests come within milliseconds


@dataclass(frozen=True, slots=True)
class WarmCopy:
    """A copy that has answered its warm-up request."""

    copy: NodeCopy
    filled: Filled
    gpu: GpuDevice
    start_seconds: float


def copy_name(task: ProfilingTask, place: int) -> str:
    """Returns the name of the measured copy, which no instance of a plan can have."""
    number = f"{task.sequence:x}-{place}" if place else f"{task.sequence:x}"
    return f"{PROFILING}-{task.campaign}.{number}.{clocks.date().timestamp():.0f}"


@contextlib.contextmanager
def warm_copy(
    task: ProfilingTask, gpu: GpuDevice, seat: ProfilingSeat, check: Callable[[], None], place: int = 0
) -> Iterator[WarmCopy]:
    """Yields the copy once it is warm, and ends it afterwards. Raises CopyFailed; `check` may raise Interrupted.

    `place` tells copies of one task apart, which share the GPU's memory.
    """
    setting = task.setting
    port = free_port(seat.host, ())
    wanted = AssignedInstance(
        f"{PROFILING}-{task.campaign}{f'.{place}' if place else ''}",
        task.gpu,
        model=task.model,
        variant=task.variant,
        template="" if task.runtime else task.template,
        args=task.args,
        runtime=task.runtime,
        sm_percent=setting.sm_percent,
        memory_gib=gpu.memory_gib / (1 + len(task.beside)),
        batch=Frame(setting.batch, setting.batch, setting.batch),
        batch_timeout_ms=FILL_MS,
    )
    copy = NodeCopy(
        copy_name(task, place),
        wanted,
        gpu.uuid,
        port=port,
        metrics_port=free_port(seat.host, {port}),
        largest_batch=float(setting.batch),
        since=clocks.seconds(),
    )
    began = time.monotonic()
    filled = seat.filler.fill(copy)
    try:
        while copy.stage is not Stage.READY:
            check()
            further = _step(StartContext(copy, filled, gpu, seat.filler.token(copy.id)), seat)
            copy = further or copy
            if further is None:
                time.sleep(STEP_SECONDS)
        yield WarmCopy(copy, filled, gpu, time.monotonic() - began)
    finally:
        end_copy(copy, filled, seat)


def _step(context: StartContext, seat: ProfilingSeat) -> NodeCopy | None:
    try:
        return start_copy(context, seat.drivers, clocks.seconds())
    except LaunchError:
        time.sleep(AGAIN_SECONDS)
        return None
    except DeviceError as error:
        raise CopyFailed("device_trouble", str(error)) from error


def ask_example(task: ProfilingTask, warm: WarmCopy, seat: ProfilingSeat) -> ExampleRequest:
    """Returns a request that the copy can answer: of a user's own server that of its manifest. Raises CopyFailed."""
    if task.example is not None:
        return ExampleRequest(task.example.path, task.example.body.encode(), method=task.example.method)
    probe = warm.filled.example
    if probe is None:
        template = warm.filled.template
        raise CopyFailed("no_example", f"template {template} has no `example`, so no request can be made up")
    reply = seat.drivers.talk.ask(warm.copy.listens_at, probe)
    if not reply.ok:
        raise CopyFailed("no_example", f"{probe.path} answered {reply.status or reply.why}")
    try:
        return parse_example(reply.body)
    except LoopFailed as failure:
        raise CopyFailed("no_example", str(failure)) from failure


def end_copy(copy: NodeCopy, filled: Filled | None, seat: ProfilingSeat) -> None:
    """Ends a copy, and returns once its memory is free, or at the latest after half a minute."""
    running = copy.running or next((found for found in seat.drivers.runtime.find() if found.copy == copy.id), None)
    ending = msgspec.structs.replace(copy.at(Stage.ENDING, clocks.seconds()), running=running)
    sent = SentSignals()
    until = time.monotonic() + END_SECONDS
    while time.monotonic() < until:
        try:
            if stop_copy(ending, filled, seat.drivers, clocks.seconds(), sent):
                return
        except LaunchError:
            time.sleep(AGAIN_SECONDS)
        except ClientStuck:
            _kill(running, seat)
        time.sleep(STEP_SECONDS)
    _kill(running, seat)


def _kill(running: Running | None, seat: ProfilingSeat) -> None:
    if running is not None:
        with contextlib.suppress(LaunchError):  # the API server of copies that are pods is away: they are tidied away
            seat.drivers.runtime.end(running, force=True)


def end_leftovers(seat: ProfilingSeat) -> list[str]:
    """Ends the copies that an agent which was killed had started for a measurement; returns their names."""
    left = [running for running in seat.drivers.runtime.find() if is_measured(running.copy)]
    for running in left:
        seat.drivers.runtime.end(running, force=True)
    until = time.monotonic() + END_SECONDS
    while any(seat.drivers.runtime.alive(running) for running in left) and time.monotonic() < until:
        time.sleep(STEP_SECONDS)
    return [running.copy for running in left]


def is_measured(copy: str) -> bool:
    """Returns whether a copy of this name was started for a measurement."""
    return copy.startswith(f"{PROFILING}-")


@contextlib.contextmanager
def hold_clock(task: ProfilingTask, gpu: GpuDevice, seat: ProfilingSeat) -> Iterator[None]:
    """Locks the GPU's clock while the block lasts.

    Where the clock is just the GPU's highest, a device that cannot lock it is measured as it runs.
    """
    try:
        seat.drivers.device.lock_clock(gpu.uuid, task.setting.clock_mhz)
    except DeviceError as error:
        bearable = error.trouble in (Trouble.NOT_SUPPORTED, Trouble.NO_PERMISSION, Trouble.OUT_OF_RANGE)
        if task.locks_clock or not bearable:
            message = f"the clock cannot be locked at {task.setting.clock_mhz} MHz: {error}"
            raise CopyFailed("clock_not_locked", message) from error
    try:
        yield
    finally:
        with contextlib.suppress(DeviceError):
            seat.drivers.device.lock_clock(gpu.uuid, None)
