"""The scaler's process: its schedule, its connections, and its end."""

from __future__ import annotations

import logging
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime

from app import garbage
from app.clockwork import Clockwork
from app.control.record.scale_store import ScaleStore
from app.http.metrics import REGISTRY
from app.settings import Settings
from app.store.database.database import Database, Unavailable
from cli.scaler.kubernetes import make_cluster
from cli.scaler.loads import Percentiles
from cli.scaler.measures import FAILED, LEADS, LOOKS_FAILED, DesiredReplicas
from cli.scaler.ray import make_ray
from cli.scaler.reaching import LookFailed, read_token
from cli.scaler.scaler import EngineWatch, OpenEngine, Scaler
from cli.scaler.serving import serve_metrics
from clusters.estate import Estate
from clusters.measured import MeasuredLoads
from clusters.metrics.finding_servers import FindServers, find_servers
from clusters.metrics.measuring import measure_loads
from clusters.metrics.prometheus import PrometheusFailed, PrometheusServer

STEP_SECONDS = 1.0  # between two looks for what people have approved
AWAY_SECONDS = 2.0  # after the database did not answer

log = logging.getLogger(__name__)


class ScalerProcess:
    """A scaler that leads or waits for the lease until `stop`."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._database = Database(
            settings.database_url, pool_size=4, direct=settings.database_direct, slow_query_ms=settings.slow_query_ms
        )
        self._ended = threading.Event()
        holder = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"
        store = ScaleStore(self._database, holder, settings.lease_seconds)
        seconds, step_seconds = settings.scale_seconds, settings.scale_step_seconds
        watch, open_engine = self._make_engine()
        self._scaler = Scaler(store, watch, open_engine, time.monotonic, seconds, step_seconds)
        self._scheduler = Clockwork(4)
        self._away_until = 0.0

    def start(self) -> None:
        logging.getLogger("httpx2").setLevel(logging.WARNING)  # it logs every request of every look
        replicas = DesiredReplicas(self._database)
        REGISTRY.register(replicas)
        if self._settings.scaler_metrics_port:
            serve_metrics(self._settings.scaler_metrics_port, self._settings.scaler_metrics_host, replicas)
        jobs: tuple[tuple[Callable[[], object], float], ...] = (
            (self._scaler.lead, self._settings.lease_seconds / 3),
            (self._scaler.step, STEP_SECONDS),
            (self._forget, 3600.0),
        )
        now = datetime.now(UTC)
        for job, every in jobs:
            self._scheduler.add_job(self._guard(job), "interval", seconds=every, next_run_time=now, id=job.__name__)
        garbage.settle()
        self._scheduler.start()

    def stop(self) -> None:
        """Ends its current work, and lets another scaler lead at once."""
        self._ended.set()
        self._scheduler.shutdown(wait=True)
        try:
            self._scaler.store.step_down()
        except Unavailable:
            log.warning("lease_not_released")
        self._database.close()

    def _forget(self) -> None:
        self._scaler.store.forget(self._settings.plan_retention_days)

    def _make_engine(self) -> tuple[EngineWatch, OpenEngine]:
        """Returns what reads and what writes replicas: Ray Serve's where a file names it, else Kubernetes'."""
        if self._settings.ray_services:
            return make_ray(self._settings, self._settings.ray_services, self._measure)
        return make_cluster(self._settings, self._measure, self._pause)

    def _measure(
        self, estate: Estate, seconds: float, percentiles: Percentiles, find: FindServers = find_servers
    ) -> MeasuredLoads:
        server = PrometheusServer(
            self._settings.prometheus_url, read_token(self._settings.prometheus_token_file, "prometheus"), self._pause
        )
        try:
            return measure_loads(estate, server, seconds, percentiles, find)
        except PrometheusFailed as failed:
            raise LookFailed("prometheus", str(failed)) from None

    def _pause(self, seconds: float) -> None:
        self._ended.wait(seconds)

    def _guard(self, job: Callable[[], object]) -> Callable[[], None]:
        """Runs a job so that its failure ends no other job. While the database is away, jobs pause."""

        def run() -> None:
            if time.monotonic() < self._away_until:
                return
            try:
                job()
            except Unavailable as error:
                self._away_until = time.monotonic() + AWAY_SECONDS
                LOOKS_FAILED.labels("database").inc()
                LEADS.set(0)  # until it has renewed its lease
                log.warning("database_away", extra={"job": job.__name__, "error": str(error)})
            except Exception:
                FAILED.labels(job.__name__).inc()
                log.exception("scaler_failed", extra={"job": job.__name__})

        return run
