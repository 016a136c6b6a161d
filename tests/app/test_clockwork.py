"""A clock that is set back by an hour stops nothing for an hour."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta

from app.clockwork import Clockwork
from tests.support.patience import patience


def test_jobs_go_on_when_the_clock_is_set_back() -> None:
    clockwork = Clockwork(1)
    came = threading.Event()
    job = clockwork.add_job(came.set, "interval", seconds=0.05, next_run_time=datetime.now(UTC))
    clockwork.start()
    try:
        assert came.wait(patience())
        # As it looks from inside: the clock shows an hour less than when the next run was set.
        clockwork.pause()
        clockwork.ahead += 3600
        job.modify(next_run_time=datetime.now(UTC) + timedelta(hours=1))
        came.clear()
        clockwork.resume()
        assert came.wait(patience())
    finally:
        clockwork.shutdown(wait=True)
