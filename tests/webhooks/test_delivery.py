"""What happens reaches every place that wants it, at least once and signed; a place that fails delays no other."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import CursorResult, text

from app.store.database.database import Database
from tests.support.patience import until
from tests.support.postgres import DatabaseServer
from tests.support.server import RunningServer, running_server
from tests.support.world import gpu_type
from tests.webhooks.receiver import running_receiver

pytestmark = pytest.mark.slow
SECRET = "a-secret-of-webhooks"


@contextmanager
def server_with(postgres: DatabaseServer, folder: Path, *hooks: dict[str, Any]) -> Iterator[RunningServer]:
    (folder / "secret").write_text(f"{SECRET}\n")
    path, url = folder / "webhooks.yaml", postgres.create()
    shared = {"secretFile": str(folder / "secret"), "onThisMachine": True}
    path.write_text(json.dumps({"webhooks": [{**shared, **hook} for hook in hooks]}))
    with running_server(url, GPUWRIGHT_WEBHOOKS_FILE=str(path)) as server:
        until(lambda: count(server, "webhook") == len(hooks), "the hooks are registered")
        yield server
    postgres.drop(url)


def count(server: RunningServer, table: str, condition: str = "true") -> int:
    return int(run(server, f"SELECT count(*) FROM {table} WHERE {condition}"))


def run(server: RunningServer, sql: str) -> Any:
    database = Database(server.database_url, pool_size=1)
    try:
        return database.write(lambda connection: _read_scalar(connection.execute(text(sql))))
    finally:
        database.close()


def _read_scalar(found: CursorResult[Any]) -> Any:
    return found.scalar() if found.returns_rows else None


def make_event(server: RunningServer, name: str = "v100-16gb") -> None:
    document = gpu_type()
    document["metadata"]["name"] = name
    assert server.request("POST", "/api/v1/apply", [document]).status == 200


def standing(server: RunningServer, name: str) -> dict[str, Any]:
    items: list[dict[str, Any]] = server.request("GET", "/api/v1/webhooks").json["items"]
    return next(one for one in items if one["name"] == name)


def test_a_new_event_is_posted_once_as_a_signed_cloud_event(postgres: DatabaseServer, tmp_path: Path) -> None:
    with (
        running_receiver() as receiver,
        server_with(postgres, tmp_path, {"name": "all", "url": f"{receiver.address}/in?x=1"}) as server,
    ):
        make_event(server)
        post = receiver.next_post()
        assert (post.path, post.headers["content-type"]) == ("/in?x=1", "application/cloudevents+json")
        event = post.json
        assert {key: event[key] for key in ("specversion", "type", "subject")} == {
            "specversion": "1.0", "type": "io.gpuwright.event.object_created", "subject": "GpuType/v100-16gb",
        }  # fmt: skip
        assert event["data"]["message"] == "GpuType v100-16gb was created"
        assert post.is_signed_with(SECRET) and not post.is_signed_with("another")
        assert post.headers["webhook-id"] == event["id"]
        until(lambda: standing(server, "all")["sent"] == 1, "it is counted")
        shown = server.request("GET", "/api/v1/webhooks").text + server.log_path.read_text()
        assert SECRET not in shown and "/in?x=1" not in shown


def test_each_place_gets_what_it_asked_for(postgres: DatabaseServer, tmp_path: Path) -> None:
    with running_receiver() as every, running_receiver() as few, running_receiver() as chat:
        hooks = (
            {"name": "every", "url": every.address},
            {"name": "few", "url": few.address, "reasons": ["token_created"]},
            {"name": "chat", "url": chat.address, "format": "slack", "reasons": ["token_created"]},
        )
        with server_with(postgres, tmp_path, *hooks) as server:
            make_event(server)
            made = server.request("POST", "/api/v1/tokens", {"scope": "viewer", "label": "<!channel>"}).json["id"]
            assert {every.next_post().json["data"]["reason"] for _ in range(2)} == {"object_created", "token_created"}
            assert few.next_post().json["data"]["reason"] == "token_created"
            said = chat.next_post().json["text"]
            assert said == f"Token/{made}: token {made} of scope viewer was created (token_created)"
            assert few.posts.empty() and chat.posts.empty()


@pytest.mark.parametrize("how", ["hang", "drip", "close", "redirect", "500", "404"])
def test_a_place_that_fails_delays_no_other_and_gets_it_later(
    postgres: DatabaseServer, tmp_path: Path, how: str
) -> None:
    with running_receiver(how) as bad, running_receiver() as good:
        hooks = ({"name": "bad", "url": bad.address}, {"name": "good", "url": good.address})
        with server_with(postgres, tmp_path, *hooks) as server:
            for number in range(3):
                make_event(server, f"type-{number}")
            first = bad.next_post()
            names = {good.next_post().json["data"]["name"] for _ in range(3)}
            assert names == {"type-0", "type-1", "type-2"}
            until(lambda: bool(standing(server, "bad")["error"]), "the failure is shown")
            assert standing(server, "bad")["waiting"] == 3
            bad.says = "200"
            run(server, "UPDATE webhook_delivery SET due_at = now()")  # as if the pauses were over
            until(lambda: (standing(server, "bad")["waiting"], standing(server, "bad")["sent"]) == (0, 3), "all arrive")
            assert standing(server, "bad")["error"] is None
            again = [bad.posts.get_nowait() for _ in range(bad.posts.qsize())]
            assert first.json["id"] in {post.json["id"] for post in again}, "a repetition has the same id"
            assert not [post.path for post in again if "elsewhere" in post.path], "no redirect is followed"


def test_what_never_arrives_is_a_dead_letter_with_an_alarm_and_can_be_sent_again(
    postgres: DatabaseServer, tmp_path: Path
) -> None:
    with running_receiver("503") as bad, running_receiver() as good:
        hooks = (
            {"name": "bad", "url": bad.address, "reasons": ["object_created", "webhook_failed"]},
            {"name": "good", "url": good.address, "reasons": ["webhook_failed"]},
        )
        with server_with(postgres, tmp_path, *hooks) as server:
            make_event(server)
            bad.next_post()
            until(lambda: standing(server, "bad")["error"] == "it answered 503", "the first try is noted")
            run(server, "UPDATE webhook_delivery SET attempts = 11, due_at = now() WHERE hook = 'bad'")
            alarm = good.next_post().json["data"]
            assert (alarm["severity"], alarm["name"]) == ("alarm", "bad")
            assert alarm["message"].endswith(
                "did not get object_created of GpuType/v100-16gb in 12 tries: it answered 503"
            )
            until(lambda: standing(server, "bad")["dead"] == 1, "it is a dead letter")
            assert standing(server, "bad")["waiting"] == 0, "it hears nothing of its own failure"
            (letter,) = server.request("GET", "/api/v1/webhooks/bad/dead-letters").json["items"]
            assert (letter["attempts"], letter["event"]["reason"]) == (12, "object_created")
            bad.says = "204"
            assert server.request("POST", "/api/v1/webhooks/bad/retry").json == {"name": "bad", "queued": 1}
            until(lambda: standing(server, "bad")["sent"] == 1, "it arrives")
            assert server.request("POST", "/api/v1/webhooks/bad/try").status == 202
            until(lambda: standing(server, "bad")["sent"] == 2, "so does a try")
            assert server.request("POST", "/api/v1/webhooks/unknown/try").status == 404


def test_a_server_that_is_killed_while_it_posts_loses_nothing(postgres: DatabaseServer, tmp_path: Path) -> None:
    with (
        running_receiver("hang") as receiver,
        server_with(postgres, tmp_path, {"name": "all", "url": receiver.address}) as server,
    ):
        make_event(server)
        first = receiver.next_post()
        server.kill()
        receiver.says = "200"
        server.restart()
        run(server, "UPDATE webhook_delivery SET due_at = now()")  # as if its lease had ended
        assert receiver.next_post().json["id"] == first.json["id"]
        until(lambda: standing(server, "all")["sent"] == 1, "it is delivered")


def test_where_no_hook_is_nothing_is_kept(postgres: DatabaseServer, tmp_path: Path) -> None:
    with server_with(postgres, tmp_path) as server:
        make_event(server)
        assert count(server, "webhook_delivery") == 0
        assert server.request("GET", "/api/v1/webhooks").json["items"] == []
