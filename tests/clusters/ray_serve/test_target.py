"""Writes to a dashboard that refuses, lies, redirects, hangs up, or does later what it was asked."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest

from clusters.decided_bounds import AnnotatedBounds
from clusters.estate import WorkloadName
from clusters.ray_serve.adopting import QUIET_SECONDS, adopt, find_ray_hold, note_sightings
from clusters.ray_serve.dashboard import RayDashboard, RayFailed, RayReading
from clusters.ray_serve.services import KIND, RayAdoption, RayServices
from clusters.ray_serve.target import LONGEST, RayTarget
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
        self.send_response(status)
        if 300 <= status < 400:
            self.send_header("Location", f"{self.server.url}/elsewhere")
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


def open_target(ray: Dashboard, now: datetime = NOW) -> RayTarget:
    services = RayServices(ray.url, None, "ray", (ADOPTION,))
    return RayTarget(RayDashboard(ray.url, ""), services, lambda: now)


def decide(ray: Dashboard, replicas: int = 4) -> WantedReplicas:
    found = open_target(ray).dashboard.read().deployments[NAME]
    return adopt(ADOPTION, found, ray.url, "").bound(replicas)


def test_a_write_is_done_once_and_read_back(ray: Dashboard) -> None:
    outcome = open_target(ray).write(decide(ray), lambda version: version == NOW.isoformat())
    assert (outcome.state, ray.target) == ("written", 4)
    posts = [path for method, path in ray.asked if method == "POST"]
    assert posts == ["/api/v1/applications/text/deployments/Summarizer/scale"]


def test_nothing_is_sent_without_permission_or_where_something_has_changed(ray: Dashboard) -> None:
    wanted, target = decide(ray), open_target(ray)
    assert target.write(wanted, lambda _: False).state == "untried"
    ray.target = 3
    assert "changed since it was decided" in target.write(wanted, lambda _: True).reason
    ray.target = 2
    for change in ({"mode": "approve"}, {"bounds": AnnotatedBounds(1, 3)}, {"service": "other"}):
        services = replace(target.services, adopted=(replace(ADOPTION, **change),))
        assert (
            "its entry in the file has changed"
            in replace(target, services=services).write(wanted, lambda _: True).reason
        )
    held = replace(wanted, adopted=replace(wanted.adopted, hold="another set it"))
    assert target.write(held, lambda _: True).reason == "another set it"
    assert "beyond its bounds or one step" in target.write(replace(wanted, replicas=8), lambda _: True).reason
    ray.shown = {"applications": {}}
    assert "no such deployment" in target.write(wanted, lambda _: True).reason
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
    outcome = open_target(ray).write(wanted, lambda _: True)
    assert (outcome.state, outcome.is_refused, outcome.is_open) == ("not written", True, False)
    assert said in outcome.reason
    assert not any("elsewhere" in path for _, path in ray.asked)


@pytest.mark.parametrize("answer", [(0, b""), (503, b'{"error": "Internal Server Error"}'), (200, b"{}")])
def test_a_write_without_an_answer_stays_open_until_its_number_is_there_or_too_long_ago(
    ray: Dashboard, answer: tuple[int, bytes]
) -> None:
    wanted = decide(ray)
    ray.answers.append(answer)
    outcome = open_target(ray).write(wanted, lambda _: True)
    assert (outcome.state, outcome.is_open) == ("unknown", True)
    tried = OpenWrite(NAME, wanted.adopted.generation, outcome.version, 4)
    assert open_target(ray, NOW + timedelta(seconds=60)).settle(tried).is_open
    late = open_target(ray, NOW + LONGEST).settle(tried)
    assert (late.state, late.is_refused, late.is_open) == ("not written", True, False)
    ray.target = 4
    assert open_target(ray).settle(tried).state == "written"


def test_a_dashboard_that_is_away_or_says_something_else_is_a_sentence(ray: Dashboard) -> None:
    wanted = decide(ray)
    shown: Any
    for shown in ([], {"applications": 7}, {"applications": None}, "text"):
        ray.shown = shown
        with pytest.raises(RayFailed, match="has no applications of Ray Serve"):
            open_target(ray).dashboard.read()
    away = replace(open_target(ray), dashboard=RayDashboard(f"http://127.0.0.1:{free_port()}", ""))
    outcome = away.write(wanted, lambda _: True)
    assert (outcome.state, outcome.is_refused) == ("not written", True)
    assert "it cannot be reached" in outcome.reason
    assert away.settle(OpenWrite(NAME, 7, NOW.isoformat(), 4)).is_open
    ray.shown = {"applications": {"text": {"deployments": {"Summarizer": 7}}, "other": 7}}
    assert open_target(ray).dashboard.read().deployments[NAME].target == 0


def test_a_number_that_another_set_is_let_alone_for_ten_minutes_and_ours_is_not(ray: Dashboard) -> None:
    found = open_target(ray).dashboard.read().deployments[NAME]
    seen = note_sightings(RayReading({NAME: found}, None), {}, 0.0)
    assert find_ray_hold(found, seen[NAME], 0.0) == "", "nobody knows who set what was there before"
    seen = {NAME: replace(seen[NAME], wanted=frozenset({4}))}
    for target, is_held in ((4, False), (3, True)):
        changed = found._replace(target=target)
        later = note_sightings(RayReading({NAME: changed}, None), seen, 60.0)
        assert bool(find_ray_hold(changed, later[NAME], 60.0)) is is_held
        assert find_ray_hold(changed, later[NAME], 60.0 + QUIET_SECONDS) == ""
        again = changed._replace(deployed_at=8)
        assert find_ray_hold(again, note_sightings(RayReading({NAME: again}, None), seen, 60.0)[NAME], 60.0) == ""
