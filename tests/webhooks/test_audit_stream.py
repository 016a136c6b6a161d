"""Each entry of the audit reaches every listed place, however long server or place are away; it holds no secret."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cli.main import main
from tests.support.patience import until
from tests.support.postgres import DatabaseServer
from tests.support.world import gpu_type
from tests.webhooks.receiver import running_receiver
from tests.webhooks.test_delivery import SECRET, count, make_event, run, server_with, standing

pytestmark = pytest.mark.slow


def read_lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def test_the_audit_goes_to_a_file_and_to_an_address_and_events_do_not(postgres: DatabaseServer, tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    with running_receiver() as receiver:
        hooks = (
            {"name": "file", "url": f"file://{path}", "format": "jsonl", "stream": "audit"},
            {"name": "siem", "url": receiver.address, "stream": "audit"},
        )
        with server_with(postgres, tmp_path, *hooks) as server:
            make_event(server)
            made = server.request("POST", "/api/v1/tokens", {"scope": "viewer"}).json
            assert server.request("POST", "/api/v1/webhooks/file/try").status == 202
            until(lambda: standing(server, "file")["sent"] == standing(server, "siem")["sent"] == 3, "all arrive")
            stored = server.request("GET", "/api/v1/audit").json["items"][::-1]
            lines = read_lines(path)
            assert [line["id"] for line in lines] == [entry["id"] for entry in stored]
            for line, entry in zip(lines, stored, strict=True):
                assert {key: line[key] or None for key in entry} == {key: entry[key] or None for key in entry}
            posts = [receiver.next_post() for _ in lines]
            assert [post.json["data"]["id"] for post in posts] == [entry["id"] for entry in stored]
            assert all(post.is_signed_with(SECRET) for post in posts)
            assert posts[0].json["type"] == "io.gpuwright.audit.create"
            everything = path.read_text() + b"".join(post.body for post in posts).decode()
            assert made["token"] not in everything and made["token"].rpartition("_")[2] not in everything


def test_what_happens_while_the_place_and_the_server_are_away_arrives_in_the_end(
    postgres: DatabaseServer, tmp_path: Path
) -> None:
    folder = tmp_path / "not-there-yet"
    hook = {"name": "file", "url": f"file://{folder}/audit.jsonl", "format": "jsonl", "stream": "audit"}
    with server_with(postgres, tmp_path, hook) as server:
        for number in range(3):
            make_event(server, f"type-{number}")
        until(lambda: "No such file" in (standing(server, "file")["error"] or ""), "it fails")
        run(server, "UPDATE webhook_delivery SET attempts = 11, due_at = now()")  # as after hours
        until(lambda: count(server, "event", "reason = 'webhook_failed'") == 1, "an alarm says so")
        assert standing(server, "file")["dead"] == 0
        server.kill()
        # As after ten days: servers in whose file a hook is missing forget that of events, and not that of the audit.
        run(server, "UPDATE webhook SET seen_at = now() - interval '10 days'")
        run(server, "UPDATE webhook_delivery SET created_at = now() - interval '40 days', due_at = now()")
        server.restart()
        make_event(server, "type-3")
        folder.mkdir()
        run(server, "UPDATE webhook_delivery SET due_at = now()")
        until(lambda: standing(server, "file")["sent"] == 4, "all arrive")
        names = {line["name"] for line in read_lines(folder / "audit.jsonl")}
        assert names == {f"type-{number}" for number in range(4)}
        assert count(server, "webhook_delivery") == 0


def test_many_changes_of_one_request_are_many_entries_in_their_order(postgres: DatabaseServer, tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    hook = {"name": "file", "url": f"file://{path}", "format": "jsonl", "stream": "audit"}
    with server_with(postgres, tmp_path, hook) as server:
        documents = [gpu_type(f"type-{number:03d}") for number in range(150)]
        assert server.request("POST", "/api/v1/apply", documents).status == 200
        until(lambda: len(read_lines(path)) >= 150, "all are written")
        assert [line["name"] for line in read_lines(path)] == [one["metadata"]["name"] for one in documents]


def test_an_entry_that_a_place_refuses_for_its_content_is_a_dead_letter_to_send_again_or_discard(
    postgres: DatabaseServer, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with running_receiver("422") as receiver:
        hook = {"name": "siem", "url": receiver.address, "stream": "audit"}
        with server_with(postgres, tmp_path, hook) as server:

            def type_(*words: str) -> str:
                assert main(["webhook", *words]) == 0
                return capsys.readouterr().out

            def become(status: str) -> None:
                """The place answers so to the twelfth try of what waits."""
                receiver.says = status
                sql = "UPDATE webhook_delivery SET attempts = 11, due_at = now(), error = '' WHERE due_at IS NOT NULL"
                run(server, sql)
                until(
                    lambda: count(server, "webhook_delivery", f"error <> 'it answered {status}'") == 0, "all are tried"
                )

            monkeypatch.setenv("GPUWRIGHT_SERVER", server.url)
            monkeypatch.setenv("GPUWRIGHT_TOKEN", server.admin_token)
            for number in range(2):
                make_event(server, f"type-{number}")
            become("422")
            assert standing(server, "siem")["dead"] == 0, "it takes nothing at all: that may be its own fault"
            receiver.says = "200"
            make_event(server, "type-2")
            until(lambda: standing(server, "siem")["sent"] == 1, "it takes others")
            become("503")
            assert (standing(server, "siem")["waiting"], standing(server, "siem")["dead"]) == (2, 0), "it is away"
            become("422")
            until(lambda: standing(server, "siem")["dead"] == 2, "what they say is refused")
            run(server, "UPDATE webhook_delivery SET created_at = now() - interval '40 days'")
            letters = server.request("GET", "/api/v1/webhooks/siem/dead-letters").json["items"]
            assert "audit entry" in type_("dead", "siem")
            assert server.request("DELETE", "/api/v1/webhooks/siem/dead-letters?id=999999").status == 404
            assert server.request("DELETE", f"/api/v1/webhooks/siem/dead-letters?id={10**20}").status == 422
            receiver.says = "200"
            assert "1 discarded" in type_("discard", "siem", "--yes", "--id", str(letters[0]["id"]))
            assert "1 to be sent" in type_("retry", "siem")
            until(lambda: standing(server, "siem")["waiting"] == 0, "the others arrive")
            kept = server.request("GET", "/api/v1/audit").json["items"]
            assert letters[0]["event"]["audit"] in [entry["id"] for entry in kept], "the audit itself keeps it"
            assert [entry["verb"] for entry in kept[:2]] == ["retry", "discard"]
            assert kept[1]["detail"] == f"dead letter {letters[0]['id']}: audit entry {letters[0]['event']['audit']}"
