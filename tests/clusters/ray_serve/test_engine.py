"""Writes to a dashboard that refuses, lies, redirects, hangs up, or does later what it was asked."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest

from clusters.decided_bounds import AnnotatedBounds
from clusters.estate import WorkloadName
from clusters.ray_serve.adopting import QUIET_SECONDS, adopt, find_absence, note_numbers
from clusters.ray_serve.dashboard import RayDashboard, RayFailed, RayReading
from clusters.ray_serve.engine import LONGEST, RayEngine
from clusters.ray_serve.services import KIND, RayAdoption, RayServices
from clusters.scaling.adoption import WantedReplicas
from clusters.scaling.outcomes import OpenWrite
from tests.support.ports import free_port

NAME = WorkloadName("text", KIND, "Summarizer")
ADOPTION = RayAdoption(NAME, "summarizer", "auto", AnnotatedBounds(1, 8), None)
NOW = datetime(2026, 6, 1, tzinfo=UTC)


class Dashboard(ThreadingHTTPServer):
    """Shows one deployment; `answers` are what the next writes get instead of being done."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.target, self.answers = 2, list[tuple[int, bytes]]()
        self.shown: Any = None  # in place of what there is
        self.header: tuple[str, str] | None = None  # that answers have instead of their own
        self.drips = False  # a byte now and then, and never a whole answer
        self.asked: list[tuple[str, str]] = []  # method and path, or the token that came

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def show(self) -> Any:
        deployment = {
            "status": "HEALTHY", "message": "", "deployment_config": {"name": "Summarizer"},
            "target_num_replicas": self.target, "replicas": [{"state": "RUNNING"}] * self.target,
        }  # fmt: skip
        application = {
            "status": "RUNNING", "last_deployed_time_s": 7.5, "external_scaler_enabled": True,
            "deployments": {"Summarizer": deployment},
        }  # fmt: skip
        return self.shown if self.shown is not None else {"applications": {"text": application}}


class _Handler(BaseHTTPRequestHandler):
    server: Dashboard

    def do_GET(self) -> None:
        self.server.asked.append(("GET", self.path))
        self._answer(200, json.dumps(self.server.show()).encode())

    def do_POST(self) -> None:
        self.server.asked.append(("POST", self.path))
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if not self.server.answers:
            self.server.target = body["target_num_replicas"]
            self._answer(200, b'{"message": "received"}')
            return
        status, text = self.server.answers.pop(0)
        if status:
            self._answer(status, text)
        else:
            self.close_connection = True

    def _answer(self, status: int, body: bytes) -> None:
        if self.server.drips:
            self.wfile.write(b"HTTP/1.1 200 OK\r\n")
            while self.server.drips:
                with suppress(OSError):
                    self.wfile.write(b"X-Drip: 1\r\n")
                    self.wfile.flush()
                time.sleep(0.05)
            return
        self.send_response(status)
        if self.server.header:
            self.send_header(*self.server.header)
        if 300 <= status < 400:
            self.send_header("Location", f"{self.server.url}/elsewhere")
        if not (self.server.header and self.server.header[0] == "Content-Length"):
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Logs nothing."""


@pytest.fixture
def ray() -> Iterator[Dashboard]:
    with Dashboard() as server:
        Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        yield server
        server.shutdown()


def open_engine(ray: Dashboard, now: datetime = NOW) -> RayEngine:
    services = RayServices(ray.url, None, "ray", (ADOPTION,))
    return RayEngine(RayDashboard(ray.url, ""), services, lambda: now)


def decide(ray: Dashboard, replicas: int = 4) -> WantedReplicas:
    found = open_engine(ray).dashboard.read().deployments[NAME]
    return adopt(ADOPTION, found, ray.url, "").bound(replicas)


def test_a_write_is_done_once_and_read_back(ray: Dashboard) -> None:
    outcome = open_engine(ray).write(decide(ray), lambda version: version == NOW.isoformat())
    assert (outcome.state, ray.target) == ("written", 4)
    posts = [path for method, path in ray.asked if method == "POST"]
    assert posts == ["/api/v1/applications/text/deployments/Summarizer/scale"]


def test_nothing_is_sent_without_permission_or_where_something_has_changed(ray: Dashboard) -> None:
    wanted, engine = decide(ray), open_engine(ray)
    assert engine.write(wanted, lambda _: False).state == "untried"
    ray.target = 3
    assert "changed since it was decided" in engine.write(wanted, lambda _: True).reason
    ray.target = 2
    for change in ({"mode": "approve"}, {"bounds": AnnotatedBounds(1, 3)}, {"service": "other"}):
        services = replace(engine.services, adopted=(replace(ADOPTION, **change),))
        assert (
            "its entry in the file has changed"
            in replace(engine, services=services).write(wanted, lambda _: True).reason
        )
    held = replace(wanted, adopted=replace(wanted.adopted, hold="another set it"))
    assert engine.write(held, lambda _: True).reason == "another set it"
    assert "beyond its bounds or one step" in engine.write(replace(wanted, replicas=8), lambda _: True).reason
    ray.shown = {"applications": {}}
    assert "no such deployment" in engine.write(wanted, lambda _: True).reason
    assert all(method == "GET" for method, _ in ray.asked)


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        (404, b'{"error": "Application or Deployment not found"}', "404 Application or Deployment not found"),
        (412, b'{"error": "Deployment is deleted"}', "412 Deployment is deleted"),
        (401, b"Unauthorized", "401"),
        (307, b"", "it redirects to http://127.0.0.1"),
    ],
)
def test_what_ray_refuses_is_not_done_and_can_be_tried_again(
    ray: Dashboard, status: int, body: bytes, said: str
) -> None:
    wanted = decide(ray)
    ray.answers.append((status, body))
    outcome = open_engine(ray).write(wanted, lambda _: True)
    assert (outcome.state, outcome.is_refused, outcome.is_open) == ("not written", True, False)
    assert said in outcome.reason
    assert not any("elsewhere" in path for _, path in ray.asked)


@pytest.mark.parametrize("answer", [(0, b""), (503, b'{"error": "Internal Server Error"}'), (200, b"{}")])
def test_a_write_without_an_answer_stays_open_until_its_number_is_there_or_too_long_ago(
    ray: Dashboard, answer: tuple[int, bytes]
) -> None:
    wanted = decide(ray)
    ray.answers.append(answer)
    outcome = open_engine(ray).write(wanted, lambda _: True)
    assert (outcome.state, outcome.is_open) == ("unknown", True)
    tried = OpenWrite(NAME, wanted.adopted.generation, outcome.version, 4)
    assert open_engine(ray, NOW + timedelta(seconds=60)).settle(tried).is_open
    late = open_engine(ray, NOW + LONGEST).settle(tried)
    assert (late.state, late.is_refused, late.is_open) == ("not written", True, False)
    ray.target = 4
    assert open_engine(ray).settle(tried).state == "written"


def test_a_dashboard_that_is_away_or_says_something_else_is_a_sentence(ray: Dashboard) -> None:
    wanted = decide(ray)
    shown: Any
    for shown in ([], {"applications": 7}, {"applications": None}, "text"):
        ray.shown = shown
        with pytest.raises(RayFailed, match="has no applications of Ray Serve"):
            open_engine(ray).dashboard.read()
    away = replace(open_engine(ray), dashboard=RayDashboard(f"http://127.0.0.1:{free_port()}", ""))
    outcome = away.write(wanted, lambda _: True)
    assert (outcome.state, outcome.is_refused) == ("not written", True)
    assert "it cannot be reached" in outcome.reason
    assert away.settle(OpenWrite(NAME, 7, NOW.isoformat(), 4)).is_open
    ray.shown = {"applications": {"text": {"deployments": {"Summarizer": 7}}, "other": 7}}
    assert open_engine(ray).dashboard.read().deployments[NAME].target == 0


def test_a_number_that_another_set_is_let_alone_for_ten_minutes_and_ours_is_not(ray: Dashboard) -> None:
    found = open_engine(ray).dashboard.read().deployments[NAME]
    seen = note_numbers(RayReading({NAME: found}, NOW), {}, 0.0)
    assert seen[NAME].find_hold(0.0) == "", "nobody knows who set what was there before"
    seen = {NAME: replace(seen[NAME], wanted=frozenset({4}))}
    foreign = "somebody else set 3 replicas; nothing is written until 00:10 UTC"
    for target, hold in ((4, ""), (3, foreign)):
        changed = found._replace(target=target)
        later = note_numbers(RayReading({NAME: changed}, NOW), seen, 60.0)
        assert later[NAME].find_hold(61.0) == later[NAME].find_hold(300.0) == hold
        assert later[NAME].find_hold(60.0 + QUIET_SECONDS) == ""
        again = changed._replace(deployed_at=8)
        assert note_numbers(RayReading({NAME: again}, NOW), seen, 60.0)[NAME].find_hold(60.0) == ""


def test_a_dashboard_that_drips_or_sends_a_page_or_half_an_answer_is_left(
    ray: Dashboard, monkeypatch: pytest.MonkeyPatch
) -> None:
    ray.header = ("Content-Type", "text/html")
    with pytest.raises(RayFailed, match="a page for people"):
        open_engine(ray).dashboard.read()
    ray.header = ("Content-Length", "100000")
    with pytest.raises(RayFailed, match="cut off"):
        open_engine(ray).dashboard.read()
    ray.header, ray.drips = None, True
    monkeypatch.setattr("clusters.ray_serve.dashboard.ANSWER_SECONDS", 0.3)
    with pytest.raises(RayFailed, match="took longer than"):
        open_engine(ray).dashboard.read()
    ray.drips = False


def test_more_replicas_than_anybody_decides_on_have_a_sentence(ray: Dashboard) -> None:
    ray.target = 2
    found = open_engine(ray).dashboard.read().deployments[NAME]._replace(target=10**17)
    assert "more than 10,000 replicas" in find_absence(found)


def test_a_write_for_another_dashboard_is_not_sent(ray: Dashboard) -> None:
    wanted = decide(ray)
    other = replace(wanted, adopted=replace(wanted.adopted, uid="http://other:8265"))
    assert "its entry in the file has changed" in open_engine(ray).write(other, lambda _: True).reason
    assert ray.target == 2
