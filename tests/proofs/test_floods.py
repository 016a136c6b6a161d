"""FAILURES 30: a flood is answered 429, to the one who floods; the reports of nodes go on in a lane of their own."""

from __future__ import annotations

import threading
import time
from collections import Counter
from datetime import UTC, datetime

from tests.support.caller import Caller, NoAnswer
from tests.support.server import RunningServer
from tests.support.world import declare_world

FLOODERS = 4
REPORTS = 12
PAUSE_SECONDS = 0.25


def test_reports_are_stored_and_others_answered_throughout_a_flood(api: RunningServer) -> None:
    declare_world(api)
    flooding, reading, reporting = api.token("operator"), api.token("viewer"), api.token("node", node="node-1")
    over = threading.Event()
    flooded: Counter[int] = Counter()

    def flood() -> None:
        caller = Caller(api.port, flooding)
        while not over.is_set():
            try:
                reply = caller.ask("GET", "/api/v1/services?limit=500")
            except NoAnswer:
                continue
            flooded[reply.status] += 1
            if reply.status == 429:
                assert int(reply.headers["retry-after"]) > 0

    threads = [threading.Thread(target=flood) for _ in range(FLOODERS)]
    for thread in threads:
        thread.start()
    node, reader = Caller(api.port, reporting), Caller(api.port, reading)
    try:
        while flooded[429] < 100:  # it is under way
            time.sleep(0.05)
        told, read = [], []
        for sequence in range(REPORTS):
            now = datetime.now(UTC).isoformat()
            report = {"node": "node-1", "incarnation": 1, "sequence": sequence, "at": now, "minute": now[:16] + ":00Z"}
            told.append(node.ask("POST", "/api/v1/nodes/node-1/report", report).status)
            read.append(reader.ask("GET", "/api/v1/services/shop/search").status)
            time.sleep(PAUSE_SECONDS)
    finally:
        over.set()
        for thread in threads:
            thread.join()
    assert told == [200] * REPORTS
    assert read == [200] * REPORTS
    assert set(flooded) == {200, 429}
