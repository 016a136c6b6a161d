"""The console before 1,000 GPUs and 300 services: how large pages are, how soon they are painted, what axe says.

    python -m tests.proofs.console --shots docs/console

A month of history is made up behind it. Two nodes are silenced and a GPU is broken on purpose, so that there is
something to see. It fails where axe finds a violation, or the first paint of a page takes longer than a second.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psycopg
from playwright.sync_api import Browser, Page, sync_playwright

from cli.up.fleet import generate_fleet
from simulation.run import open_simulation
from tests.proofs import console_history
from tests.support.axe import violations
from tests.support.patience import patience
from tests.support.postgres import DatabaseServer, postgres_of_the_wheel
from tests.support.server import RunningServer, running_server

CHROMIUM = "/usr/bin/chromium"
LOOKS: dict[str, dict[str, Any]] = {
    "light": {"color_scheme": "light", "viewport": {"width": 1440, "height": 900}},
    "dark": {"color_scheme": "dark", "viewport": {"width": 1440, "height": 900}},
    "phone": {"color_scheme": "light", "viewport": {"width": 390, "height": 844}, "is_mobile": True},
}
SHOWN = ("service", "money")  # pages with pictures in the documentation, besides Fleet
VISITS = 7  # of each page in each look
MOST_PAINT_MS = 1000.0
SPOIL = """
    UPDATE node_state SET received_at = received_at - interval '190 seconds'
    WHERE node IN (SELECT node FROM node_state ORDER BY node LIMIT 2);
    UPDATE node_detail SET detail = jsonb_set(coalesce(detail, '{}'), '{gpus}',
        '[{"index": 1, "health": "failed", "reason": "xid_79", "fenced": true}]')
    WHERE node = (SELECT max(node) FROM node_detail);
"""


@dataclass(frozen=True, slots=True)
class Figures:
    """Of one page in one look; milliseconds are medians of the visits, from the click to what the browser says."""

    look: str
    path: str
    page_bytes: int
    sent_bytes: int
    answered_ms: float
    first_paint_ms: float
    slowest_paint_ms: float
    violations: tuple[str, ...]


def measured(server: RunningServer, shots: Path | None, visits: int, looks: Sequence[str]) -> list[Figures]:
    """Looks at each page, as a viewer who has just signed in."""
    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        found = [figures for look in looks for figures in _look(browser, server, look, shots, visits)]
        browser.close()
    return found


def _look(browser: Browser, server: RunningServer, look: str, shots: Path | None, visits: int) -> list[Figures]:
    context = browser.new_context(base_url=server.url, **LOOKS[look])
    context.set_default_timeout(1000 * patience())
    page = context.new_page()
    page.goto("/sign-in")
    page.get_by_label("Token").fill(server.token("viewer"))
    page.get_by_role("button", name="Sign in").click()
    page.wait_for_url(f"{server.url}/")
    page.goto("/services?sort=rate")
    service = page.locator("#found tbody th a").first.get_attribute("href") or ""
    page.goto(service)
    node = page.locator("#instances tbody th a").first.get_attribute("href") or ""
    page.goto("/plans")
    plan = page.locator("main p a").first.get_attribute("href") or ""
    paths = {
        "fleet": "/", "services": "/services", "service": service, "node": node, "plans": "/plans", "plan": plan,
        "money": "/money", "events": "/events",
    }  # fmt: skip
    found = [_measure(page, look, name, path, shots, visits) for name, path in paths.items()]
    context.close()
    return found


def _measure(page: Page, look: str, name: str, path: str, shots: Path | None, visits: int) -> Figures:
    times = [_visit(page, path) for _ in range(visits)]
    if shots is not None and (name == "fleet" or (look == "light" and name in SHOWN)):
        page.screenshot(path=shots / f"{look if name == 'fleet' else name}.png")
    broken = violations(page)
    size = len(page.request.get(path).body())
    paints = [visit["paint"] for visit in times]
    return Figures(
        look,
        path,
        size,
        int(times[-1]["sent"]),
        statistics.median(visit["answered"] for visit in times),
        statistics.median(paints),
        max(paints),
        tuple(rule for rule, _ in broken),
    )


PAINTED = """
    new Promise((done) => {
        const look = () => {
            const at = performance.getEntriesByType("navigation")[0];
            const paint = performance.getEntriesByName("first-paint")[0];
            if (!paint) return setTimeout(look, 10);
            done({ answered: at.responseEnd, sent: at.transferSize, paint: paint.startTime });
        };
        look();
    })
"""


def _visit(page: Page, path: str) -> dict[str, float]:
    page.goto(path)
    times: dict[str, float] = page.evaluate(PAINTED)
    return times


def town(
    postgres: DatabaseServer,
    gpus: int,
    services: int,
    seconds: float,
    shots: Path | None,
    visits: int = VISITS,
    looks: Sequence[str] = tuple(LOOKS),
) -> list[Figures]:
    """A fleet planned for so many seconds of virtual time, looked at."""
    url = postgres.create()
    with open_simulation(url, generate_fleet(gpus, services)) as simulation:
        simulation.planner.lead()
        console_history.leave_room(url)
        simulation.advance(seconds)
        at = simulation.clock.now()
    postgres.stands_at(url, at)
    console_history.fill(url, at)
    with psycopg.connect(url) as connection:
        connection.execute(SPOIL.encode())
    with running_server(url, GPUWRIGHT_DATABASE_DIRECT="1") as server:
        return measured(server, shots, visits, looks)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gpus", type=int, default=1000)
    parser.add_argument("--services", type=int, default=300)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--shots", type=Path)
    args = parser.parse_args()
    began = time.monotonic()
    with TemporaryDirectory() as folder, postgres_of_the_wheel(Path(folder)) as postgres:
        found = town(postgres, args.gpus, args.services, args.seconds, args.shots)
    for figures in found:
        print(json.dumps(asdict(figures)))
    print(f"{time.monotonic() - began:.0f} s")
    failures = failures_of(found)
    for failure in failures:
        print(f"FAILED: {failure}", file=sys.stderr)
    return 1 if failures else 0


def failures_of(found: Sequence[Figures]) -> list[str]:
    """Returns what breaks a rule, in words."""
    broken = [f"{one.look} {one.path}: axe finds {', '.join(one.violations)}" for one in found if one.violations]
    late = [one for one in found if one.first_paint_ms > MOST_PAINT_MS]
    return broken + [f"{one.look} {one.path}: first painted after {one.first_paint_ms:.0f} ms" for one in late]


if __name__ == "__main__":
    sys.exit(main())
