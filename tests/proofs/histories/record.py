"""Records histories of two real servers on one database, while their processes pause and their wires are cut."""

from __future__ import annotations

import http.client
import json
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from app.store.database import lease
from app.store.database.database import Database
from app.store.fleet import assignments
from tests.proofs.histories.history import ABSENT, Decision, History, Read, WatchEvent, WatchLog, Write
from tests.proofs.histories.wire import Wire
from tests.support.patience import until
from tests.support.server import RunningServer, running_server
from tests.support.world import gpu_type, node

OBJECTS, CLIENTS, CALLS = 3, 4, 25  # of one history
NODES = ("n-0", "n-1")
ANSWER_SECONDS = 1.0  # then a client does not know what became of its request
LEASE_SECONDS = 0.15
LEADERS = ("first", "second")
HELD_SECONDS = 0.6  # at most


@dataclass
class Town:
    """Two servers, each with a wire to its clients and one to the database."""

    url: str
    servers: Sequence[RunningServer]
    wires: Sequence[Wire]
    to_database: Sequence[Wire]
    node_tokens: Sequence[str]
    decided: dict[str, int] = field(default_factory=dict)  # each node's assignment of the histories before
    values: Iterator[int] = field(default_factory=lambda: iter(range(1, 10**9)))

    @property
    def token(self) -> str:
        return self.servers[0].admin_token

    def strike(self, rng: random.Random) -> None:
        """Pauses a server, cuts a wire in one direction or resets it; all is well again when it returns."""
        which = rng.randrange(len(self.servers))
        wire = rng.choice((self.wires, self.to_database))[which]
        kind = rng.choice(("pause", "there", "back", "reset"))
        if kind == "pause":
            os.kill(self.servers[which].process.pid, signal.SIGSTOP)
        elif kind == "reset":
            wire.reset()
        else:
            wire.cut("there" if kind == "there" else "back")
        time.sleep(rng.uniform(0.05, HELD_SECONDS))
        if kind == "pause":
            os.kill(self.servers[which].process.pid, signal.SIGCONT)
        wire.mend()


@contextmanager
def town(url: str) -> Iterator[Town]:
    with ExitStack() as made:
        parts = urlsplit(url)
        assert parts.port
        to_database = [Wire(parts.port), Wire(parts.port)]
        urls = [urlunsplit(parts._replace(netloc=f"{parts.netloc.rpartition(':')[0]}:{w.port}")) for w in to_database]
        limits = {"GPUWRIGHT_RATE_PER_SECOND": "100000", "GPUWRIGHT_RATE_BURST": "100000"}
        servers = [made.enter_context(running_server(one, **limits)) for one in urls]
        wires = [Wire(server.port) for server in servers]
        for wire in (*to_database, *wires):
            made.callback(wire.close)
        servers[0].request("POST", "/api/v1/apply", [gpu_type("base"), *(node(name, gpuType="base") for name in NODES)])
        yield Town(url, servers, wires, to_database, [servers[0].token("node", node=name) for name in NODES])


def record(made: Town, seed: int) -> History:
    """Lets clients, watchers, nodes and leaders do as they like for a while; all names and values are new ones."""
    rng = random.Random(seed)
    history = History()
    names = [f"g-{seed}-{number}" for number in range(OBJECTS)]
    start = int(made.servers[0].request("GET", "/readyz").json["resourceVersion"])
    stopping = threading.Event()
    clients = [_Client(made, history, names, random.Random(rng.random())) for _ in range(CLIENTS)]
    working = [threading.Thread(target=client.run) for client in clients]
    history.watches = [WatchLog(start) for _ in made.wires]
    watchers = [_Watcher(made, log, place, stopping) for place, log in enumerate(history.watches)]
    pollers = [
        _Poller(made, name, token, history, stopping) for name, token in zip(NODES, made.node_tokens, strict=True)
    ]
    leaders = [
        _Leader(made.url, f"{holder}-{seed}", history, random.Random(rng.random()), stopping) for holder in LEADERS
    ]
    runs: list[Callable[[], None]] = [each.run for group in (watchers, pollers, leaders) for each in group]
    beside = [threading.Thread(target=run) for run in runs]
    for thread in (*working, *beside):
        thread.start()
    while any(thread.is_alive() for thread in working):
        made.strike(rng)
    for thread in working:
        thread.join()
    last = max((write.version or 0 for write in history.writes), default=0)
    until(lambda: all(w.log.events and w.log.events[-1].version >= last for w in watchers) or not last, "a watch hangs")
    stopping.set()
    for thread in beside:
        thread.join()
    for decision in history.decisions:
        made.decided[decision.node] = max(decision.version, made.decided.get(decision.node, 0))
    return history


@dataclass
class _Client:
    """Writes, reads and deletes at either server, one call after the other."""

    made: Town
    history: History
    names: Sequence[str]
    rng: random.Random
    known: dict[str, int] = field(default_factory=dict)  # versions that it has seen

    def run(self) -> None:
        calls = (self.put, self.put, self.put_over, self.create, self.put_with_key, self.read, self.read, self.delete)
        for _ in range(CALLS):
            self.rng.choice(calls)(self.rng.choice(self.names))

    def put(self, name: str, only_over: int | None = None, key: str = "") -> None:
        write = Write(name, next(self.made.values), time.monotonic(), only_over=only_over, key=key)
        self.history.writes.append(write)
        headers = {"Idempotency-Key": key} if key else {}
        if only_over is not None:
            headers |= {"If-Match": f'"{only_over}"'} if only_over else {"If-None-Match": "*"}
        for _ in range(3 if key else 1):
            status, body = self._ask("PUT", name, gpu_type(name, pricePerHour=write.value), headers)
            self._note(write, status, body)

    def put_over(self, name: str) -> None:
        if name in self.known:
            self.put(name, only_over=self.known[name])

    def create(self, name: str) -> None:
        self.put(name, only_over=0)

    def put_with_key(self, name: str) -> None:
        self.put(name, key=f"k-{self.rng.getrandbits(64):x}")

    def delete(self, name: str) -> None:
        write = Write(name, ABSENT, time.monotonic())
        self.history.writes.append(write)
        status, body = self._ask("DELETE", name, None, {})
        if status == 404:
            write.is_refused, write.ended = True, time.monotonic()
        else:
            self._note(write, status, body)
            self.known.pop(name, None)

    def read(self, name: str) -> None:
        began = time.monotonic()
        status, body = self._ask("GET", name, None, {})
        if status == 404:
            self.history.reads.append(Read(name, ABSENT, 0, began, time.monotonic()))
        elif status == 200:
            version = int(body["metadata"]["resourceVersion"])
            self.known[name] = version
            self.history.reads.append(Read(name, int(body["spec"]["pricePerHour"]), version, began, time.monotonic()))

    def _note(self, write: Write, status: int, body: Any) -> None:
        if status in (200, 201):
            version = int(body["metadata"]["resourceVersion"])
            write.versions.append(version)
            if write.version is None:
                write.version, write.ended = version, time.monotonic()
            self.known[write.name] = version
        elif status == 412:
            write.is_refused, write.ended = True, time.monotonic()

    def _ask(self, method: str, name: str, body: Any, headers: dict[str, str]) -> tuple[int, Any]:
        """Returns an answer's status and body; 0 if there was none."""
        return ask(
            self.rng.choice(self.made.wires).port, method, f"/api/v1/gputypes/{name}", body, self.made.token, headers
        )


def ask(
    port: int, method: str, path: str, body: Any, token: str, headers: dict[str, str], seconds: float = ANSWER_SECONDS
) -> tuple[int, Any]:
    """Returns an answer's status and body; 0 if there was none in time."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=seconds)
    sent = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"} | headers
    try:
        connection.request(method, path, None if body is None else json.dumps(body), sent)
        answer = connection.getresponse()
        text = answer.read()
        return answer.status, json.loads(text) if text else None
    except (OSError, http.client.HTTPException, ValueError):
        return 0, None
    finally:
        connection.close()


@dataclass
class _Watcher:
    """Watches at alternating servers, and goes on after the last version that it saw."""

    made: Town
    log: WatchLog
    place: int
    stopping: threading.Event

    def run(self) -> None:
        while not self.stopping.is_set():
            wire = self.made.wires[self.place % len(self.made.wires)]
            self.place += 1
            with suppress(OSError, http.client.HTTPException):
                self._follow(wire.port)

    def _follow(self, port: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=ANSWER_SECONDS)
        after = self.log.events[-1].version if self.log.events else self.log.start
        headers = {"Authorization": f"Bearer {self.made.token}", "Last-Event-ID": str(after)}
        try:
            connection.request("GET", f"/api/v1/watch?kinds=gputypes&resourceVersion={self.log.start}", headers=headers)
            answer = connection.getresponse()
            event: dict[str, str] = {}
            while answer.status == 200 and not self.stopping.is_set() and (line := answer.readline().decode()):
                if line == "\n":
                    self._note(event)
                    event = {}
                elif line.endswith("\n") and not line.startswith(":"):
                    name, _, value = line.rstrip("\n").partition(": ")
                    event[name] = value
        finally:
            connection.close()

    def _note(self, event: dict[str, str]) -> None:
        if event.get("event") in ("added", "modified", "deleted"):
            told = json.loads(event["data"])["object"]
            value = ABSENT if event["event"] == "deleted" else int(told["spec"]["pricePerHour"])
            self.log.events.append(WatchEvent(int(event["id"]), told["metadata"]["name"], value))


@dataclass
class _Poller:
    """A node's long polls, at alternating servers."""

    made: Town
    node: str
    token: str
    history: History
    stopping: threading.Event

    def run(self) -> None:
        polls = self.history.polls.setdefault(self.node, [])
        place, after = 0, self.made.decided.get(self.node, 0)
        while not self.stopping.is_set():
            wire = self.made.wires[place % len(self.made.wires)]
            place += 1
            path = f"/api/v1/nodes/{self.node}/assignment?after={after}&waitSeconds=1"
            status, body = ask(wire.port, "GET", path, None, self.token, {}, seconds=2 * ANSWER_SECONDS)
            if status == 200:
                after = int(body["version"])
                polls.append(Decision(self.node, after, int(body["epoch"]), int(body["generation"])))


@dataclass
class _Leader:
    """One of two that decide under a lease; it sometimes sleeps past its end between taking it and writing."""

    url: str
    holder: str
    history: History
    rng: random.Random
    stopping: threading.Event

    def run(self) -> None:
        database = Database(self.url, pool_size=1, direct=True)
        try:
            while not self.stopping.is_set():
                epoch = database.write(lambda c: lease.take(c, self.holder, LEASE_SECONDS))
                if epoch is None:
                    time.sleep(LEASE_SECONDS / 5)
                    continue
                time.sleep(self.rng.choice((0.0, 0.02, 3 * LEASE_SECONDS)))
                self._decide(database, epoch)
        finally:
            database.write(lambda c: lease.release(c, self.holder))
            database.close()

    def _decide(self, database: Database, epoch: int) -> None:
        node = self.rng.choice(NODES)

        def write(connection: Any) -> tuple[int, dict[str, int]] | None:
            generation = lease.next_generation(connection, epoch)
            if generation is None:
                return None
            draft = assignments.AssignmentDraft(node, generation, _body(node, epoch, generation))
            return generation, assignments.write(connection, epoch, [draft])

        done = database.write(write)
        if done is not None and node in done[1]:
            self.history.decisions.append(Decision(node, done[1][node], epoch, done[0], self.holder))


def _body(node: str, epoch: int, generation: int) -> Callable[[int], str]:
    return lambda version: json.dumps({"node": node, "version": version, "epoch": epoch, "generation": generation})
