"""What Prometheus sees: routes by template, refusals by reason, and no label an attacker can choose."""

from __future__ import annotations

import pytest

from app.http import metrics
from tests.app.http.conftest import Start


def test_requests_are_counted_by_the_template_of_their_route(start: Start) -> None:
    server = start()
    for name in ("a", "b", "c"):
        server.ask("GET", f"/api/v1/services/{name}")
        server.ask("GET", f"/nowhere/{name}")
        server.ask("GET", f"/api/v1/jobs/{name}")
        server.ask("GET", f"/api/v1/services/{name}", None)
    server.ask("PUT", "/api/v1/services/a", "admin", b"x" * 1_100_000)
    page = server.ask("GET", "/metrics").body.decode()
    for line in (
        'gpuwright_requests_total{method="GET",route="/api/v1/services/{name}",status="404"} 3.0',
        'gpuwright_requests_total{method="GET",route="/api/v1/jobs/{name}",status="200"} 3.0',
        'gpuwright_requests_total{method="GET",route="(none)",status="404"} 3.0',
        'gpuwright_requests_total{method="GET",route="(gate)",status="401"} 3.0',
        'gpuwright_request_seconds_count{route="/api/v1/services/{name}"} 3.0',
        'gpuwright_refused_bodies_total{reason="too-large"} 1.0',
        "gpuwright_failed_authentications_total 3.0",
        "gpuwright_requests_in_flight 1.0",
        "gpuwright_connections 1.0",
    ):
        assert line in page
    assert "nowhere" not in page
    assert all(line.startswith(("gpuwright_", "#")) for line in page.splitlines())


def test_an_invented_method_gets_no_label_of_its_own(start: Start) -> None:
    server = start()
    for method in ("PROPFIND", "MKCOL", "LOCK"):
        server.ask(method, "/api/v1/services")
    page = server.ask("GET", "/metrics").body.decode()
    assert 'method="other"' in page
    assert "PROPFIND" not in page


def test_the_database_pool_is_shown_as_it_is_when_asked() -> None:
    metrics.watch_pool(metrics.POOL, lambda: 10, lambda: 3)
    page = metrics.render()[0].decode()
    assert 'gpuwright_database_pool_connections{state="size"} 10.0' in page
    assert 'gpuwright_database_pool_connections{state="in_use"} 3.0' in page


@pytest.mark.parametrize(
    "accept",
    ["application/openmetrics-text; version=1.0.0,text/plain;q=0.5", "application/openmetrics-text; version=none"],
)
def test_openmetrics_names_a_request_of_each_bucket_and_bounds_what_callers_choose(start: Start, accept: str) -> None:
    server = start()
    server.ask("GET", "/api/v1/services/a", X_Request_Id="a" * 128)
    answer = server.ask("GET", "/metrics", Accept=accept)
    assert answer.headers["content-type"] == "application/openmetrics-text; version=1.0.0; charset=utf-8"
    page = answer.body.decode()
    assert page.endswith("# EOF\n")
    assert f'# {{request_id="{"a" * 64}"}} ' in page


@pytest.mark.parametrize("accept", ["text/plain;version=0.0.4", "*/*", "", "\u00ff;;,=,"])
def test_others_get_text_without_exemplars(start: Start, accept: str) -> None:
    server = start()
    server.ask("GET", "/api/v1/services/a")
    answer = server.ask("GET", "/metrics", Accept=accept)
    assert answer.headers["content-type"].startswith("text/plain")
    assert b"request_id" not in answer.body
