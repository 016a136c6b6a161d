"""Times pages of a long list, and its declaration."""

from __future__ import annotations

import http.client
import json
import time
from typing import Any

from cli.bench.api import document, find_percentile
from cli.bench.system import Say, System, own_system

SERVICES = 10_000
PAGE = 100
ROUNDS = 10


def measure(say: Say) -> dict[str, Any]:
    """Declares 10,000 services in a single request, then pages through them ten times."""
    with own_system(say) as system:
        declared = _apply(system, say)
        return declared | _pages(system, say)


def _apply(system: System, say: Say) -> dict[str, Any]:
    gpu = {"memoryGib": 80, "smCount": 108, "pricePerHour": 2, "idleW": 50, "maxW": 400, "clocksMhz": [1410]}
    variants = [{"name": "fp16", "accuracy": 0.76, "paramsM": 25.6}]
    latency = {"1": {"10": 21.0, "100": 7.9}, "8": {"10": 96.0, "100": 22.1}}
    profile = {"model": "resnet50", "variant": "fp16", "gpuType": "bench-80gb", "latencyMs": latency}
    system.request(
        "POST",
        "/api/v1/apply",
        [
            document("GpuType", "bench-80gb", gpu),
            document("Model", "resnet50", {"variants": variants}),
            document("Profile", "resnet50-fp16", profile | {"memoryGib": {"1": 1.2, "8": 1.9}}),
        ],
    )
    spec = {"model": "resnet50", "slo": {"latencyMs": 80, "percentile": 98}, "ratePerSecond": 900}
    services = [document("Service", f"search-{n:05d}", spec, f"tenant-{n % 50}") for n in range(SERVICES)]
    say(f"applying {SERVICES} services in a single request")
    started = time.monotonic()
    system.request("POST", "/api/v1/apply", services)
    first = time.monotonic() - started
    started = time.monotonic()
    system.request("POST", "/api/v1/apply", services)
    unchanged = time.monotonic() - started
    return {"apply_seconds": round(first, 2), "apply_unchanged_seconds": round(unchanged, 2)}


def _pages(system: System, say: Say) -> dict[str, Any]:
    say(f"reading pages of {PAGE}")
    connection = http.client.HTTPConnection(system.host, system.port, timeout=60)
    headers = {"Authorization": f"Bearer {system.admin_token}"}
    times: list[float] = []

    for _ in range(ROUNDS):
        cursor = ""
        while True:
            started = time.monotonic()
            connection.request("GET", f"/api/v1/services?limit={PAGE}&cursor={cursor}", headers=headers)
            body = connection.getresponse().read()
            times.append((time.monotonic() - started) * 1000)
            cursor = json.loads(body)["metadata"]["next"]
            if not cursor:
                break
    return {
        "pages": len(times),
        "page_p50_ms": find_percentile(times, 50),
        "page_p99_ms": find_percentile(times, 99),
    }
