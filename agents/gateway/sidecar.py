"""The sidecar: takes the sources' routes, saves them, applies them to HAProxy, and watches that they stay in force."""

from __future__ import annotations

import fcntl
import logging
import os
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from agents.contract.gateways import LeftOutRoute
from agents.gateway import desired, state_file
from agents.gateway.desired import Desired, server_name, servers_by_name
from agents.gateway.following import EndpointsInForce, Followed
from agents.gateway.haproxy import parsing
from agents.gateway.haproxy.haproxy import Haproxy, NotApplied, ObservedHaproxy, ServersRefused
from agents.gateway.haproxy.master_socket import HaproxyAway, MasterSocket, WorkerGone
from agents.gateway.haproxy.parsing import HaproxyGarbled
from agents.gateway.receiver import Receiver
from agents.gateway.relief import Relief, list_drained
from agents.gateway.requests import GatewayPromise, Tallies
from agents.gateway.wire import DeclaredRoutes, RoutedCopy, RoutesInForce, SidecarCounts

WATCH_SECONDS = 0.5
VERIFY_SECONDS = 3.0  # how long a change by others at the runtime socket may go unnoticed
FIRST_RETRY_SECONDS, LONGEST_RETRY_SECONDS = 1.0, 300.0  # until a refused route is tried again
MOST_ROUNDS = 4  # of leaving out what HAProxy refuses, in one change
Troubles = (HaproxyAway, NotApplied, HaproxyGarbled, WorkerGone)

log = logging.getLogger("gpuwright.gateway")


class AlreadyRunning(Exception):
    """Another sidecar uses this folder."""


@dataclass(frozen=True, slots=True)
class SidecarCondition:
    """The state of the sidecar."""

    in_force: bool
    trouble: str
    workers: int  # processes of HAProxy, old ones included
    convergences: int
    failures: int
    left_out: tuple[LeftOutRoute, ...] = ()  # what HAProxy or this gateway refuses


class Sidecar:
    """The only writer of one HAProxy's configuration and runtime socket."""

    def __init__(self, folder: Path, master: Path, requests: str) -> None:
        folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        self._held = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(self._held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._held)
            raise AlreadyRunning(f"another sidecar uses {folder}") from None
        self.folder = folder
        self.began = datetime.now(UTC).isoformat()
        self.tallies = Tallies()
        self.relief = Relief()
        self.receiver = Receiver(requests, self.tallies)
        self._state = folder / "desired.json"
        self._desired = state_file.read(self._state)
        self._haproxy = Haproxy(MasterSocket(master), folder, self.receiver.address)
        self._lock = threading.Lock()  # held while talking to HAProxy
        self._observed: ObservedHaproxy | None = None  # None: not known to be in force
        self._trouble = "HAProxy has not been configured yet"
        self._convergences = self._failures = 0
        self._retry_at, self._retry_seconds = float("inf"), FIRST_RETRY_SECONDS
        self._unreachable: tuple[LeftOutRoute, ...] = ()
        self._dropped: dict[int, int] = {}  # lines, by process of HAProxy
        self._dropped_before = 0
        self._followed = 0  # the version of the control plane's endpoints
        self._closing = threading.Event()
        self._haproxy.write(self._desired)
        self._track_routes()
        self._watcher = threading.Thread(target=self._watch, name="watcher", daemon=True)
        self._watcher.start()

    def declare(self, source: str, declared: DeclaredRoutes) -> RoutesInForce:
        """Puts a source's routes in force, before it returns. Stale and Malformed change nothing; HaproxyAway,
        NotApplied and HaproxyGarbled mean that they are saved, and will be in force once HAProxy allows."""
        with self._lock:
            after = desired.declare(self._desired, source, declared)
            changed = after.sources[source] != self._desired.sources.get(source)
            if changed:
                after = self._assign_slots(after)
                state_file.keep(self._state, after)
                self._desired = after
                self._track_routes()
            if changed or not self._still_in_force():
                self._converge()
            return self._read_in_force(source)

    def follow(self, wanted: Followed) -> None:
        """Puts in force what the control plane reports of nodes that do not declare here, and of services' limits.
        If HAProxy does not take it, it is saved, and will be in force once HAProxy allows."""
        with self._lock:
            self._unreachable = wanted.left_out
            after = desired.follow(self._desired, wanted.sources, wanted.limits)
            try:
                if after != self._desired:
                    after = self._assign_slots(after)
                    state_file.keep(self._state, after)
                    self._desired = after
                    self._track_routes()
                    self._converge()
            except Troubles as error:
                log.warning("the control plane's endpoints are saved, but not in force yet: %s", error)
            self._followed = wanted.version

    def is_routing(self) -> bool:
        return any(desired.is_followed(source) and found.routes for source, found in self.sources().items())

    def endpoints_in_force(self) -> EndpointsInForce:
        version = self._followed  # read first: what is in force afterwards is no older
        return EndpointsInForce(version if self._observed else None, self._left_out + self._unreachable)

    def sources(self) -> dict[str, DeclaredRoutes]:
        return dict(self._desired.sources)

    def in_force(self, source: str) -> RoutesInForce | None:
        """Returns a source's routes as last observed; None for a source that never declared any."""
        with self._lock:
            return self._read_in_force(source) if source in self._desired.sources else None

    def counts(self, source: str = "") -> SidecarCounts:
        with self.receiver.lock:
            lines, refused, counted = self.tallies.lines, self.tallies.refused, self.tallies.counted(source)
        waiting = self.relief.open
        counted = tuple(
            entry if entry.copy else msgspec.structs.replace(entry, open=waiting.get(entry.service, 0))
            for entry in counted
        )
        return SidecarCounts(self.began, lines, self.lost_lines(), refused, counted)

    def lost_lines(self) -> int:
        return self._dropped_before + sum(self._dropped.values()) + self.receiver.count_overflowed()

    def condition(self) -> SidecarCondition:
        workers = len(self._observed.workers) if self._observed else 0
        in_force = self._observed is not None
        return SidecarCondition(
            in_force,
            "" if in_force else self._trouble,
            workers,
            self._convergences,
            self._failures,
            self._left_out + self._unreachable,
        )

    def close(self) -> None:
        self._closing.set()
        self._watcher.join(30)
        self.receiver.close()
        os.close(self._held)

    def _assign_slots(self, after: Desired) -> Desired:
        idle = self._observed.idle_slots if self._observed else frozenset()
        if idle and any(
            route.service not in after.slots for declared in after.sources.values() for route in declared.routes
        ):
            try:  # a slot is reused only if nothing is in it now
                idle = self._haproxy.observe(self.relief.applied(self._desired)).idle_slots
            except Troubles:
                idle = frozenset()
        return desired.give_slots(after, idle)

    def _still_in_force(self) -> bool:
        """Observes HAProxy again; returns False if its processes have changed or it does not answer."""
        before, self._observed = self._observed, None
        if before is None:
            return False
        try:
            observed = self._haproxy.observe(self.relief.applied(self._desired))
        except Troubles:
            return False
        self._observed = observed if observed.workers == before.workers else None
        return self._observed is not None

    def _converge(self) -> None:
        """Puts everything in force, without what HAProxy refuses."""
        self._observed = None
        self._convergences += 1
        try:
            for _ in range(MOST_ROUNDS - 1):
                try:
                    self._observed = self._haproxy.converge(self.relief.applied(self._desired))
                    return
                except ServersRefused as refused:
                    self._leave_out(refused.refused)
            self._observed = self._haproxy.converge(self.relief.applied(self._desired))
        except Troubles as error:
            self._failures += 1
            self._trouble = str(error)
            raise
        except OSError as error:
            self._failures += 1
            self._trouble = f"the configuration cannot be written: {error}"
            raise NotApplied(self._trouble) from error

    def _leave_out(self, refused: Mapping[str, str]) -> None:
        """Leaves out servers that HAProxy refuses, also on disk: it would not start with them."""
        for name, answer in refused.items():
            log.error("route %s is left out, because HAProxy refuses it: %s", name, answer)
        self._desired = desired.refuse(self._desired, refused)
        self._retry_at = time.monotonic() + self._retry_seconds
        state_file.keep(self._state, self._desired)
        self._track_routes()

    def _retry_refused(self, workers: tuple[parsing.HaproxyProcess, ...]) -> None:
        """Tries refused routes again, less and less often, and with new processes of HAProxy."""
        if not self._desired.refused:
            self._retry_seconds = FIRST_RETRY_SECONDS
            return
        is_new = self._observed is not None and workers != self._observed.workers
        if is_new or time.monotonic() > self._retry_at:
            self._retry_seconds = min(2 * self._retry_seconds, LONGEST_RETRY_SECONDS)
            self._desired = replace(self._desired, refused={})
            self._observed = None

    def _read_in_force(self, source: str) -> RoutesInForce:
        declared, observed = self._desired.sources[source], self._observed
        states = []
        for route in declared.routes:
            name = server_name(source, route.copy)
            server = observed.servers.get(name) if observed else None
            open_requests = observed.open_requests.get(name, 0) if observed else 0
            states.append(RoutedCopy(route.copy, bool(server and server.ready), open_requests))
        return RoutesInForce(declared.sequence, tuple(states))

    def _track_routes(self) -> None:
        self._left_out = self._desired.left_out()
        limits, servers = self._desired.limits, servers_by_name(self._desired.servers())
        promises = {name: GatewayPromise(limit.slo_ms, limit.tpot_ms) for name, limit in limits.items()}
        with self.receiver.lock:
            self.tallies.track(servers, self._desired.slots, time.monotonic(), promises)

    def _watch(self) -> None:
        """Applies everything again when HAProxy's processes change or it has failed, and else every few seconds."""
        verified = -VERIFY_SECONDS
        logged = ""
        while not self._closing.is_set():
            try:
                with self._lock:
                    workers = self._haproxy.master.workers()
                    self._retry_refused(workers)
                    observed = self._observed
                    due = time.monotonic() - verified > VERIFY_SECONDS
                    if observed is None or workers != observed.workers or observed.unfinished or due:
                        self._converge()
                        self._track_routes()
                        verified = time.monotonic()
                self._count_dropped(workers)
                self._relieve(workers)
                if logged:
                    log.info("HAProxy has everything in force again")
                logged = ""
            except Exception as error:  # whatever happens, this thread goes on: nothing else puts routes right
                trouble = str(error) or type(error).__name__
                with self._lock:
                    self._observed, self._trouble = None, trouble
                if trouble != logged:
                    logged = trouble
                    log.warning(
                        "HAProxy does not have everything in force: %s",
                        trouble,
                        exc_info=not isinstance(error, Troubles),
                    )
            self._closing.wait(WATCH_SECONDS)

    def _relieve(self, workers: tuple[parsing.HaproxyProcess, ...]) -> None:
        """Limits overloaded services to what is answered in time."""
        if not self._desired.limits:
            return
        with suppress(WorkerGone):
            waiting = self._haproxy.open_by_slot(workers)
            leaving = self._haproxy.open_at(list_drained(self._desired), workers)
            with self.receiver.lock:
                ended = self.tallies.ended()
            with self._lock:
                if self.relief.look(self._desired, self._observed, ended, waiting, leaving, time.monotonic()):
                    log.info("limits change; overloaded: %s", ", ".join(sorted(self.relief.most_open)) or "none")
                    self._converge()

    def _count_dropped(self, workers: tuple[parsing.HaproxyProcess, ...]) -> None:
        """Reads how many log lines HAProxy could not send; it counts them itself."""
        dropped = {}
        for worker in workers:
            try:
                dropped[worker.pid] = int(
                    parsing.parse_info(self._haproxy.master.ask("show info", worker))["DroppedLogs"]
                )
            except (WorkerGone, KeyError, ValueError):
                dropped[worker.pid] = self._dropped.get(worker.pid, 0)
        self._dropped_before += sum(lines for pid, lines in self._dropped.items() if pid not in dropped)
        self._dropped = dropped
