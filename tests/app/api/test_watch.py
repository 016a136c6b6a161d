"""Watching: every change once and in order, resumable, and over when the token is."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

from tests.support.patience import patience
from tests.support.server import RunningServer
from tests.support.world import gpu_type, manifest, model


class Watch:
    """An open watch; `next()` gives the next change, None at its end."""

    def __init__(self, server: RunningServer, query: str, token: str, **headers: str) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=patience())
        self._connection.request("GET", f"/api/v1/watch{query}", headers={"Authorization": f"Bearer {token}"} | headers)
        self._response = self._connection.getresponse()
        self.status = self._response.status
        if self.status == 200:
            self._response.readline()  # the first heartbeat: we are listening
            self._response.readline()

    def next(self) -> tuple[int, str, dict[str, Any]] | None:
        event: dict[str, str] = {}
        while line := self._response.readline().decode():
            if line == "\n":
                if event.get("event") == "end":
                    return None
                if "data" in event:
                    return int(event["id"]), event["event"], json.loads(event["data"])["object"]
                event = {}
            elif not line.startswith(":"):
                name, _, value = line.rstrip("\n").partition(": ")
                event[name] = value
        return None

    def close(self) -> None:
        self._connection.close()


@contextmanager
def watching(server: RunningServer, query: str = "", token: str = "", **headers: str) -> Iterator[Watch]:
    watch = Watch(server, query, token or server.admin_token, **headers)
    yield watch
    watch.close()


@pytest.mark.slow
def test_a_watch_tells_what_happens_to_an_object(server: RunningServer) -> None:
    path = "/api/v1/gputypes/watched"
    with watching(server, "?kinds=gputypes") as watch:
        server.request("PUT", path, gpu_type("watched"))
        server.request("PUT", path, gpu_type("watched", pricePerHour=5))
        server.request("DELETE", path)
        events = [watch.next() for _ in range(3)]
    assert [event[1] for event in events if event] == ["added", "modified", "deleted"]
    assert events[1] is not None
    assert events[1][2]["spec"]["pricePerHour"] == 5


def test_a_watch_resumes_after_a_version_and_misses_nothing(server: RunningServer) -> None:
    names = [f"resumed-{n}" for n in range(7)]
    start = server.request("GET", "/readyz").json["resourceVersion"]
    server.request("POST", "/api/v1/apply", [gpu_type(name) for name in names])
    seen: list[str] = []
    version = start
    while len(seen) < len(names):  # reconnect after every single event
        with watching(server, f"?resourceVersion={start}", **{"Last-Event-ID": str(version)}) as watch:
            event = watch.next()
            assert event is not None
            version = event[0]
            seen.append(event[2]["metadata"]["name"])
    assert seen == names


def test_a_version_that_is_no_longer_kept_is_gone_and_says_to_list_again(server: RunningServer) -> None:
    with psycopg.connect(server.database_url) as connection:
        connection.execute("UPDATE version SET floor = 3 WHERE name = 'object'")
    reply = server.request("GET", "/api/v1/watch?resourceVersion=2")
    assert reply.status == 410
    assert "list again" in reply.json["detail"]
    with psycopg.connect(server.database_url) as connection:
        connection.execute("UPDATE version SET floor = 0 WHERE name = 'object'")


def test_revoking_the_token_ends_its_open_watch(server: RunningServer) -> None:
    made = server.request("POST", "/api/v1/tokens", {"scope": "viewer"}).json
    ended = threading.Event()
    with watching(server, token=made["token"]) as watch:

        def follow() -> None:
            while watch.next() is not None:
                pass
            ended.set()

        follower = threading.Thread(target=follow)
        follower.start()
        server.request("DELETE", f"/api/v1/tokens/{made['id']}")
        assert ended.wait(patience())
        follower.join()


def test_a_tenant_sees_a_model_come_and_go_as_it_is_admitted(server: RunningServer) -> None:
    token = server.token("viewer", tenant="shop")
    path = "/api/v1/models/opened"
    with watching(server, "?kinds=models", token) as watch:
        server.request("PUT", path, model("opened", tenants=["lab"]))
        server.request("PUT", path, model("opened", tenants=["lab", "shop"]))
        server.request("PUT", path, model("opened", tenants=["lab"]))
        added, deleted = watch.next(), watch.next()
    assert added is not None
    assert deleted is not None
    assert (added[1], added[2]["spec"]["tenants"]) == ("added", ["shop"])
    assert (deleted[1], deleted[2]["spec"]) == ("deleted", {})


def test_a_watch_can_be_narrowed_by_label(server: RunningServer) -> None:
    with watching(server, "?kinds=tenants&labelSelector=team%3Da") as watch:
        server.request("PUT", "/api/v1/tenants/unlabelled", manifest("Tenant", "unlabelled", {}))
        server.request("PUT", "/api/v1/tenants/labelled", manifest("Tenant", "labelled", {}, team="a"))
        event = watch.next()
    assert event is not None
    assert event[2]["metadata"]["name"] == "labelled"


def test_an_unknown_kind_is_refused_by_name(server: RunningServer) -> None:
    reply = server.request("GET", "/api/v1/watch?kinds=pods")
    assert (reply.status, "services" in reply.json["detail"]) == (400, True)


def test_a_version_of_another_history_is_gone(server: RunningServer) -> None:
    reply = server.request("GET", "/api/v1/watch?resourceVersion=999999999999")
    assert (reply.status, "list again" in reply.json["detail"]) == (410, True)
