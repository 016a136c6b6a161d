"""A real Ray with a Prometheus that scrapes it, a Postgres and scalers, in a network that has loopback alone.

Ray listens on all addresses that it finds, and lets all who reach it run code, so it gets no other network.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from app.store.database.database import Database
from app.store.plans import scale_plans
from app.store.plans.scale_rows import ScaleRow, ScaleState
from app.store.world import events
from app.store.world.events import EventFilter, RecordedEvent
from clusters.estate import WorkloadName
from clusters.ray_serve.dashboard import RayDashboard, RayDeployment
from clusters.ray_serve.services import KIND
from tests.clusters.history import PastSeries, buckets, counting, prometheus_with
from tests.kubernetes.gateways.network import own_network
from tests.support.forked import ROOT
from tests.support.needs import need, need_ray
from tests.support.patience import patience, until
from tests.support.postgres import DatabaseServer, postgres_of_the_wheel

DASHBOARD_PORT, SERVE_PORT, METRICS_PORT = 8265, 8000, 8090  # Ray's own: nothing else is in its network
DASHBOARD, SERVE = f"http://127.0.0.1:{DASHBOARD_PORT}", f"http://127.0.0.1:{SERVE_PORT}"
ECHO = WorkloadName("text", KIND, "Echo")
HOUR = 3600.0
LONG_AGO_PER_SECOND = 0.5  # of the one replica that the past had
# Of Ray's histograms: a quantile over two with other bounds says nothing.
BOUNDS_MS = (
    "1.0", "2.0", "5.0", "10.0", "20.0", "50.0", "100.0", "200.0", "300.0", "400.0", "500.0", "1000.0", "2000.0",
    "5000.0", "10000.0", "60000.0", "120000.0", "300000.0", "600000.0",
)  # fmt: skip
CODE = """
import asyncio

from ray import serve
from starlette.requests import Request


@serve.deployment(ray_actor_options={"num_gpus": 0.5, "num_cpus": 0}, max_ongoing_requests=32)
class Echo:
    async def __call__(self, request: Request) -> str:
        await asyncio.sleep(0.005)
        return "served"


app = Echo.bind()
"""


class RaySite:
    """What tests share: Ray's applications, the file of services, and the scalers that follow it."""

    def __init__(self, folder: Path, postgres: DatabaseServer, prometheus: str) -> None:
        self.folder, self.prometheus, self.dashboard = folder, prometheus, RayDashboard(DASHBOARD, "")
        self.services = folder / "ray.yaml"
        self._postgres = postgres
        self.url = postgres.create()
        self.database = Database(self.url, pool_size=2, direct=True)
        self._scalers: list[subprocess.Popen[bytes]] = []

    def deploy(self, replicas: int, **options: Any) -> None:
        """Deploys the application as `serve deploy` does."""
        deployment = {"name": ECHO.name, "num_replicas": replicas, **options.pop("deployment", {})}
        application = {
            "name": ECHO.namespace, "route_prefix": "/", "import_path": "echo:app", "external_scaler_enabled": True,
            "deployments": [deployment], **options,
        }  # fmt: skip
        config = {"proxy_location": "HeadOnly", "http_options": {"host": "127.0.0.1", "port": SERVE_PORT}}
        body = json.dumps({**config, "applications": [application]}).encode()
        # A Ray that has just started, on a busy machine, answers that it cannot yet.
        until(lambda: ask("PUT", body) == 200, lambda: "Ray does not deploy: " + self._read_log())

    def _read_log(self) -> str:
        return (self.folder / "ray.log").read_text()[-3000:]

    def scale_by_hand(self, replicas: int) -> None:
        assert self.dashboard.scale(ECHO, replicas).status == 200

    def await_running(self, replicas: int) -> None:
        until(lambda: (each := self.find()) and (each.target, each.ready) == (replicas, replicas), self.find)

    def kill_controller(self) -> None:
        """Kills the process of Ray that decides on replicas; Ray starts another."""
        ours = Path("/proc/thread-self/ns/net").readlink()
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                is_controller = (process / "cmdline").read_bytes().startswith(b"ray::ServeController")
                if is_controller and (process / "ns" / "net").readlink() == ours:
                    os.kill(int(process.name), signal.SIGKILL)
                    return
        raise AssertionError("no controller runs")

    def find(self) -> RayDeployment | None:
        return self.dashboard.read().deployments.get(ECHO)

    def count_target(self) -> int:
        """Returns how many replicas Ray is to run."""
        found = self.find()
        assert found is not None
        return found.target

    def adopt(self, url: str = DASHBOARD, **entry: object) -> None:
        """Writes the file of services, whole at once."""
        found = {
            "application": ECHO.namespace,
            "deployment": ECHO.name,
            "service": "echo",
            "latencyMs": 60_000,
            **entry,
        }
        part = self.services.with_suffix(".part")
        part.write_text(json.dumps({"dashboard": url, "deployments": [found]}))
        part.replace(self.services)

    def start(self, **settings: str) -> subprocess.Popen[bytes]:
        """Starts one more scaler."""
        given = {
            "DATABASE_URL": self.url, "GPUWRIGHT_DATABASE_DIRECT": "1", "GPUWRIGHT_PROMETHEUS_URL": self.prometheus,
            "GPUWRIGHT_RAY_SERVICES": str(self.services), "GPUWRIGHT_SCALE_SECONDS": "1",
            "GPUWRIGHT_SCALE_STEP_SECONDS": "0.001", "GPUWRIGHT_SCALE_DAYS": "1.1", "GPUWRIGHT_LEASE_SECONDS": "3",
        }  # fmt: skip
        with self.log.open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "cli.main", "scaler"], cwd=ROOT, env={**os.environ, **given, **settings},
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip
        self._scalers.append(process)
        return process

    @property
    def log(self) -> Path:
        return self.folder / "scaler.log"

    def rows(self) -> tuple[ScaleRow, ...]:
        """Returns those of the newest plan."""
        plan = self.database.read(scale_plans.read_plan)
        return plan.rows if plan else ()

    def row(self) -> ScaleRow | None:
        return next((row for row in self.rows() if str(row.target) == str(ECHO)), None)

    def await_state(self, state: ScaleState, wanted: int | None = None) -> ScaleRow:
        """Waits until the newest plan has it in this state, and for this number where one is given."""

        def holds() -> bool:
            row = self.row()
            return row is not None and row.state is state and wanted in (None, row.wanted)

        until(holds, lambda: f"{state} {wanted}: {self.row()}, {self.log.read_text()[-2000:]}")
        found = self.row()
        assert found is not None
        return found

    def approve(self) -> None:
        row = self.await_state(ScaleState.PROPOSED)
        assert self.database.write(lambda connection: scale_plans.decide(connection, row, ScaleState.APPROVED, "ines"))

    def events(self) -> list[RecordedEvent]:
        return self.database.read(lambda connection: events.recent(connection, EventFilter(kind="Scale")))

    def reset(self) -> None:
        """Ends the scalers and forgets what they decided."""
        for process in self._scalers:
            process.kill()
            process.wait()
        self._scalers.clear()
        self.log.write_text("")
        self.database.close()
        self._postgres.drop(self.url)
        self.url = self._postgres.create()
        self.database = Database(self.url, pool_size=2, direct=True)

    def close(self) -> None:
        self.reset()
        self.database.close()


def ask(method: str, body: bytes | None = None) -> int:
    """Asks for the applications, or sets them; returns the status, and 0 without an answer."""
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(f"{DASHBOARD}/api/serve/applications/", body, headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=patience()) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return 0


@contextmanager
def running_site(folder: Path) -> Iterator[RaySite]:
    """Runs all of it, with one replica of Echo."""
    program = need_ray()
    with ExitStack() as stack:
        stack.enter_context(own_network())
        for name in ("postgres", "past"):
            (folder / name).mkdir()
        sockets = stack.enter_context(TemporaryDirectory(prefix="ray-"))  # their paths have 107 bytes at most
        stack.enter_context(running_ray(program, folder, sockets))
        now = time.time()
        past = serve_long_ago(now - 30 * HOUR)
        prometheus = stack.enter_context(
            prometheus_with(past, folder / "past", now - 30 * HOUR, now - 60, {"ray": METRICS_PORT})
        )
        site = RaySite(folder, stack.enter_context(postgres_of_the_wheel(folder / "postgres")), prometheus)
        stack.callback(site.close)
        site.deploy(1)
        site.await_running(1)
        yield site


@contextmanager
def running_ray(program: Path, folder: Path, sockets: str) -> Iterator[None]:
    """Runs Ray with four GPUs that nobody has, among processes of its own, which end with the first of them."""
    (folder / "echo.py").write_text(CODE)
    words = [
        need("unshare", "util-linux"), "--pid", "--fork", "--kill-child", "--mount-proc", str(program), "start",
        "--head", "--block", "--num-gpus=4", "--num-cpus=2", "--node-ip-address=127.0.0.1", "--disable-usage-stats",
        "--dashboard-host=127.0.0.1", f"--dashboard-port={DASHBOARD_PORT}", f"--metrics-export-port={METRICS_PORT}",
        "--object-store-memory=100000000", f"--temp-dir={sockets}",
    ]  # fmt: skip
    given = {
        "PYTHONPATH": str(folder), "PATH": f"{program.parent}:{os.environ['PATH']}", "RAY_AUTH_MODE": "disabled",
        "RAY_agent_register_timeout_ms": "600000",  # under load the raylet gives up on its agent after 15 s
        "RAY_metrics_report_interval_ms": "1000",
    }  # fmt: skip
    with (folder / "ray.log").open("ab") as log:
        process = subprocess.Popen(
            words, cwd=folder, env={**os.environ, **given}, stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
    try:
        until(lambda: ask("GET") == 200, lambda: f"Ray is not ready: {(folder / 'ray.log').read_text()[-3000:]}")
        yield
    finally:
        process.kill()
        process.wait()


def serve_long_ago(start: float) -> Iterator[PastSeries]:
    """Yields what Ray tells of one replica that answered few requests, all within 10 ms."""
    labels = {"job": "ray", "application": ECHO.namespace, "deployment": ECHO.name, "replica": "before"}
    counter = "ray_serve_deployment_request_counter_total"
    yield PastSeries(counter, labels, counting(LONG_AGO_PER_SECOND, start))
    for name in ("ray_serve_deployment_processing_latency_ms", "ray_serve_request_router_fulfillment_time_ms"):
        yield from buckets(name, labels, LONG_AGO_PER_SECOND, {le: min(1.0, float(le) / 10) for le in BOUNDS_MS})
