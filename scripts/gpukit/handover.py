"""Gives an instance another share under requests: a second copy starts and takes the requests, the first one ends."""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import msgspec

from agents.contract.assignments import AssignedInstance, Assignment, Frame
from agents.keeper.copies import Stage
from agents.node.node import LocalNode
from agents.node.parts import NodeParts
from agents.node.state_folder import StateFolder
from agents.seams.routes import Acknowledged, Route, RouteState
from scripts.gpukit.stand import HOST, TEMPLATE, Stand, open_drivers

NODE, MODEL = "kit", "kit"
CLIENTS = 4
FIRST_PERCENT, SECOND_PERCENT = 30.0, 50.0
PATIENCE_SECONDS = 120.0
ANSWER_SECONDS = 30.0
LOAD = "arithmetic"


@dataclass
class Switchboard:
    """A gateway within this process: sends requests to a ready copy, and knows which are open."""

    _ready: dict[str, str] = field(default_factory=dict)  # address of each copy that gets requests
    _open: dict[str, int] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def declare(self, routes: Sequence[Route]) -> Acknowledged:
        with self._lock:
            self._ready = {route.copy: route.address for route in routes if not route.drained}
            return Acknowledged(
                tuple(RouteState(route.copy, not route.drained, self._open.get(route.copy, 0)) for route in routes)
            )

    @contextmanager
    def route(self) -> Iterator[str]:
        """Yields the address of a copy, whose request is open meanwhile; empty if there is none."""
        with self._lock:
            copy, address = next(reversed(self._ready.items()), ("", ""))
            self._open[copy] = self._open.get(copy, 0) + 1
        try:
            yield address
        finally:
            with self._lock:
                self._open[copy] -= 1


@dataclass
class Requests:
    """Clients that ask one after the other, and count."""

    board: Switchboard
    answered_ms: list[float] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    stopping: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        while not self.stopping.is_set():
            began = time.monotonic()
            with self.board.route() as address:
                why = _ask(address) if address else "no copy is ready"
            if why:
                self.failed.append(why)
            else:
                self.answered_ms.append(1000 * (time.monotonic() - began))


def hand_over(stand: Stand) -> dict[str, object]:
    """Runs an instance under a node's own keeper, and assigns it another share while it answers."""
    board = Switchboard()
    drivers = open_drivers(stand.folder, stand.program, stand.options)
    node = LocalNode(StateFolder(stand.folder / "state"), NodeParts(drivers, board, stand.templates), incarnation=1)
    node.set_contact(True)
    node.start()
    requests = Requests(board)
    clients = [threading.Thread(target=requests.run) for _ in range(CLIENTS)]
    try:
        node.offer(_assignment(stand, 1, FIRST_PERCENT))
        _await(lambda: _shares(node) == [FIRST_PERCENT], "the first copy is not ready")
        for client in clients:
            client.start()
        time.sleep(stand.options.seconds)
        began, before = time.monotonic(), len(requests.answered_ms)
        node.offer(_assignment(stand, 2, SECOND_PERCENT))
        _await(lambda: _shares(node) == [SECOND_PERCENT], "the second copy has not replaced the first")
        took = time.monotonic() - began
        time.sleep(stand.options.seconds)
    finally:
        requests.stopping.set()
        for client in clients:
            if client.ident is not None:
                client.join()
        node.offer(_assignment(stand, 3, 0.0))
        _await(lambda: not node.keeper.copies(), "copies are left")
        handed_over = node.keeper.handed_over
        node.stop()
    return {
        "sm_percents": (FIRST_PERCENT, SECOND_PERCENT),
        "handed_over": handed_over,
        "seconds": round(took, 2),
        "answered": len(requests.answered_ms),
        "answered_since_the_order": len(requests.answered_ms) - before,
        "failed_requests": len(requests.failed),
        "first_failure": requests.failed[0] if requests.failed else "",
        "longest_ms": round(max(requests.answered_ms, default=0.0), 1),
    }


def _assignment(stand: Stand, generation: int, sm_percent: float) -> Assignment:
    """Returns the node's whole assignment; a share of 0 assigns nothing."""
    instance = AssignedInstance(
        "kit-1",
        stand.gpu.index,
        "kit",
        "kit",
        model=MODEL,
        template=TEMPLATE,
        args=dict(stand.args(LOAD)) | {"model": MODEL},
        sm_percent=sm_percent,
        memory_gib=4.0,
        batch=Frame(1, 1, 1),
        rate_per_second=10.0,
        slo_ms=1000.0,
        percentile=95.0,
    )
    empty = Assignment(NODE, generation, 1, generation)
    return msgspec.structs.replace(empty, instances=(instance,)) if sm_percent else empty


def _shares(node: LocalNode) -> list[float]:
    """Returns the shares of the copies; empty while one of them is not ready."""
    copies = node.keeper.copies()
    return [copy.wanted.sm_percent for copy in copies] if all(copy.stage is Stage.READY for copy in copies) else []


def _ask(address: str) -> str:
    """Returns why a request failed; empty if it was answered."""
    host, _, port = address.rpartition(":")
    connection = http.client.HTTPConnection(host or HOST, int(port), timeout=ANSWER_SECONDS)
    try:
        connection.request("POST", f"/v1/models/{MODEL}:infer", b'{"inputs": []}')
        status = connection.getresponse().status
    except (OSError, http.client.HTTPException) as error:
        return f"{type(error).__name__}: {error}"
    finally:
        connection.close()
    return "" if status == 200 else f"status {status}"


def _await(is_so: Callable[[], bool], otherwise: str) -> None:
    ends_at = time.monotonic() + PATIENCE_SECONDS
    while not is_so():
        if time.monotonic() > ends_at:
            raise TimeoutError(f"{otherwise} after {PATIENCE_SECONDS:g} s")
        time.sleep(0.02)
