"""The memory guard: no service ever runs out of device memory; jobs that may be stopped make room, and come back.

Every process is counted with what it may grow to: the limit that MPS holds it to, or what it holds already where that
is more. What the device has in use and no process of ours holds (the driver's own, somebody else's) counts, too. While
the sum stays within the device no allocation inside a limit can fail, in whatever order the processes grow. When it
does not (a service needs room to start, a context took more than its limit, a stranger came) jobs are stopped, the
fewest that suffice. They come back when there has been room for them, and some to spare, for a while.

Everything here is data in, data out; who stops and starts is the keeper.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

TINY = 1e-6
COUNTED_GIB = 1 / 1024  # devices count in MiB: what is less is no shortage


@dataclass(frozen=True, slots=True)
class MemorySettings:
    """What is kept free beside all limits, and how sure the guard is before a job goes, and before it comes back."""

    headroom_gib: float = 0.0
    headroom_percent: float = 0.0  # of the device; the larger of the two counts
    short_seconds: float = 2.0  # a process that has just ended is still in what was measured a moment before
    back_gib: float = 0.5  # so much more than the job needs must be free
    back_seconds: float = 30.0  # for so long


@dataclass(frozen=True, slots=True)
class DeviceMemory:
    """One GPU's memory, and how much of it is in use by anybody; None where the device does not say."""

    memory_gib: float
    used_gib: float | None = None


@dataclass(frozen=True, slots=True)
class MemoryHolder:
    """A process of ours on that GPU. `leaving`: told to go; it holds what it holds until it is gone."""

    instance: str
    limit_gib: float
    used_gib: float | None = None  # measured
    may_stop: bool = False  # a job, and preemptible
    priority: float = 0.0
    unsaved_seconds: float = 0.0  # progress that is lost if it does not manage to save
    leaving: bool = False

    @property
    def reach_gib(self) -> float:
        """What it holds or may hold before anybody looks again."""
        return max(self.limit_gib, self.used_gib or 0.0)


@dataclass(frozen=True, slots=True)
class Stopped:
    """A job that made room, and what it needs to come back."""

    instance: str
    memory_gib: float
    priority: float
    since: float


@dataclass(frozen=True, slots=True)
class Guard:
    """What the guard of one GPU remembers from look to look."""

    stopped: tuple[Stopped, ...] = ()
    short_since: float | None = None  # room has been missing
    roomy_since: float | None = None  # there has been room for the next to come back

    @property
    def away(self) -> frozenset[str]:
        return frozenset(job.instance for job in self.stopped)


@dataclass(frozen=True, slots=True)
class Moves:
    """What to do now. `short_gib`: room that is missing though all that may stop has stopped."""

    stop: tuple[str, ...] = ()
    bring_back: tuple[str, ...] = ()
    short_gib: float = 0.0


def headroom_gib(device: DeviceMemory, settings: MemorySettings) -> float:
    return max(settings.headroom_gib, settings.headroom_percent / 100 * device.memory_gib)


def strangers_gib(device: DeviceMemory, holders: Collection[MemoryHolder]) -> float:
    """In use, and held by nobody of ours. Where a process does not say what it holds it may be all of its limit."""
    ours = sum(holder.limit_gib if holder.used_gib is None else holder.used_gib for holder in holders)
    return max(0.0, (device.used_gib or 0.0) - ours)


def free_gib(device: DeviceMemory, holders: Collection[MemoryHolder], settings: MemorySettings) -> float:
    """What is left when every process has grown as far as it may; below 0 it is not certain that all can."""
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
    """One look at one GPU. Services that wait for room there need `needed_gib`.

    Jobs that are no longer wanted are forgotten. A job is stopped or brought back by what the guard remembers of it:
    it stays in `stopped` from the moment it is told to go until it may start.
    """
    stopped = tuple(job for job in before.stopped if job.instance in wanted_jobs)
    missing = needed_gib - free_gib(device, holders, settings)
    coming_free = sum(holder.reach_gib for holder in holders if holder.leaving or holder.instance in before.away)
    if missing > COUNTED_GIB:
        since = before.short_since if before.short_since is not None else now
        if now - since < settings.short_seconds:
            return Guard(stopped, short_since=since), Moves()
        candidates = [
            holder
            for holder in holders
            if holder.may_stop and not holder.leaving and holder.instance not in before.away
        ]
        going = fewest(candidates, missing - coming_free)
        stopped += tuple(Stopped(job.instance, job.limit_gib, job.priority, now) for job in going)
        short = missing - coming_free - sum(job.reach_gib for job in going)
        moves = Moves(tuple(job.instance for job in going), (), short if short > COUNTED_GIB else 0.0)
        return Guard(stopped, short_since=since), moves
    gone = [job for job in stopped if all(holder.instance != job.instance for holder in holders)]
    back = first_back(gone, -missing - settings.back_gib)
    if not back:
        return Guard(stopped), Moves()
    since = before.roomy_since if before.roomy_since is not None else now
    if now - since < settings.back_seconds:
        return Guard(stopped, roomy_since=since), Moves()
    # One at a time: the next is decided on what is then measured.
    return Guard(tuple(job for job in stopped if job is not back)), Moves((), (back.instance,))


def fewest(candidates: Sequence[MemoryHolder], needed_gib: float) -> tuple[MemoryHolder, ...]:
    """Jobs that free so much together and of whom none is superfluous: the least important with the least to lose.

    All of them where all are not enough: a part of the room lets the smaller of the waiting services start.
    """
    if needed_gib <= TINY:
        return ()
    order = sorted(candidates, key=lambda job: (job.priority, job.unsaved_seconds, -job.reach_gib, job.instance))
    chosen: list[MemoryHolder] = []
    freed = 0.0
    for job in order:
        if freed >= needed_gib - TINY:
            break
        chosen.append(job)
        freed += job.reach_gib
    for job in reversed(list(chosen)):  # the most important first
        if freed - job.reach_gib >= needed_gib - TINY:
            chosen.remove(job)
            freed -= job.reach_gib
    return tuple(chosen)


def first_back(gone: Sequence[Stopped], free: float) -> Stopped | None:
    """The most important job that fits, and of equals the one that has waited longest."""
    fitting = [job for job in gone if job.memory_gib <= free + TINY]
    return min(fitting, key=lambda job: (-job.priority, job.since, job.instance), default=None)
