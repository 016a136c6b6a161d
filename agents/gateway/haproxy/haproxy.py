"""Brings HAProxy to the desired state: writes its files, changes every process, and reads the result back."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from agents.gateway.desired import Desired, refuse
from agents.gateway.haproxy import admitting, changes, configuration, parsing
from agents.gateway.haproxy.changes import Backends, HaproxyCommand
from agents.gateway.haproxy.closed_servers import ClosedServers
from agents.gateway.haproxy.configuration import backend_name
from agents.gateway.haproxy.files import write_files
from agents.gateway.haproxy.master_socket import HaproxyAway, MasterSocket, WorkerGone
from agents.gateway.haproxy.parsing import HaproxyGarbled, HaproxyProcess, ServerLoad, ServerState
from agents.gateway.haproxy.queue_guard import QueueGuard

RELOAD_SECONDS = 20.0
MOST_ROUNDS = 8
ROUND_SECONDS = 0.05  # longer than before each further round: on busy cores a process takes a while to end or to start


class NotApplied(Exception):
    """HAProxy refused a change, or did not apply it."""


class ServersRefused(NotApplied):
    """HAProxy refused these servers, by name, with these answers."""

    def __init__(self, refused: Mapping[str, str]) -> None:
        name, answer = next(iter(refused.items()))
        super().__init__(f"HAProxy refused {len(refused)} servers; {name}: {answer}")
        self.refused = refused


@dataclass(frozen=True, slots=True)
class ObservedHaproxy:
    """The state of HAProxy, as read after the last change."""

    workers: tuple[HaproxyProcess, ...]
    servers: dict[str, ServerState]  # of the process that accepts connections, by name
    open_requests: dict[str, int]  # over all processes, by name
    idle_slots: frozenset[int]
    unfinished: int  # servers that are still to be deleted, or to get their first requests


class Haproxy:
    """One HAProxy in master-worker mode, and the folder of its generated files."""

    def __init__(self, master: MasterSocket, folder: Path, requests: str) -> None:
        self.master = master
        self.folder = folder
        self.requests = requests
        self._known: dict[int, tuple[QueueGuard, ClosedServers]] = {}  # by process

    def write(self, desired: Desired) -> None:
        write_files(self.folder, desired, self.requests)

    def converge(self, desired: Desired) -> ObservedHaproxy:
        """Puts the desired state in force before it returns; raises HaproxyAway, NotApplied or HaproxyGarbled.

        ServersRefused means that it can be in force without these servers.
        """
        self.write(desired)
        wanted: Backends = {backend_name(slot): servers for slot, servers in desired.group_by_slot().items()}
        done: set[int] = set()
        for number in range(MOST_ROUNDS):
            time.sleep(ROUND_SECONDS * max(0, number - 1))  # the second comes at once, after a reload
            workers = self.master.workers()
            self._known = {it.pid: self._known.get(it.pid) or (QueueGuard(), ClosedServers()) for it in workers}
            for worker in workers:
                if worker.pid in done:
                    continue
                try:
                    self._configure(worker, desired, wanted)
                except WorkerGone:
                    continue
                done.add(worker.pid)
            # A process that started meanwhile has read the files and needs few changes or none.
            if all(worker.pid in done for worker in self.master.workers()):
                try:
                    return self._observe(desired, wanted)
                except WorkerGone:
                    continue
        raise NotApplied("HAProxy's processes change faster than they can be configured")

    def observe(self, desired: Desired) -> ObservedHaproxy:
        """Reads HAProxy without changing it; raises NotApplied if it differs from what is desired."""
        wanted: Backends = {backend_name(slot): servers for slot, servers in desired.group_by_slot().items()}
        for number in range(MOST_ROUNDS):
            time.sleep(ROUND_SECONDS * number)
            try:
                return self._observe(desired, wanted)
            except WorkerGone:
                continue
        raise HaproxyAway("HAProxy's processes change faster than they can be configured")

    def open_by_slot(self, workers: Iterable[HaproxyProcess]) -> dict[int, int]:
        """Returns each backend's open requests, answered or waiting, over all processes."""
        found: dict[int, int] = {}
        for worker in workers:
            for (backend, _), load in parsing.parse_loads(self.master.ask("show stat -1 2 -1", worker)).items():
                if _is_slot(backend):
                    found[int(backend[3:])] = found.get(int(backend[3:]), 0) + load.open
        return found

    def open_at(self, servers: Collection[str], workers: Iterable[HaproxyProcess]) -> dict[int, int]:
        """Returns by slot the open requests at these servers, over all processes."""
        found: dict[int, int] = {}
        for worker in workers if servers else ():
            for (backend, name), load in parsing.parse_loads(self.master.ask("show stat -1 4 -1", worker)).items():
                if _is_slot(backend) and name in servers:
                    found[int(backend[3:])] = found.get(int(backend[3:]), 0) + load.open
        return found

    def _configure(self, worker: HaproxyProcess, desired: Desired, wanted: Backends) -> None:
        """Brings one process to the desired state; raises WorkerGone if a reload replaces it."""
        limits = {service: configuration.render_limit(limit) for service, limit in desired.limits.items()}
        knows_maps = all(self._knows(worker, name) for name in configuration.MAPS)
        if not worker.old and not (knows_maps and self._has_slots(worker, desired.slot_count)):
            self._reload_with_known(worker, desired, wanted)
            raise WorkerGone("replaced by a process that has read the files")
        keys = admitting.list_keys(desired)
        if knows_maps:
            self._set_map(worker, configuration.LIMITS, limits)
            self._set_map(worker, configuration.PATHS, admitting.list_expressions(desired), removes=False)
            self._narrow(worker, desired, keys)
            wanted = self._hold(worker, desired, wanted, self._servers(worker))
        path = str(self.folder / configuration.SERVICES)
        entries = {service: backend_name(slot) for service, slot in desired.slots.items()}
        current_map = parsing.parse_map(self.master.ask(f"show map {path}", worker))
        # A service that has lost its slot is removed before another's servers enter the slot.
        takes_changes = (
            self._run(worker, changes.map_removals(path, entries, current_map))
            and self._run_opening(worker, changes.opening_commands(wanted, self._servers(worker)))
            and self._run(worker, changes.map_additions(path, entries, current_map))
            and self._run(worker, () if worker.old else changes.limiting_commands(wanted, self._loads(worker)))
        )
        if takes_changes and knows_maps:  # no copy is chosen from here on that is drained next
            self._set_map(worker, configuration.COPIES, configuration.list_copies(desired))
        takes_changes = takes_changes and self._close(worker, wanted)
        if not takes_changes:
            return
        if knows_maps:  # what only a copy that is gone did not admit is admitted now
            self._set_map(worker, configuration.KEYS, keys)
            self._set_map(worker, configuration.PATHS, admitting.list_expressions(desired))
        current = self._servers(worker)
        refused = changes.find_refused_addresses(wanted, current)
        if refused:
            raise ServersRefused(refused)
        missing = list(changes.find_differences(wanted, current))
        if parsing.parse_map(self.master.ask(f"show map {path}", worker)) != entries:
            missing.append(f"the entries of {path}")
        if missing:
            raise NotApplied(f"process {worker.pid} of HAProxy has not applied: {missing[0]}")

    def _close(self, worker: HaproxyProcess, wanted: Backends) -> bool:
        """Drains and closes servers, and deletes those that no request comes back to."""
        current = self._servers(worker)
        if not self._run(worker, changes.closing_commands(wanted, current)):
            return False
        unwanted = changes.list_unwanted(wanted, current)
        loads = self._loads(worker) if unwanted else {}
        closed = {place: loads[place] for place in unwanted if place in loads}
        deletable = self._known[worker.pid][1].note(closed, time.monotonic())
        return self._run(worker, changes.deleting_commands(deletable))

    def _narrow(self, worker: HaproxyProcess, desired: Desired, keys: Mapping[str, str]) -> None:
        """Admits only what is admitted before and after the change, and looks whether anything waits from before."""
        before, guard = self._map(worker, configuration.KEYS), self._known[worker.pid][0]
        new = admitting.list_new_keys(before if guard.knows else {}, keys)
        by_backend = {backend_name(desired.slots[service]): found for service, found in new.items()}
        guard.note(by_backend, time.monotonic())
        self._set_map(worker, configuration.KEYS, admitting.narrow_keys(before, keys))
        if guard.has_any():
            self._has_slots(worker, 1)  # waits until no thread still decides by the old keys
            guard.settle(self._loads(worker), time.monotonic())

    def _hold(
        self, worker: HaproxyProcess, desired: Desired, wanted: Backends, current: changes.ObservedBackends
    ) -> Backends:
        """Returns what is wanted while something may wait that not every copy admits."""
        known = self._known.get(worker.pid)  # none of a process that has come since the last change
        if known is None or not known[0].has_any():
            return wanted
        return known[0].hold(wanted, current, admitting.key_servers(desired))

    def _knows(self, worker: HaproxyProcess, name: str) -> bool:
        return not self.master.ask(f"show map {self.folder / name}", worker).startswith(changes.NO_MAP)

    def _map(self, worker: HaproxyProcess, name: str) -> dict[str, str]:
        return parsing.parse_map(self.master.ask(f"show map {self.folder / name}", worker))

    def _set_map(self, worker: HaproxyProcess, name: str, wanted: Mapping[str, str], removes: bool = True) -> None:
        """Changes a map whose order does not matter, and reads it back; without `removes` other entries stay."""
        current = self._map(worker, name)
        wanted = wanted if removes else {**current, **wanted}
        if current == wanted:
            return
        path = str(self.folder / name)
        self._run(worker, changes.map_removals(path, wanted, current) + changes.map_additions(path, wanted, current))
        if self._map(worker, name) != wanted:
            raise NotApplied(f"process {worker.pid} of HAProxy does not take the entries of {self.folder / name}")

    def _run(self, worker: HaproxyProcess, steps: Iterable[HaproxyCommand]) -> bool:
        """Runs commands; returns False if an old process takes no changes, which is fine: it gets no new requests."""
        for step in steps:
            answer = self.master.ask(step.command, worker)
            if worker.old and answer in (changes.DISABLED, changes.NO_BACKEND):
                return False
            if answer not in step.expects and changes.ANYTHING not in step.expects:
                raise NotApplied(f"HAProxy answered {answer[:200]!r} to: {step.command}")
        return True

    def _run_opening(self, worker: HaproxyProcess, steps: Iterable[HaproxyCommand]) -> bool:
        """Runs commands like `_run`, but a server that HAProxy refuses does not stop the others."""
        refused: dict[str, str] = {}
        for step in steps:
            if step.server in refused:
                continue
            try:
                if not self._run(worker, (step,)):
                    return False
            except (NotApplied, ValueError) as error:  # ValueError: it cannot be sent as one command
                if not step.adds or worker.old:
                    raise
                refused[step.server] = str(error)
        if refused:
            raise ServersRefused(refused)
        return True

    def _servers(self, worker: HaproxyProcess) -> dict[str, dict[str, ServerState]]:
        found = parsing.parse_servers(self.master.ask("show servers state", worker))
        return {backend: servers for backend, servers in found.items() if _is_slot(backend)}

    def _loads(self, worker: HaproxyProcess) -> dict[tuple[str, str], ServerLoad]:
        return parsing.parse_loads(self.master.ask("show stat -1 6 -1", worker))

    def _has_slots(self, worker: HaproxyProcess, count: int) -> bool:
        answer = self.master.ask(f"del server {backend_name(count)}/fence", worker)
        if answer not in (changes.NO_SERVER, changes.NO_BACKEND):
            raise HaproxyGarbled(f"process {worker.pid} of HAProxy answered {answer[:200]!r}")
        return answer == changes.NO_SERVER

    def _reload_with_known(self, worker: HaproxyProcess, desired: Desired, wanted: Backends) -> None:
        """Reloads HAProxy with the servers that it has accepted before: with a faulty one it would not start.

        The others are added at run time.
        """
        current = self._servers(worker)
        known = {name for servers in current.values() for name in servers}
        known -= changes.find_refused_addresses(wanted, current).keys()
        unknown = {server.name: "not accepted yet" for server in desired.servers() if server.name not in known}
        self.write(refuse(desired, unknown))
        try:
            self._reload(worker)
        finally:
            self.write(desired)

    def _reload(self, before: HaproxyProcess) -> None:
        """Reloads HAProxy for a process with the backends in the files; no request is lost."""
        self.master.ask("reload")
        deadline = time.monotonic() + RELOAD_SECONDS
        while time.monotonic() < deadline:
            time.sleep(0.05)
            try:
                text = self.master.ask("show proc")
            except HaproxyAway:
                continue  # the master is restarting itself
            if any(not worker.old and worker.pid != before.pid for worker in parsing.parse_processes(text)):
                return
        raise NotApplied("HAProxy did not reload; see its log, or check the configuration with haproxy -c -f ...")

    def _observe(self, desired: Desired, wanted: Backends) -> ObservedHaproxy:
        workers = self.master.workers()
        open_requests: dict[str, int] = {}
        busy: set[str] = set()
        servers: dict[str, ServerState] = {}
        unfinished = 0
        for worker in workers:
            self._has_slots(worker, 1)  # waits until no thread is still choosing a server by the old state
            current = self._servers(worker)
            allowed = self._hold(worker, desired, wanted, current)
            if not worker.old and (missing := changes.find_differences(allowed, current)):
                raise NotApplied(f"process {worker.pid} of HAProxy has not applied: {missing[0]}")
            loads = self._loads(worker)
            if not worker.old and (unlimited := changes.limiting_commands(wanted, loads)):
                raise NotApplied(f"process {worker.pid} of HAProxy has not applied: {unlimited[0].command}")
            if any((backend, name) not in loads for backend, found in current.items() for name in found):
                raise HaproxyGarbled(f"process {worker.pid} of HAProxy leaves servers out of show stat")
            for (backend, name), load in loads.items():
                if not _is_slot(backend):
                    continue
                if name == "BACKEND":
                    if load.open or load.queued:
                        busy.add(backend)
                    continue
                # A request that waits for any server of an old process may still come to this one.
                waiting = loads.get((backend, "BACKEND"), ServerLoad(0, 0)).queued if worker.old else 0
                open_requests[name] = open_requests.get(name, 0) + load.open + load.queued + waiting
            for backend, found in current.items():
                if not worker.old:
                    servers.update(found)
                    unfinished += sum(name not in wanted.get(backend, {}) for name in found)
                    busy.add(backend)
            if not worker.old:
                unfinished += sum(allowed[backend] != wanted_servers for backend, wanted_servers in wanted.items())
        idle = frozenset(slot for slot in range(1, desired.slot_count + 1) if backend_name(slot) not in busy)
        return ObservedHaproxy(workers, servers, open_requests, idle, unfinished)


def _is_slot(backend: str) -> bool:
    return backend.startswith("gw-") and backend[3:].isdigit()
