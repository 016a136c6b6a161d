"""One step of a copy on its way up. Each can be done twice: killed in between, the agent does it again."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from agents.keeper.copies import NodeCopy, Stage
from agents.keeper.drivers import CopyFailed, NodeDrivers
from agents.runtime import Launch, LaunchError
from agents.seams.device import DeviceError, GpuDevice, Trouble
from agents.templates import Filled

PORT = "GPUWRIGHT_PORT"  # in a copy's environment, for whoever finds it without its journal
METRICS_PORT = "GPUWRIGHT_METRICS_PORT"
STRAY_SECONDS = 3.0  # seen on the device and not among the clients of MPS for so long: it is not under MPS


@dataclass(frozen=True, slots=True)
class StartContext:
    """A copy, its template filled, and the GPU that it is for."""

    copy: NodeCopy
    filled: Filled
    gpu: GpuDevice


def start_copy(climb: StartContext, hands: NodeDrivers, now: float) -> NodeCopy | None:
    """The copy one stage further; None when it is not there yet. Raises Fell when it never will be."""
    match climb.copy.stage:
        case Stage.STARTING:
            return start_process(climb, hands, now)
        case Stage.VERIFYING:
            return verify_limits(climb, hands, now)
        case Stage.WARMING:
            return warm_up(climb, hands, now)
        case _:
            return None


def start_process(climb: StartContext, hands: NodeDrivers, now: float) -> NodeCopy:
    """Start its process, unless that was done before we were killed."""
    copy = climb.copy
    try:
        running = next((found for found in hands.runtime.find() if found.copy == copy.id), None)
        if running is None:
            _close_the_door(copy.gpu, hands)
            hands.mps.start(copy.gpu)
            launch = Launch(
                copy.id,
                copy.gpu,
                climb.filled,
                copy.port,
                {
                    **hands.mps.environment(
                        copy.gpu, copy.wanted.sm_percent / climb.filled.processes, copy.wanted.memory_gib
                    ),
                    PORT: str(copy.port),
                    METRICS_PORT: str(copy.metrics_port),
                },
                (*map(str, hands.mps.folders(copy.gpu)), *climb.filled.folders),
            )
            running = hands.runtime.start(launch)
    except (LaunchError, DeviceError) as error:
        raise CopyFailed("not_started", str(error)) from error
    return msgspec.structs.replace(copy.at(Stage.VERIFYING, now), running=running)


def verify_limits(climb: StartContext, hands: NodeDrivers, now: float) -> NodeCopy | None:
    """It must be a client of its GPU's MPS daemon: one that did not reach it runs without any limit."""
    copy, filled = climb.copy, climb.filled
    assert copy.running is not None
    _must_run(climb, hands)
    pids = hands.runtime.pids(copy.running)
    if pids & hands.mps.clients(copy.gpu):
        served = hands.talk.served(copy.port, filled)
        seen, allowed = served.sm_count if served else None, allowed_sm_count(climb)
        if seen is not None and seen > allowed:
            raise CopyFailed(
                "limit_not_in_force", f"it sees {seen} SMs, and {copy.wanted.sm_percent:g} % are {allowed}"
            )
        return copy.at(Stage.WARMING, now)
    waited = now - copy.since
    if waited > STRAY_SECONDS and any(process.pid in pids for process in hands.device.processes(copy.gpu)):
        raise CopyFailed("not_under_mps", "it opened the device without MPS, so nothing limits it")
    # Some servers open the device with their first request only.
    if filled.warm_up and (filled.health is None or hands.talk.ask(copy.port, filled.health).ok):
        hands.talk.ask(copy.port, filled.warm_up)
    if waited > filled.start_seconds:
        raise CopyFailed("not_under_mps", f"it did not come under MPS within {filled.start_seconds:g} s")
    return None


def warm_up(climb: StartContext, hands: NodeDrivers, now: float) -> NodeCopy | None:
    """It must answer, and have answered once as it will answer."""
    copy, filled = climb.copy, climb.filled
    _must_run(climb, hands)
    for probe in (filled.health, filled.warm_up):
        if probe is None:
            continue
        reply = hands.talk.ask(copy.port, probe)
        if not reply.ok:
            if now - copy.since > filled.start_seconds:
                message = f"{probe.path} answered {reply.status or 'nothing'} for {filled.start_seconds:g} s"
                raise CopyFailed("not_warm", message)
            return None
    return copy.at(Stage.ROUTING if copy.served else Stage.READY, now)


def _close_the_door(gpu: str, hands: NodeDrivers) -> None:
    """Nobody but MPS shall open the device: a client that misses the daemon then fails instead of running free."""
    try:
        hands.device.exclusive(gpu, True)
    except DeviceError as error:
        if error.trouble not in (Trouble.NOT_SUPPORTED, Trouble.NO_PERMISSION):
            raise


def allowed_sm_count(climb: StartContext) -> int:
    """MPS rounds down to whole SMs; the least is one, or two where they come in pairs."""
    return max(2, int(climb.gpu.sm_count * climb.copy.wanted.sm_percent / 100 / climb.filled.processes + 1e-9))


def _must_run(climb: StartContext, hands: NodeDrivers) -> None:
    running = climb.copy.running
    if running is None or not hands.runtime.alive(running):
        tail = hands.runtime.log_tail(climb.copy.id).strip().replace("\n", " | ")
        raise CopyFailed(
            "exited", f"it ended by itself; it printed last: {tail[-300:]}" if tail else "it ended by itself"
        )
