"""Starts a copy step by step. Every step can be repeated, in case the agent is killed in between."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import msgspec

from agents.keeper.copies import NodeCopy, Stage
from agents.keeper.drivers import CopyFailed, NodeDrivers
from agents.keeper.job_files import JobFiles
from agents.runtime import Launch, LaunchError
from agents.seams.device import DeviceError, GpuDevice, Trouble
from agents.templates import Filled

PORT = "GPUWRIGHT_PORT"  # in a copy's environment, to adopt it when the journal is lost
METRICS_PORT = "GPUWRIGHT_METRICS_PORT"
CONTROL = "GPUWRIGHT_CONTROL_TOKEN"  # a copy obeys requests that carry it, and no others
# Without a pipe directory CUDA would look for a daemon in /tmp/nvidia-mps, where anybody can start one.
NO_MPS = {"CUDA_MPS_PIPE_DIRECTORY": "/proc/no-mps"}
STRAY_SECONDS = 3.0  # on the device and not an MPS client for this long: it avoids MPS


@dataclass(frozen=True, slots=True)
class StartContext:
    """A copy, its filled template and its GPU."""

    copy: NodeCopy
    filled: Filled
    gpu: GpuDevice
    token: str = field(default="", repr=False)  # of the copy
    files: JobFiles | None = None  # of a job
    load_adapters: Callable[[NodeCopy], None] | None = None


def start_copy(context: StartContext, drivers: NodeDrivers, now: float) -> NodeCopy | None:
    """Returns the copy at its next stage or with its next finding; None if there is nothing new.

    Raises CopyFailed if it will never be ready, and LaunchError if it is to be asked again later.
    """
    match context.copy.stage:
        case Stage.STARTING:
            return start_process(context, drivers, now)
        case Stage.VERIFYING:
            return verify_limits(context, drivers, now)
        case Stage.WARMING:
            return warm_up(context, drivers, now)
        case _:
            return None


def start_process(context: StartContext, drivers: NodeDrivers, now: float) -> NodeCopy | None:
    """Starts the process, unless an agent that was killed has already started it; None while it does not run yet."""
    copy = context.copy
    try:
        running = next((found for found in drivers.runtime.find() if found.copy == copy.id), None)
        if running is None:
            limits = _take_whole(copy, drivers) if copy.gpus else _limits(context, drivers)
            folders = () if copy.gpus else drivers.mps.folders(copy.gpu)
            files = context.files
            if files is not None:
                confined = context.filled.confined
                files.prepare(confined.user if confined else None)
            launch = Launch(
                copy.id,
                ",".join(copy.devices),
                context.filled,
                copy.port,
                {
                    **limits,
                    PORT: str(copy.port),
                    METRICS_PORT: str(copy.metrics_port),
                    **({CONTROL: context.token} if context.token else {}),
                    **(files.environment(copy.wanted) if files else {}),
                },
                (*map(str, folders), *context.filled.folders, *((str(files.folder),) if files else ())),
            )
            running = drivers.runtime.start(launch)
    except (LaunchError, DeviceError) as error:
        raise CopyFailed("not_started", str(error)) from error
    except OSError as error:
        raise CopyFailed("not_started", f"the folder for its saves cannot be used: {error}") from error
    if running is None:
        why = drivers.runtime.log_tail(copy.id)[:300]
        if now - copy.since > context.filled.start_seconds:
            raise CopyFailed("not_started", f"it did not run within {context.filled.start_seconds:g} s: {why}")
        return msgspec.structs.replace(copy, message=why) if why != copy.message else None
    return msgspec.structs.replace(copy.at(Stage.VERIFYING, now), running=running, message="")


def _limits(context: StartContext, drivers: NodeDrivers) -> dict[str, str]:
    """Starts the GPU's MPS daemon, and returns what limits the copy there."""
    copy = context.copy
    _make_exclusive(copy.gpu, drivers)
    drivers.mps.start(copy.gpu)
    share = copy.wanted.sm_percent / context.filled.processes
    return drivers.mps.environment(copy.gpu, share, copy.wanted.memory_gib)


def _take_whole(copy: NodeCopy, drivers: NodeDrivers) -> Mapping[str, str]:
    """Opens several GPUs to a copy that has them alone: without their MPS daemons, for any of its processes."""
    for gpu in copy.gpus:
        drivers.mps.stop(gpu)
        _make_exclusive(gpu, drivers, wanted=False)
    return NO_MPS


def verify_limits(context: StartContext, drivers: NodeDrivers, now: float) -> NodeCopy | None:
    """Checks that the process is a client of its GPU's MPS daemon; outside MPS it would run without any limit."""
    copy, filled = context.copy, context.filled
    assert copy.running is not None
    _must_run(context, drivers)
    if copy.gpus or not filled.uses_gpu:  # whole GPUs have no limit that could be missing
        return copy.at(Stage.WARMING, now)
    pids = drivers.runtime.pids(copy.running)
    if pids & drivers.mps.clients(copy.gpu):
        served = drivers.talk.served(copy.listens_at, filled)
        sm_count, allowed = served.sm_count if served else None, count_allowed_sms(context)
        if sm_count is not None and sm_count > allowed:
            raise CopyFailed(
                "limit_not_in_force",
                f"it sees {sm_count} SMs, but {copy.wanted.sm_percent:g} % of the GPU are {allowed}",
            )
        return copy.at(Stage.WARMING, now)
    if any(process.pid in pids for process in drivers.device.processes(copy.gpu)):
        if copy.outside_since is None:  # it may have connected since its clients were listed
            return msgspec.structs.replace(copy, outside_since=now)
        if now - copy.outside_since > STRAY_SECONDS:
            raise CopyFailed("not_under_mps", "it opened the device without MPS, so its share is not limited")
    waited = now - copy.since
    # Some servers open the device only with their first request.
    if filled.warm_up and (filled.health is None or drivers.talk.ask(copy.listens_at, filled.health).ok):
        if drivers.runtime.pids(copy.running) & drivers.mps.clients(copy.gpu):
            return None  # it connected before it said that it is healthy: its limits are verified before it gets work
        drivers.talk.ask(copy.listens_at, filled.warm_up)
    if waited > filled.start_seconds:
        raise CopyFailed("not_under_mps", f"it did not connect to MPS within {filled.start_seconds:g} s")
    return None


def warm_up(context: StartContext, drivers: NodeDrivers, now: float) -> NodeCopy | None:
    """Checks that the copy is healthy and has answered its warm-up request, and announces it.

    Raises LaunchError where it cannot be announced now: nobody may rely on it before.
    """
    copy, filled = context.copy, context.filled
    _must_run(context, drivers)
    for probe in (filled.health, filled.warm_up):
        if probe is None:
            continue
        reply = drivers.talk.ask(copy.listens_at, probe)
        if not reply.ok:
            if now - copy.since > filled.start_seconds:
                message = f"{probe.path} answered {reply.status or 'nothing'} for {filled.start_seconds:g} s"
                raise CopyFailed("not_warm", message)
            return None
    if context.load_adapters and copy.wanted.adapters:
        context.load_adapters(copy)  # before it is routed, so that a hand-over loses no adapter; what fails comes later
    assert copy.running is not None
    drivers.runtime.announce(copy.running)
    return copy.at(Stage.ROUTING if copy.served else Stage.READY, now)


def _make_exclusive(gpu: str, drivers: NodeDrivers, wanted: bool = True) -> None:
    """Makes the device exclusive to MPS, so that a client without the daemon fails instead of running unlimited."""
    try:
        drivers.device.exclusive(gpu, wanted)
    except DeviceError as error:
        if error.trouble not in (Trouble.NOT_SUPPORTED, Trouble.NO_PERMISSION):
            raise


def count_allowed_sms(context: StartContext) -> int:
    """Returns the most SMs that the copy may see: MPS rounds down, to at least one SM or one pair."""
    return max(2, int(context.gpu.sm_count * context.copy.wanted.sm_percent / 100 / context.filled.processes + 1e-9))


def _must_run(context: StartContext, drivers: NodeDrivers) -> None:
    running = context.copy.running
    if running is None or not drivers.runtime.alive(running):
        tail = drivers.runtime.log_tail(context.copy.id).strip().replace("\n", " | ")
        raise CopyFailed(
            "exited", f"it exited by itself; its last output: {tail[-300:]}" if tail else "it exited by itself"
        )
