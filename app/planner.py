"""The planner's process: its schedule, what wakes it early, and its end."""

from __future__ import annotations

import logging
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from prometheus_client import start_http_server

from app import garbage
from app.clockwork import Clockwork
from app.control.answer import cross_checks
from app.control.answer.savings import hourly as savings
from app.control.cycle import CycleBudget
from app.control.domain.events import Reason
from app.control.measure import metrics, tracing
from app.control.observe.listener import ReportListener
from app.control.planner import Planner
from app.control.record.planner_store import PlannerStore
from app.control.rent.hooks import load_hooks
from app.control.solve.solver import Solver
from app.http.metrics import REGISTRY
from app.settings import Settings
from app.store.database.database import Database, Unavailable
from app.store.database.notices import Notices
from app.store.database.urls import libpq_url

TICK_SECONDS = 0.5
QUICK_TICK_SECONDS = TICK_SECONDS / 2  # between two reads of the loads
SOONEST_SECONDS = 2.0  # between two cycles, even if they are woken
RENT_SECONDS = 5.0  # between two looks at rented nodes
AWAY_SECONDS = 2.0  # after the database did not answer

log = logging.getLogger(__name__)


class PlannerProcess:
    """A planner that leads or waits for the lease until `stop`."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._database = Database(
            settings.database_url, pool_size=5, direct=settings.database_direct, slow_query_ms=settings.slow_query_ms
        )
        listen_url = settings.database_listen_url or settings.database_url
        listens = settings.database_direct or bool(settings.database_listen_url)
        self._notices = Notices(libpq_url(listen_url), listen=listens)
        self.holder = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"
        self._solver = Solver(cores=settings.solver_cores)
        self.planner = Planner(
            PlannerStore(self._database, self.holder, settings.lease_seconds),
            self._solver,
            ReportListener(self._database),
            budget=CycleBudget(seconds=settings.solve_seconds),
            currency=settings.currency,
            hooks=load_hooks(settings.hooks_file),
        )
        self._checks = cross_checks.RestingProcess(settings.solver_cores)
        self._scheduler = Clockwork(8)
        self._woken: Reason | None = None
        self._cycled_at = float("-inf")
        self._waking = threading.Lock()
        self._away_until = 0.0

    def start(self) -> None:
        tracing.configure(self._settings)
        if self._settings.planner_metrics_port:
            start_http_server(self._settings.planner_metrics_port, self._settings.planner_metrics_host, REGISTRY)
        for stream, reason in (("object", Reason.FLEET_APPLIED), ("wake", Reason.OPERATOR)):
            self._notices.on_change(stream, self._waking_for(reason))
        self._notices.start()
        jobs: list[tuple[Callable[[], object], float]] = [
            (self.planner.lead, self._settings.lease_seconds / 3),
            (self._cycle_when_due, TICK_SECONDS),
            (self.planner.step, TICK_SECONDS),
            (self.planner.quicken, TICK_SECONDS),
            (self.planner.learn, 60.0),
            (self.planner.rent_nodes, RENT_SECONDS),
            (self._forget, 300.0),
            (self._note_savings, 300.0),
            (self._check_plan, 300.0),
        ]
        now = datetime.now(UTC)
        between = now + timedelta(seconds=QUICK_TICK_SECONDS)  # two steps, which answer loads too
        for job, every in jobs:
            first = between if job == self.planner.quicken else now
            self._scheduler.add_job(self._guard(job), "interval", seconds=every, next_run_time=first, id=job.__name__)
        garbage.settle()
        self._scheduler.start()

    def stop(self) -> None:
        """Ends its current work, and lets another planner lead at once."""
        self._checks.close()
        self._scheduler.shutdown(wait=True)
        self._notices.stop()
        try:
            self.planner.store.step_down()
        except Unavailable:
            log.warning("lease_not_released")
        self._solver.close()
        tracing.close()
        self._database.close()

    def _waking_for(self, reason: Reason) -> Callable[[int], None]:
        return lambda _version: self.wake(reason)

    def wake(self, reason: Reason) -> None:
        """Makes the next cycle run soon, before its time."""
        with self._waking:
            self._woken = self._woken or reason

    def _cycle_when_due(self) -> None:
        since = time.monotonic() - self._cycled_at
        with self._waking:
            reason = self._woken or self.planner.called_for
            if since < SOONEST_SECONDS or not (reason or since >= self.planner.cycle_seconds):
                return
            self._woken = None
        if reason is Reason.FLEET_APPLIED and since < self.planner.cycle_seconds and not self.planner.world_moved():
            return  # only statuses of objects have changed
        self._cycled_at = time.monotonic()
        self.planner.cycle(reason or Reason.CYCLE)

    def _forget(self) -> None:
        self.planner.forget(self._settings.plan_retention_days, self._settings.plan_retention_mb * 2**20)

    def _note_savings(self) -> None:
        savings.record_savings(self.planner.store)

    def _check_plan(self) -> None:
        cross_checks.check_newest(self.planner.store, self._checks.ask)

    def _guard(self, job: Callable[[], object]) -> Callable[[], None]:
        """Runs a job so that its failure ends no other job. While the database is away, jobs pause."""

        def run() -> None:
            if time.monotonic() < self._away_until:
                return
            try:
                job()
            except Unavailable as error:
                self._away_until = time.monotonic() + AWAY_SECONDS
                log.warning("database_away", extra={"job": job.__name__, "error": str(error)})
            except Exception:
                metrics.FAILED.labels(job.__name__).inc()
                log.exception("planner_failed", extra={"job": job.__name__})

        return run
