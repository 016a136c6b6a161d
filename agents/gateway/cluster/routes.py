"""Follows the control plane's endpoints in a cluster: makes its objects match them, step by step, and says since when.

What is in force is in the cluster itself. So nothing is kept here, objects stay while the control plane or the API
server is away, and another process of this gateway goes on where this one ended.
"""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass

from agents.contract.gateways import LeftOutRoute
from agents.gateway.cluster.echo import Echo
from agents.gateway.cluster.objects import SLICE, RouteSettings
from agents.gateway.cluster.reading import RouteVerdict, SeenObjects, judge_route, read_objects
from agents.gateway.cluster.route_objects import ForeignObject, RouteObjects
from agents.gateway.cluster.shapes import Shapes, divide_copies
from agents.gateway.cluster.steps import RouteStep, choose_step
from agents.gateway.desired import FOLLOWED, MOST_REASON
from agents.gateway.following import EndpointsInForce, Followed
from agents.gateway.wire import RouteSpec
from agents.kubernetes.api import ApiAway, ApiRefused, KubernetesApi

LOOK_SECONDS = 0.2  # between two looks while the Gateway is awaited
REST_SECONDS = 5.0  # and while nothing is
PATIENCE_SECONDS = 20.0  # after which newer endpoints are taken, though older ones are not in force
RETRY_SECONDS = 5.0  # of a service that was refused

log = logging.getLogger(__name__)


@dataclass(slots=True)
class ServiceProgress:
    """How far a service has come."""

    in_force: int  # the newest version that is
    routes: tuple[RouteSpec, ...] | None = None  # that are being put in force; None: the service is gone
    shapes: Shapes | None = None
    version: int = 0  # of the endpoints that have these routes
    taken_at: float | None = None
    done: bool = False  # these routes are in force
    echo: int | None = None  # begun after all that is there, of a route that the Gateway has taken
    heard_at: float | None = None  # when the Gateway answered it
    trouble: str = ""
    retry_at: float = 0.0

    def await_echo(self, number: int) -> None:
        self.echo, self.heard_at = number, None

    def forget_echo(self) -> None:
        """Takes it that the Gateway has something to read that no echo followed."""
        self.echo = self.heard_at = None


class ClusterRoutes:
    """Puts endpoints in force, on a thread of its own."""

    def __init__(self, api: KubernetesApi, settings: RouteSettings, settle_seconds: float) -> None:
        self._settings, self._settle_seconds = settings, settle_seconds
        self._objects = RouteObjects(api, settings)
        self._echo = Echo(self._objects, settings)
        self._progress: dict[str, ServiceProgress] = {}
        self._newest: Followed | None = None
        self._looked_at = 0  # the version that the last look was for
        self._lock = threading.Lock()  # of what the thread that follows the control plane reads and writes
        self._in_force: int | None = None
        self._left_out: tuple[LeftOutRoute, ...] = ()
        self._trouble = ""
        self._woken, self._closing = threading.Event(), threading.Event()
        self._objects.start(self._woken.set)
        self._thread = threading.Thread(target=self._run, name="routes", daemon=True)
        self._thread.start()

    def follow(self, wanted: Followed) -> None:
        """Begins to put these endpoints in force."""
        with self._lock:
            self._newest, self._in_force = wanted, None
        self._woken.set()

    def is_routing(self) -> bool:
        try:
            return bool(read_objects({SLICE: self._objects.read(SLICE)})[0])
        except ApiAway:
            return True  # nobody knows

    def endpoints_in_force(self) -> EndpointsInForce:
        with self._lock:
            return EndpointsInForce(self._in_force, self._left_out)

    def counts(self) -> None:
        """Counts nothing: requests do not pass here."""

    def close(self) -> None:
        self._closing.set()
        self._woken.set()
        self._objects.close()
        self._thread.join(30)

    def _run(self) -> None:
        while not self._closing.is_set():
            is_waiting = any(not known.done for known in self._progress.values())
            self._woken.wait(LOOK_SECONDS if is_waiting else REST_SECONDS)
            self._woken.clear()
            trouble = ""
            try:
                self._look(time.monotonic())
            except (ApiAway, ApiRefused) as error:
                trouble = str(error)
                for known in self._progress.values():
                    known.forget_echo()  # the Gateway may have missed what was written
            except Exception as error:  # whatever happens, this thread goes on
                log.exception("routes could not be written")
                trouble = str(error)
            if trouble != self._trouble:
                log.warning("routes stay as they are: %s", trouble) if trouble else log.info("routes are written again")
            self._trouble = trouble
            if trouble:
                self._closing.wait(1.0)

    def _look(self, now: float) -> None:
        with self._lock:
            newest = self._newest
        if newest is None or self._closing.is_set():
            return
        seen, echoes = read_objects(self._objects.read_all())
        by_service = _group_routes(newest)
        for service in sorted({*by_service, *seen, *self._progress}):
            found = seen.get(service, SeenObjects())
            progress = self._progress.setdefault(service, ServiceProgress(self._looked_at))
            self._take(progress, by_service.get(service), newest.version, found, now)
            if now >= progress.retry_at:
                self._advance(service, progress, found, now)
            if progress.done and progress.routes is None and service not in by_service:
                del self._progress[service]
        self._echo.look(echoes)
        self._looked_at = newest.version
        with self._lock:
            versions = [progress.in_force for progress in self._progress.values()]
            self._in_force = min(versions, default=newest.version)
            self._left_out = newest.left_out + self._list_refused()

    def _take(
        self, progress: ServiceProgress, routes: tuple[RouteSpec, ...] | None, version: int, seen: SeenObjects,
        now: float,
    ) -> None:  # fmt: skip
        """Takes the newest routes of a service, once those before are in force: a Gateway that lags gets each."""
        if progress.taken_at is not None and routes == progress.routes:
            progress.version = version
        elif progress.taken_at is None or progress.done or now - progress.taken_at > PATIENCE_SECONDS:
            progress.routes, progress.version, progress.taken_at = routes, version, now
            progress.shapes = None if routes is None else divide_copies(routes, seen.list_places())
            progress.done, progress.retry_at = False, 0.0

    def _advance(self, service: str, progress: ServiceProgress, seen: SeenObjects, now: float) -> None:
        verdict, why = (
            (RouteVerdict.TAKEN, "") if seen.route is None else judge_route(seen.route, self._settings.parent)
        )
        if verdict is not RouteVerdict.TAKEN:
            progress.forget_echo()
        elif progress.heard_at is None and progress.echo is not None and self._echo.heard >= progress.echo:
            progress.heard_at = now
        is_settled = progress.heard_at is not None and now - progress.heard_at >= self._settle_seconds
        step = choose_step(self._settings, service, progress.shapes, seen, is_settled)
        try:
            self._carry_out(step)
        except (ForeignObject, ApiRefused) as error:
            # Where no route of ours leads, no copy is needed; elsewhere the old ones still are.
            self._note_refused(progress, str(error), now, serves=seen.route is not None)
            return
        if step.puts or (step.deletes and not step.in_force):
            progress.done = False
            progress.forget_echo()
            return
        if verdict is RouteVerdict.REFUSED:
            self._note_refused(progress, why, now, serves=False)
            self._echo.ask()  # a controller looks again when something changes: its reason may be over
        elif step.in_force:
            progress.trouble, progress.done, progress.in_force = "", True, progress.version
        elif verdict is RouteVerdict.TAKEN and progress.echo is None:
            progress.await_echo(self._echo.ask())

    def _note_refused(self, progress: ServiceProgress, why: str, now: float, serves: bool) -> None:
        if why != progress.trouble:
            log.error("%s", why)
        progress.trouble, progress.retry_at = why, now + RETRY_SECONDS
        if not serves:
            progress.done, progress.in_force = True, progress.version

    def _list_refused(self) -> tuple[LeftOutRoute, ...]:
        newest = self._newest
        refused = {service: known.trouble for service, known in self._progress.items() if known.trouble}
        if newest is None or not refused:
            return ()
        return tuple(
            LeftOutRoute(source.removeprefix(FOLLOWED), route.copy, refused[route.service][:MOST_REASON])
            for source, declared in newest.sources.items()
            for route in declared.routes
            if route.service in refused
        )

    def _carry_out(self, step: RouteStep) -> None:
        for kind, wanted in step.puts:
            self._objects.put(kind, wanted)
        for kind, found in step.deletes:
            self._objects.delete(kind, found)


def _group_routes(followed: Followed) -> dict[str, tuple[RouteSpec, ...]]:
    """Returns the routes of every service that is declared or has a copy, without those that are drained."""
    found: dict[str, list[RouteSpec]] = {service: [] for service in followed.limits}
    for declared in followed.sources.values():
        for route in declared.routes:
            ours = found.setdefault(route.service, [])
            if not route.drained:
                ours.append(RouteSpec(route.copy, route.service, route.address, route.weight))
    return {service: tuple(sorted(routes, key=_sort_key)) for service, routes in found.items()}


def _sort_key(route: RouteSpec) -> tuple[str, str]:
    return (route.copy, route.address)
