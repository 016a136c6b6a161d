"""Counts what a plan does to the running instances: kept, retuned, resized, started, stopped, moved."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from operator import is_
from typing import NamedTuple

from solvers.planning.judge.tolerances import same
from solvers.planning.plan import Changes
from solvers.planning.problem import Instance


class GpuChanges(NamedTuple):
    """The changes on a GPU; starts and stops are listed by service, since a move needs both."""

    keep: int = 0
    retune: int = 0
    resize: int = 0
    starts: tuple[str, ...] = ()
    stops: tuple[str, ...] = ()
    churned_sm_percent: float = 0  # of what starts, moves here or is resized


def changes_on(planned: Sequence[Instance], running: Sequence[Instance]) -> GpuChanges:
    """Same service, variant, smPercent and memoryGib: kept or retuned. Another shape of the same service: resized."""
    if len(planned) == len(running) and all(map(is_, planned, running)):  # nearly always
        return GpuChanges(keep=len(planned))
    if len(planned) == len(running) and all(map(_is_kept, planned, running)):  # as often, of a plan from elsewhere
        return GpuChanges(keep=len(planned))
    new, old, keep = _drop_same(planned, running)
    if len(new) == len(old) == 1:  # as after a change of one rate
        return _change_of(new[0], old[0], keep)
    keep += _pair(new, old, _is_kept)  # first, so that no twin takes its partner
    retune = _pair(new, old, _is_same_shape)
    churned = sum([instance.sm_percent * instance.degree for instance in new])
    resize = _pair(new, old, _is_same_service)
    starts = tuple([instance.service for instance in new])
    stops = tuple([instance.service for instance in old])
    return GpuChanges(keep, retune, resize, starts, stops, churned)


def _change_of(new: Instance, old: Instance, keep: int) -> GpuChanges:
    """Returns the changes on a GPU where one instance takes the place of another, beside so many that are the same."""
    if _is_kept(new, old):
        return GpuChanges(keep + 1)
    if _is_same_shape(new, old):
        return GpuChanges(keep, 1)
    churned = new.sm_percent * new.degree
    if _is_same_service(new, old):
        return GpuChanges(keep, 0, 1, churned_sm_percent=churned)
    return GpuChanges(keep, 0, 0, (new.service,), (old.service,), churned)


def _drop_same(planned: Sequence[Instance], running: Sequence[Instance]) -> tuple[list[Instance], list[Instance], int]:
    """Returns both without the instances that are the same objects at the same position, and how many those are."""
    count = min(len(planned), len(running))
    differ = [k for k in range(count) if planned[k] is not running[k]]
    new = [planned[k] for k in differ] + list(planned[count:])
    old = [running[k] for k in differ] + list(running[count:])
    return new, old, count - len(differ)


def moved_services(planned: Iterable[Instance], running: Iterable[Instance]) -> frozenset[str]:
    """Returns the services of which an instance starts, stops, moves or is resized: not of other rates or batches."""
    shapes = [
        Counter(
            [
                (line.service, line.node, line.gpu, line.gpus, line.variant, line.sm_percent, round(line.memory_gib, 3))
                for line in lines
            ]
        )
        for lines in (planned, running)
    ]
    new, old = shapes
    return frozenset([shape[0] for shape in (new - old) + (old - new)])


def _pair(new: list[Instance], old: list[Instance], matches: Callable[[Instance, Instance], bool]) -> int:
    """Removes matching pairs from both lists; returns how many."""
    if not new or not old:
        return 0
    left = []
    for instance in new:
        for at, other in enumerate(old):
            if matches(instance, other):
                del old[at]
                break
        else:
            left.append(instance)
    count = len(new) - len(left)
    new[:] = left
    return count


def _is_same_service(planned: Instance, other: Instance) -> bool:
    return planned.service == other.service


def _is_same_shape(planned: Instance, other: Instance) -> bool:
    return (
        planned.service == other.service
        and planned.variant == other.variant
        and planned.sm_percent == other.sm_percent
        and planned.gpus == other.gpus
        and same(planned.memory_gib, other.memory_gib)
    )


def _is_kept(planned: Instance, other: Instance) -> bool:
    return planned is other or (
        planned.service == other.service
        and planned.variant == other.variant
        and planned.sm_percent == other.sm_percent
        and planned.batch == other.batch
        and planned.gpus == other.gpus
        # Most numbers are equal, and a call to compare them takes longer than all of this.
        and (planned.memory_gib == other.memory_gib or same(planned.memory_gib, other.memory_gib))
        and (planned.clock_mhz == other.clock_mhz or same(planned.clock_mhz, other.clock_mhz))
        and (planned.rate_per_second == other.rate_per_second or same(planned.rate_per_second, other.rate_per_second))
        and (
            planned.batch_timeout_ms == other.batch_timeout_ms or same(planned.batch_timeout_ms, other.batch_timeout_ms)
        )
    )


class ChangeTally:
    """The changes over all GPUs, updated GPU by GPU."""

    def __init__(self, keep: int) -> None:
        self._keep, self._retune, self._resize = keep, 0, 0
        self._starts: Counter[str] = Counter()
        self._stops: Counter[str] = Counter()

    def replace(self, before: GpuChanges, after: GpuChanges) -> None:
        self._keep += after.keep - before.keep
        self._retune += after.retune - before.retune
        self._resize += after.resize - before.resize
        for service in before.starts:
            self._starts[service] -= 1
        for service in after.starts:
            self._starts[service] += 1
        for service in before.stops:
            self._stops[service] -= 1
        for service in after.stops:
            self._stops[service] += 1

    def total(self) -> Changes:
        """Returns the counts; a start and a stop of the same service make a move."""
        starts, stops = self._starts.total(), self._stops.total()
        move = (self._starts & self._stops).total() if starts and stops else 0
        return Changes(self._keep, self._retune, self._resize, starts - move, stops - move, move)
