"""FAILURES 20: 10,000 services and 10,000 GPUs declared through the API; pages and memory stay small."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from simulation.real.open_loop import percentile
from tests.proofs.fuzz import UNLIMITED
from tests.support.caller import Caller
from tests.support.figures import own_rss_mb, rss_mb
from tests.support.patience import patience
from tests.support.postgres import DatabaseServer
from tests.support.server import RunningServer, running_server
from tests.support.soak import scaled
from tests.support.world import gpu_type, model, node, profile, service

SERVICES = 10_000
NODES = 2_500
GPUS_EACH = 4
TENANTS = 20
MODELS = 50
AT_ONCE = 2_500  # documents an apply: well under its 500,000 values and 16 MiB
READS = scaled(400, 60)
GUARD_MS = 30_000  # against a scan of everything; the figures themselves are printed


@pytest.fixture(scope="module")
def server(postgres: DatabaseServer) -> Iterator[RunningServer]:
    url = postgres.create()
    with running_server(url, GPUWRIGHT_DATABASE_DIRECT="1", **UNLIMITED) as running:
        caller = Caller(running.port, running.admin_token, timeout_seconds=patience())
        small = own_rss_mb(running.process.pid)
        base = [gpu_type()] + [model(f"m{n}") for n in range(MODELS)] + [profile(f"m{n}") for n in range(MODELS)]
        nodes = [node(f"node-{n:05d}", gpus=GPUS_EACH) for n in range(NODES)]
        services = [service(f"s{n:05d}", f"t{n % TENANTS}", f"m{n % MODELS}") for n in range(SERVICES)]
        begun = time.monotonic()
        for start in range(0, SERVICES, AT_ONCE):
            documents = (base + nodes if start == 0 else []) + services[start : start + AT_ONCE]
            reply = caller.ask("POST", "/api/v1/apply", documents)
            assert reply.status == 200, reply.text[:2000]
        print(
            f"\n{SERVICES} services and {NODES * GPUS_EACH} GPUs applied in {time.monotonic() - begun:.1f} s; "
            f"server {small:.0f} -> {own_rss_mb(running.process.pid):.0f} MB, "
            f"with its readers {rss_mb(running.process.pid):.0f} MB"
        )
        caller.close()
        yield running
    postgres.drop(url)


def timed(server: RunningServer, paths: list[str]) -> list[float]:
    caller = Caller(server.port, server.admin_token)
    times_ms = []
    for path in paths:
        begun = time.perf_counter()
        assert caller.ask("GET", path).status == 200
        times_ms.append((time.perf_counter() - begun) * 1000)
    caller.close()
    return times_ms


def pages(server: RunningServer, path: str, limit: int) -> Iterator[list[dict[str, object]]]:
    caller = Caller(server.port, server.admin_token)
    cursor = ""
    joint = "&" if "?" in path else "?"
    while cursor is not None:
        reply = caller.ask("GET", f"{path}{joint}limit={limit}" + (f"&cursor={cursor}" if cursor else ""))
        assert reply.status == 200, reply.text
        yield reply.json["items"]
        cursor = reply.json["metadata"]["next"]
    caller.close()


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_pages_of_ten_thousand_services_are_answered_soon_and_hold_each_of_them_once(server: RunningServer) -> None:
    names = [
        (item["metadata"]["tenant"], item["metadata"]["name"])  # type: ignore[index]
        for page in pages(server, "/api/v1/services", 500)
        for item in page
    ]
    assert len(names) == len(set(names)) == SERVICES
    assert names == sorted(names)
    before = own_rss_mb(server.process.pid)
    for what, path in {
        "a page of 100": "/api/v1/services?limit=100",
        "of one tenant": "/api/v1/services?limit=100&tenant=t7",
        "of one model": "/api/v1/services?limit=100&fieldSelector=spec.model%3Dm7",
        "100 nodes": "/api/v1/nodes?limit=100",
        "one service": "/api/v1/services/t7/s00007",
    }.items():
        times_ms = timed(server, [path] * READS)
        print(f"\n{what}: p50 {percentile(times_ms, 50):.1f} ms, p99 {percentile(times_ms, 99):.1f} ms")
        assert percentile(times_ms, 99) < GUARD_MS
    grown = own_rss_mb(server.process.pid) - before
    print(f"server {own_rss_mb(server.process.pid):.0f} MB, {grown:+.0f} MB over {5 * READS} reads")
    assert grown < 50


@pytest.mark.slow
def test_ten_thousand_gpus_are_all_there(server: RunningServer) -> None:
    gpus = sum(item["spec"]["gpus"] for page in pages(server, "/api/v1/nodes", 500) for item in page)  # type: ignore[index]
    assert gpus == NODES * GPUS_EACH


@pytest.mark.slow
def test_no_caller_gets_more_than_a_page(server: RunningServer) -> None:
    assert server.request("GET", "/api/v1/services?limit=501").status == 422
    assert server.request("GET", "/api/v1/services?limit=0").status == 422
    assert len(server.request("GET", "/api/v1/services").json["items"]) == 100


@pytest.mark.slow
def test_an_apply_over_its_limits_is_refused_whole(server: RunningServer) -> None:
    """500,000 values are more than 25,000 services hold; what is refused changes nothing."""
    version = server.request("GET", "/readyz").json["resourceVersion"]
    many = [service(f"over-{n}", "t0", "m0") for n in range(40_000)]
    reply = Caller(server.port, server.admin_token, timeout_seconds=patience()).ask("POST", "/api/v1/apply", many)
    assert reply.status == 413
    assert server.request("GET", "/readyz").json["resourceVersion"] == version


@pytest.mark.slow
def test_a_small_change_in_a_large_world_stays_small(server: RunningServer) -> None:
    """One service's write reads and writes what concerns it, however many others there are."""
    caller = Caller(server.port, server.admin_token)
    times_ms = []
    for number in range(READS):
        body = service("s00007", "t7", "m7", ratePerSecond=number + 1)
        begun = time.perf_counter()
        assert caller.ask("PUT", "/api/v1/services/t7/s00007", body).status == 200
        times_ms.append((time.perf_counter() - begun) * 1000)
    caller.close()
    print(f"\na PUT: p50 {percentile(times_ms, 50):.1f} ms, p99 {percentile(times_ms, 99):.1f} ms")
    assert percentile(times_ms, 99) < GUARD_MS
