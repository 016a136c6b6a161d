"""Measures copies of several models on one GPU: each alone, then all at once, and always busy."""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import msgspec

from agents.contract.campaigns import MeasuredSetting, ProfilingTask, SharedCopyTimes
from agents.host import clocks
from agents.keeper.drivers import CopyFailed
from agents.profiling.batches import FEWEST_BATCHES, LEAST_BATCHES, NOISE_PART, BatchTimes
from agents.profiling.closed_loop import ClosedLoop, LoopFailed
from agents.profiling.copy import WarmCopy, ask_example, hold_clock, warm_copy
from agents.profiling.seat import ProfilingSeat, check_of

LOOPS = 2  # for each copy: while one batch runs the next one waits, so the copy is always busy
SETTLE_SECONDS = 2.5  # until all are busy, and clocks and power have followed
READ_SECONDS = 0.25  # between two readings of a copy's counters


@dataclass(slots=True)
class BusyCopy:
    """A copy that is asked without a pause, and the readings of its counters: batches and busy seconds so far."""

    task: ProfilingTask
    warm: WarmCopy
    request: bytes
    readings: list[tuple[float, float]] = field(default_factory=list)
    failure: str = ""

    def read(self, seat: ProfilingSeat) -> None:
        served = seat.drivers.talk.served(self.warm.copy.listens_at, self.warm.filled)
        if served is None or served.batches is None or served.busy_seconds is None:
            raise CopyFailed("not_measured", f"{self.task.model} has no counters of its batches and their time")
        if not self.readings or served.batches > self.readings[-1][0]:
            self.readings.append((served.batches, served.busy_seconds))

    @property
    def times(self) -> BatchTimes | None:
        """Returns the mean time of a batch and how single batches differ; None while too few have run."""
        if len(self.readings) < 2:
            return None
        windows = [
            (after[0] - before[0], after[1] - before[1])
            for before, after in zip(self.readings, self.readings[1:], strict=False)
        ]
        batches = sum(count for count, _ in windows)
        mean = sum(seconds for _, seconds in windows) / batches
        if batches < FEWEST_BATCHES or mean <= 0:
            return None
        squares = sum(count * (seconds / count - mean) ** 2 for count, seconds in windows)
        spread = math.sqrt(squares / max(1, len(windows) - 1))
        return BatchTimes(1000 * mean, 1000 * spread, int(batches), "server")


def measure_together(task: ProfilingTask, seat: ProfilingSeat, why_stop: Callable[[], str]) -> MeasuredSetting:
    """Starts all copies of a task, measures each alone and all at once, and ends them.

    Raises CopyFailed or Interrupted. The same copies run alone and together, so they differ in their neighbours only.
    """
    gpu = seat.find_gpu(task.gpu)
    if gpu is None:
        raise CopyFailed("no_gpu", f"this node has no GPU {task.gpu}")
    check = check_of(seat, task.gpu, why_stop)
    check()
    with hold_clock(task, gpu, seat), contextlib.ExitStack() as stack:
        copies = []
        for place, part in enumerate(_parts(task)):
            warm = stack.enter_context(warm_copy(part, gpu, seat, check, place))
            example = ask_example(part, warm, seat)
            address = warm.copy.listens_at.on(seat.host)
            request = example.spell(address.host, address.port)
            copies.append(BusyCopy(part, warm, request))
        alone = [_measure_busy([copy], task, seat, check)[0] for copy in copies]
        beside = _measure_busy(copies, task, seat, check)
    times = tuple(
        SharedCopyTimes(
            part.model,
            part.variant,
            part.setting.batch,
            part.setting.sm_percent,
            without.latency_ms,
            among.latency_ms,
            among.spread_ms,
            among.samples,
        )
        for part, without, among in zip((copy.task for copy in copies), alone, beside, strict=True)
    )
    return MeasuredSetting(
        task.sequence,
        task.setting,
        clocks.date(),
        latency_ms=beside[0].latency_ms,
        spread_ms=beside[0].spread_ms,
        samples=beside[0].samples,
        start_seconds=max(copy.warm.start_seconds for copy in copies),
        copies=times,
    )


def _parts(task: ProfilingTask) -> list[ProfilingTask]:
    """Returns one task for each copy, the measured one first."""
    return [
        task,
        *(
            msgspec.structs.replace(
                task,
                model=other.model,
                variant=other.variant,
                template=other.template,
                args=other.args,
                setting=other.setting,
            )
            for other in task.beside
        ),
    ]


def _measure_busy(
    copies: Sequence[BusyCopy], task: ProfilingTask, seat: ProfilingSeat, check: Callable[[], None]
) -> list[BatchTimes]:
    """Keeps these copies busy until the mean time of each one's batches is known."""
    for copy in copies:
        copy.readings.clear()
    began = time.monotonic()
    with _keep_busy(copies, seat):
        while True:
            time.sleep(READ_SECONDS)
            check()
            for copy in copies:
                if copy.failure:
                    raise CopyFailed("not_measured", f"{copy.task.model}: {copy.failure}")
            elapsed = time.monotonic() - began - SETTLE_SECONDS
            if elapsed < 0:
                continue
            for copy in copies:
                copy.read(seat)
            found = [copy.times for copy in copies]
            if all(found) and all(_is_enough(times, elapsed, task) for times in found if times):
                return [times for times in found if times]
            if elapsed > 4 * task.most_seconds:
                slow = next(copy for copy, times in zip(copies, found, strict=True) if times is None)
                raise CopyFailed("not_measured", f"too few batches of {slow.task.model} ended within {elapsed:.0f} s")


def _is_enough(times: BatchTimes, elapsed: float, task: ProfilingTask) -> bool:
    if elapsed < task.least_seconds:
        return False
    is_known = times.samples >= LEAST_BATCHES and times.noise <= NOISE_PART * task.accuracy
    return is_known or elapsed >= task.most_seconds


@contextlib.contextmanager
def _keep_busy(copies: Sequence[BusyCopy], seat: ProfilingSeat) -> Iterator[None]:
    """Asks these copies without a pause while the block lasts."""
    ended = threading.Event()

    def ask(copy: BusyCopy) -> None:
        try:
            address = copy.warm.copy.listens_at.on(seat.host)
            with ClosedLoop(address.host, address.port, copy.request, copy.task.setting.batch) as loop:
                while not ended.is_set():
                    loop.ask()
        except LoopFailed as failure:
            if not ended.is_set():
                copy.failure = str(failure)

    threads = [threading.Thread(target=ask, args=(copy,), daemon=True) for copy in copies for _ in range(LOOPS)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        ended.set()
        for thread in threads:
            thread.join()
