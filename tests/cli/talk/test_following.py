"""Event streams over a real socket: resumed where they broke off."""

from __future__ import annotations

from itertools import islice

import pytest

from cli.exits import Failed
from cli.talk.client import ApiClient
from cli.talk.contexts import ServerContext
from cli.talk.following import follow
from cli.talk.refusals import ServerRefusal
from tests.cli.scripted import Scripted, answer, scripted


def stream(*lines: str) -> bytes:
    head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
    return (head + "".join(lines)).encode()


def event(version: int, kind: str = "modified") -> str:
    return f'id: {version}\nevent: {kind}\ndata: {{"type": "{kind}", "object": {{"version": {version}}}}}\n\n'


def client_of(server: Scripted) -> ApiClient:
    return ApiClient(ServerContext(server.url), sleep=lambda _: None)


def test_a_broken_stream_is_resumed_after_the_last_event_or_heartbeat() -> None:
    answers = stream(event(7), ": heartbeat 12\n\n"), b"", stream(event(13, "added"))
    with scripted(*answers) as server, client_of(server) as client:
        seen = [
            (found.type, found.version)
            for found in islice(follow(client, {"kinds": "services"}, 5, sleep=lambda _: None), 3)
        ]
    assert seen == [("modified", 7), ("heartbeat", 12), ("added", 13)]
    asked = [request.split()[1].decode() for request in server.requests]
    assert [path.rpartition("=")[2] for path in asked] == ["5", "12", "12"]


def test_an_event_cut_off_in_the_middle_is_not_delivered_and_comes_again() -> None:
    cut = event(8)[:-12]
    with scripted(stream(event(7), cut), stream(event(8))) as server, client_of(server) as client:
        seen = [found.version for found in islice(follow(client, {}, 6, sleep=lambda _: None), 2)]
    assert seen == [7, 8]


def test_data_over_several_lines_is_one_event() -> None:
    text = 'id: 3\nevent: added\ndata: {"object":\ndata: {"a": 1}}\n\n'
    with scripted(stream(text)) as server, client_of(server) as client:
        assert next(follow(client, {}, 1)).object == {"a": 1}


def test_a_version_that_is_no_longer_kept_is_the_callers_affair() -> None:
    gone = answer(410, '{"detail": "list again"}', media="application/problem+json")
    with scripted(gone) as server, client_of(server) as client, pytest.raises(ServerRefusal) as refused:
        next(follow(client, {}, 1))
    assert refused.value.status == 410


def test_a_revoked_token_ends_the_watch_with_its_reason() -> None:
    end = 'event: end\ndata: {"reason":"the token has ended"}\n\n'
    ended = pytest.raises(Failed, match="the token has ended")
    with scripted(stream(event(7), end)) as server, client_of(server) as client, ended:
        list(follow(client, {}, 1))


def test_nothing_is_followed_beyond_the_deadline() -> None:
    with scripted(stream(event(7))) as server, client_of(server) as client:
        assert list(follow(client, {}, 1, deadline=0.0)) == []
