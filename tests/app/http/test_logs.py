"""Every event is one line of JSON, whatever is in it, and no line holds a secret."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.http.logs import JsonLine, LogStream, event
from app.http.redact import hide, redact
from tests.app.http.conftest import Running, Start, request
from tests.app.http.small_app import CANARY, token

log = logging.getLogger("test-of-logs")
NASTY = 'a\r\n{"level":"error"}\x1b[31mred\x00\u202e\u2066rtl\u2028\ud800\x85'


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonLine())
    log.addHandler(handler)
    log.setLevel(logging.DEBUG)
    yield stream
    log.removeHandler(handler)


def test_lines_that_a_full_disk_refuses_are_lost_with_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    record = logging.makeLogRecord({"msg": "request"})
    written = io.StringIO()
    handler = LogStream(written)
    with contextlib.suppress(OSError), Path("/dev/full").open("w", buffering=1) as full:  # its close fails, too
        handler.stream = full
        for _ in range(3):
            handler.handle(record)
    lost = "gpuwright: cannot write the log: No space left on device; its lines are lost meanwhile\n"
    assert capsys.readouterr().err == lost
    handler.stream = written
    handler.handle(record)
    assert written.getvalue() == "request\n"


def only(stream: io.StringIO) -> dict[str, Any]:
    text = stream.getvalue()
    assert text.count("\n") == 1
    assert text.isascii()
    assert text.strip().isprintable()
    line: dict[str, Any] = json.loads(text)
    return line


def test_a_line_names_its_time_level_and_event(stream: io.StringIO) -> None:
    log.info("slow_query", extra={"statement": "page", "seconds": 0.5, "keys": ("a", 1, None)})
    line = only(stream)
    assert line["time"].endswith("Z")
    assert len(line["time"]) == len("2026-11-20T10:30:00.123Z")
    assert (line["level"], line["event"], line["statement"], line["seconds"]) == ("info", "slow_query", "page", 0.5)
    assert line["keys"] == ["a", 1, None]


def test_nothing_in_a_value_can_break_the_line(stream: io.StringIO) -> None:
    try:
        raise ValueError(NASTY)
    except ValueError:
        log.exception("failed %s", NASTY, extra={"name_of": NASTY, "nested": {NASTY: [NASTY]}})
    assert NASTY in only(stream)["event"]


@pytest.mark.slow
@given(st.text())
def test_any_text_stays_on_one_line_and_comes_back_the_same(text: str) -> None:
    record = logging.LogRecord("x", logging.INFO, "", 0, "event", None, None)
    record.value = "ok " + text
    line = JsonLine().format(record)
    assert "\n" not in line
    assert line.isascii()
    if redact("ok " + text) == "ok " + text:
        assert json.loads(line)["value"] == "ok " + text


def test_a_logger_called_with_wrong_arguments_still_writes() -> None:
    record = logging.LogRecord("x", logging.INFO, "", 0, "%d things", ("many",), None)
    assert json.loads(JsonLine().format(record))["event"] == "%d things"


def test_an_event_without_a_caller_looks_the_same(stream: io.StringIO) -> None:
    event(log, logging.INFO, "request", {"status": 200, "note": token("admin")})
    line = only(stream)
    assert line["status"] == 200
    assert CANARY not in json.dumps(line)


SECRETS = [
    f"token {token('admin')} was used",
    f"gwj_abcdefghijkl_{CANARY}",
    f"the token of a pod, eyJhbGciOiJSUzI1NiJ9.eyJhdWQiOlsiZ3B1d3JpZ2h0Il19.{CANARY}, is refused",
    f"postgresql://u:{CANARY}@db:5432/x",
    f"postgresql+psycopg://u:{CANARY}@/@db:5432/x",
    f"http://:{CANARY}@proxy",
    f"postgresql://u:{'x' * 250}{CANARY}@db/x",
    f"Authorization: Bearer {CANARY}",
    f"authorization=Basic {CANARY}",
    f"{{'authorization': '{CANARY}'}}",
    f"(b'authorization', b'Bearer {CANARY}')",
    f"host=db password={CANARY} user=u",
    f'{{"password": "{CANARY}"}}',
    f"PGPASSWORD={CANARY}",
    f"api-key: {CANARY}",
    f"[SQL: SELECT 1]\n[parameters: {{'a': '{CANARY}'}}]\n(Background)",
    f"ERROR: duplicate key\nDETAIL:  Key (x)=({CANARY}) already exists.",
]


@pytest.mark.parametrize("text", SECRETS)
def test_secrets_are_taken_out(stream: io.StringIO, text: str) -> None:
    log.error("failed: %s", text, extra={"value": text, "nested": [{"deep": text}]}, exc_info=RuntimeError(text))
    assert CANARY not in stream.getvalue()
    assert "redacted" in stream.getvalue() or "hidden" in stream.getvalue()


@pytest.mark.parametrize(
    "text",
    ["GET /api/v1/services", "gpuwright_requests_total", "a token is needed", "http://127.0.0.1:8080/x", "pass 3"],
)
def test_what_is_no_secret_stays(text: str) -> None:
    assert redact(text) == text


def test_a_secret_named_beforehand_is_taken_out_wherever_it_is() -> None:
    hide("sesame-open-442")
    assert redact("the word is sesame-open-442!") == "the word is [redacted]!"


def test_megabytes_of_text_are_cut() -> None:
    assert len(redact("://" + "a" * 5_000_000)) < 33_000


def test_everything_of_a_server_goes_to_the_log_as_json_and_the_canary_nowhere(start: Start) -> None:
    server = start(level="DEBUG")
    answers = [
        server.ask("GET", "/api/v1/boom"),
        server.ask("GET", "/api/v1/down"),
        server.ask("GET", f"/api/v1/{token('admin')}", User_Agent=token("admin")),
        server.ask("PUT", "/api/v1/services/a", "admin", json.dumps({"token": CANARY, "count": 1}).encode()),
        server.ask("PUT", "/api/v1/services/a", "admin", json.dumps({"name": token("admin")}).encode()),
        server.ask("GET", "/api/v1/services", "admin", X_Request_Id=token("admin") + "\x01"),
    ]
    half = server.client()
    half.send(request("GET", "/api/v1/watch?half=1"))
    assert half.ended()
    for answer in answers[:3]:
        assert CANARY.encode() not in answer.body
        assert answer.body.decode().isprintable()
    server.stop()
    text = server.log_path.read_text()
    assert CANARY not in text
    lines = server.log()  # every line is JSON
    failed = next(line for line in lines if line["event"] == "request_failed")
    assert "RuntimeError" in failed["exception"]
    assert failed["requestId"] == answers[0].headers["x-request-id"]
    assert all({"time", "level", "event"} <= line.keys() for line in lines)


def test_hostile_names_stay_within_their_line(server: Running) -> None:
    path = "/api/v1/services/%22%7D%0a%7B%22level%22%3A%22evil%22"
    server.ask("GET", path)
    server.ask("GET", "/api/v1/services/x", User_Agent='"}\\n{\x1b[31m'.replace("\x1b", "\x80"))
    assert not [line for line in server.log() if line["level"] == "evil"]


def test_node_reports_and_probes_are_left_to_the_metrics_at_level_info(start: Start) -> None:
    server = start()
    server.ask("POST", "/api/v1/nodes/n1/report", "node", b"{}")
    server.ask("GET", "/healthz", None)
    server.ask("GET", "/api/v1/services")
    server.stop()
    assert [line["path"] for line in server.log() if line["event"] == "request"] == ["/api/v1/services"]


@pytest.mark.slow
def test_a_flood_of_refusals_does_not_flood_the_log(start: Start) -> None:
    server = start(capacity={"peer_failures_burst": 1e6})
    client = server.client()
    for _ in range(600):
        client.send(request("GET", "/api/v1/services", None))
        assert client.answer().status == 401
    server.ask("GET", "/api/v1/services")
    server.stop()
    lines = [line for line in server.log() if line["event"] == "request"]
    assert len(lines) < 400
    assert sum(line.get("unloggedRefusals", 0) for line in lines) + len(lines) == 601


def test_uncaught_errors_warnings_and_threads_are_json_too() -> None:
    code = f"""
import threading, warnings
from app.http import logs
logs.configure("INFO", secrets=("postgresql://u:{CANARY}@db/x",))
warnings.warn("careful {CANARY}")
thread = threading.Thread(target=lambda: 1 / 0)
thread.start(); thread.join()
raise RuntimeError("the end {CANARY}")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert CANARY not in done.stderr
    events = [json.loads(line)["event"] for line in done.stderr.splitlines()]
    assert events[1:] == ["uncaught_in_thread", "uncaught"]
    assert "careful" in events[0]
