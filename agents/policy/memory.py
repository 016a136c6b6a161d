"""The memory guard: keeps services from running out of device memory by stopping preemptible jobs, and restarts them.

Every process counts with the most that it may hold: its MPS limit, or what it holds already if that is more. Memory in
use that no process of ours holds (the driver's, other users') counts, too. While the sum stays within the device, no
allocation inside a limit can fail, in any order of growth. When it does not (a service needs room to start, a
process holds more than its limit, another user's process appeared), the fewest jobs that suffice are stopped. They
return once there has been room for them, and some to spare, for a while.

Everything here is pure; the keeper does the stopping and starting.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

TOLERANCE_GIB = 1e-6
LEAST_SHORTAGE_GIB = 1 / 1024  # devices count in MiB; a smaller difference is no shortage


@dataclass(frozen=True, slots=True)
class MemorySettings:
    """The memory to keep free, and the time that a shortage or room must last before a job stops or returns."""

    headroom_gib: float = 0.0
    headroom_percent: float = 0.0  # of the device; the larger of the two applies
    short_seconds: float = 2.0  # the last measurement may still contain a process that has just ended
    back_gib: float = 0.5  # beyond what the job needs, that must be free
    back_seconds: float = 30.0  # for which it must have been free


@dataclass(frozen=True, slots=True)
class DeviceMemory:
    """One GPU's memory, and how much of it is in use in total; None if the device does not report it."""

    memory_gib: float
    used_gib: float | None = None


@dataclass(frozen=True, slots=True)
class MemoryHolder:
    """A process of ours on that GPU. A `leaving` one is being stopped and holds its memory until it is gone."""

    instance: str
    limit_gib: float
    used_gib: float | None = None  # measured
    may_stop: bool = False  # a job, and preemptible
    priority: float = 0.0
    unsaved_seconds: float = 0.0  # progress lost if it cannot save
    leaving: bool = False

    @property
    def reach_gib(self) -> float:
        """The most that it holds or may hold before the next look."""
        return max(self.limit_gib, self.used_gib or 0.0)


@dataclass(frozen=True, slots=True)
class Stopped:
    """A job that made room, and what it needs to return."""

    instance: str
    memory_gib: float
    priority: float
    since: float


@dataclass(frozen=True, slots=True)
class Guard:
    """The guard's state of one GPU between looks."""

    stopped: tuple[Stopped, ...] = ()
    short_since: float | None = None  # when memory became short
    roomy_since: float | None = None  # when there was first room for the next job to return

    @property
    def away(self) -> frozenset[str]:
        return frozenset(job.instance for job in self.stopped)


@dataclass(frozen=True, slots=True)
class Moves:
    """The next moves."""

    stop: tuple[str, ...] = ()
    bring_back: tuple[str, ...] = ()


def headroom_gib(device: DeviceMemory, settings: MemorySettings) -> float:
    return max(settings.headroom_gib, settings.headroom_percent / 100 * device.memory_gib)


def strangers_gib(device: DeviceMemory, holders: Collection[MemoryHolder]) -> float:
    """Returns memory in use but not by our processes; one without a measurement counts with its whole limit."""
    ours = sum(holder.limit_gib if holder.used_gib is None else holder.used_gib for holder in holders)
    return max(0.0, (device.used_gib or 0.0) - ours)


def free_gib(device: DeviceMemory, holders: Collection[MemoryHolder], settings: MemorySettings) -> float:
    """Returns what is free once every process has grown to its limit; below 0 not all can be sure to."""
    reach = sum(holder.reach_gib for holder in holders)
    return device.memory_gib - headroom_gib(device, settings) - strangers_gib(device, holders) - reach


def guard(
    before: Guard,
    device: DeviceMemory,
    holders: Sequence[MemoryHolder],
    needed_gib: float,
    wanted_jobs: Collection[str],
    now: float,
    settings: MemorySettings,
) -> tuple[Guard, Moves]:
    """Looks at one GPU, where services that wait for room need `needed_gib`; returns the new state and the moves.

    Jobs that are no longer wanted are forgotten. A job is in `stopped` from the request to stop until it may start
    again.
    """
    stopped = tuple(job for job in before.stopped if job.instance in wanted_jobs)
    missing = needed_gib - free_gib(device, holders, settings)
    coming_free = sum(holder.reach_gib for holder in holders if holder.leaving or holder.instance in before.away)
    if missing > LEAST_SHORTAGE_GIB:
        since = before.short_since if before.short_since is not None else now
        if now - since < settings.short_seconds:
            return Guard(stopped, short_since=since), Moves()
        candidates = [
            holder
            for holder in holders
            if holder.may_stop and not holder.leaving and holder.instance not in before.away
        ]
        going = choose_fewest(candidates, missing - coming_free)
        stopped += tuple(Stopped(job.instance, job.limit_gib, job.priority, now) for job in going)
        return Guard(stopped, short_since=since), Moves(tuple(job.instance for job in going))
    gone = [job for job in stopped if all(holder.instance != job.instance for holder in holders)]
    back = choose_returning(gone, -missing - settings.back_gib)
    if not back:
        return Guard(stopped), Moves()
    since = before.roomy_since if before.roomy_since is not None else now
    if now - since < settings.back_seconds:
        return Guard(stopped, roomy_since=since), Moves()
    # One at a time: the next return is decided on a new measurement.
    return Guard(tuple(job for job in stopped if job is not back)), Moves((), (back.instance,))


def choose_fewest(candidates: Sequence[MemoryHolder], needed_gib: float) -> tuple[MemoryHolder, ...]:
    """Returns the least important jobs, with the least to lose, that together free so much; none is superfluous.

    Returns all if all are not enough: part of the room may let a smaller waiting service start.
    """
    if needed_gib <= TOLERANCE_GIB:
        return ()
    order = sorted(candidates, key=lambda job: (job.priority, job.unsaved_seconds, -job.reach_gib, job.instance))
    chosen: list[MemoryHolder] = []
    freed = 0.0
    for job in order:
        if freed >= needed_gib - TOLERANCE_GIB:
            break
        chosen.append(job)
        freed += job.reach_gib
    for job in reversed(list(chosen)):  # the most important first
        if freed - job.reach_gib >= needed_gib - TOLERANCE_GIB:
            chosen.remove(job)
            freed -= job.reach_gib
    return tuple(chosen)


def choose_returning(gone: Sequence[Stopped], free: float) -> Stopped | None:
    """Returns the most important job that fits; among equals the one that has waited longest."""
    fitting = [job for job in gone if job.memory_gib <= free + TOLERANCE_GIB]
    return min(fitting, key=lambda job: (-job.priority, job.since, job.instance), default=None)
