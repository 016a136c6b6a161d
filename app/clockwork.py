"""Scheduled jobs that keep running when the clock is set back; a plain scheduler would sleep until it catches up."""

from __future__ import annotations

import logging
import time
from datetime import UTC, datetime, timedelta

from apscheduler.executors.pool import ThreadPoolExecutor
from apscheduler.schedulers.background import BackgroundScheduler

LOOKS_EVERY_SECONDS = 1.0
SET_BACK_SECONDS = 0.5  # a smaller step is a clock that is being disciplined

log = logging.getLogger(__name__)


class Clockwork(BackgroundScheduler):  # type: ignore[misc]
    """A scheduler that runs by the wall clock and compares it with the monotonic clock."""

    def __init__(self, threads: int) -> None:
        super().__init__(
            timezone=UTC,
            executors={"default": ThreadPoolExecutor(threads)},
            job_defaults={"coalesce": True, "max_instances": 1, "misfire_grace_time": None},
        )
        self.ahead = _ahead()
        logging.getLogger("apscheduler").setLevel(logging.ERROR)

    def _process_jobs(self) -> float:
        was, self.ahead = self.ahead, _ahead()
        if was - self.ahead > SET_BACK_SECONDS:
            log.warning("clock_set_back", extra={"seconds": round(was - self.ahead, 3)})
            self._set_back(timedelta(seconds=was - self.ahead))
        wait = super()._process_jobs()
        return LOOKS_EVERY_SECONDS if wait is None else min(wait, LOOKS_EVERY_SECONDS)

    def _set_back(self, by: timedelta) -> None:
        now = datetime.now(UTC)
        for job in self.get_jobs():
            if job.next_run_time is not None:
                job.modify(next_run_time=max(now, job.next_run_time - by))


def _ahead() -> float:
    """Returns how far the wall clock is ahead of the monotonic clock."""
    return time.time() - time.monotonic()
