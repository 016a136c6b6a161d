"""Every error of a route is a problem document that says what the caller can act on and nothing else."""

from __future__ import annotations

import json

import pytest
from psycopg import errors as pg
from sqlalchemy.exc import OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from app.http.errors import problem_of
from app.store.database.database import OutcomeUnknown, Unavailable
from tests.app.http.conftest import Answer, Running
from tests.app.http.small_app import CANARY, token

TOKEN = token("admin").encode()
FIELDS = {"type", "title", "status", "detail", "instance", "requestId"}


def is_problem(answer: Answer, status: int, slug: str) -> bool:
    document = answer.json
    return (
        answer.status == status == document["status"]
        and answer.headers["content-type"] == "application/problem+json"
        and document.keys() >= FIELDS
        and document["type"] == f"urn:gpuwright:problem:{slug}"
        and document["requestId"] == answer.headers["x-request-id"]
    )


def test_a_refusal_of_a_route(server: Running) -> None:
    answer = server.ask("GET", "/api/v1/services/x")
    assert is_problem(answer, 404, "not-found")
    assert answer.json["detail"] == "there is no Service x"


def test_a_path_that_is_not_there(server: Running) -> None:
    assert is_problem(server.ask("GET", "/api/v2/services"), 404, "not-found")


def test_a_trailing_slash_is_not_redirected_to_the_host_header(server: Running) -> None:
    assert is_problem(server.ask("GET", "/api/v1/services/"), 404, "not-found")


def test_another_method_names_every_allowed_one(server: Running) -> None:
    answer = server.ask("DELETE", "/api/v1/services/x")
    assert is_problem(answer, 405, "method-not-allowed")
    assert answer.headers["allow"] == "get, put"
    assert server.ask("PUT", "/api/v1/jobs/x").headers["allow"] == "get, delete"  # of an included router


def test_a_wrong_form_names_each_field(server: Running) -> None:
    body = json.dumps({"count": "many", "token": 1}).encode()
    answer = server.ask("PUT", "/api/v1/services/x", "admin", body, Content_Type="application/json")
    assert is_problem(answer, 422, "invalid")
    assert [fault["field"] for fault in answer.json["faults"]] == ["name", "count", "token"]
    assert answer.json["faults"][1]["value"] == "many"
    assert "value" not in answer.json["faults"][2]


def test_json_that_is_none_is_422(server: Running) -> None:
    for body in (b"{", b"\xff", b"[" * 200_000, b"9" * 5000, b"", b'{"name": NaN}', b"null"):
        answer = server.ask("PUT", "/api/v1/services/x", "admin", body, Content_Type="application/json")
        assert answer.status in (400, 422), body[:10]
        assert len(answer.body) < 5000


def test_an_accident_shows_nothing_of_its_insides(server: Running) -> None:
    answer = server.ask("GET", "/api/v1/boom")
    assert is_problem(answer, 500, "internal")
    assert CANARY not in answer.body.decode()
    assert "RuntimeError" not in answer.body.decode()


def test_a_database_that_is_away_is_503_and_says_when_to_come_back(server: Running) -> None:
    answer = server.ask("GET", "/api/v1/down")
    assert is_problem(answer, 503, "unavailable")
    assert int(answer.headers["retry-after"]) > 0
    assert CANARY not in answer.body.decode()


@pytest.mark.parametrize(
    "error",
    [
        Unavailable("away"),
        PoolTimeout("QueuePool limit"),
        OperationalError("SELECT 1", {}, pg.ConnectionException("gone")),
        pg.AdminShutdown("terminating"),
        pg.OperationalError("refused"),
    ],
)
def test_every_way_a_database_can_be_away_is_503(error: Exception) -> None:
    problem = problem_of(error)
    assert (problem.status, problem.slug) == (503, "unavailable")
    assert problem.headers["Retry-After"]


def test_a_full_disk_is_said_and_an_unknown_outcome_is_not_called_nothing() -> None:
    assert problem_of(Unavailable("the database's disk is full")).detail.startswith("the database's disk is full;")
    assert problem_of(OutcomeUnknown("its outcome is not known")).detail == "its outcome is not known"


def test_an_answer_that_breaks_off_is_not_taken_for_whole(server: Running) -> None:
    client = server.client()
    client.send(b"GET /api/v1/watch?half=1 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + TOKEN + b"\r\n\r\n")
    raw = b""
    while data := client.socket.recv(65536):
        raw += data
    assert b"one" in raw
    assert not raw.endswith(b"0\r\n\r\n")


def test_an_answer_that_is_not_streamed_and_breaks_off_is_a_500(server: Running) -> None:
    answer = server.ask("GET", "/api/v1/half")
    assert is_problem(answer, 500, "internal")
    assert b"one" not in answer.body
