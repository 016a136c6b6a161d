"""A live fleet of `gpuwright up`: what it holds, plans and changes, beside fresh plans and bounds; then a restart.

    python -m tests.proofs.live --minutes 60 [--planner hetsev] [--json]

Nothing is injected. Every ten seconds it reads the overview; at minutes 5, 15, 25 and so on it keeps the record of the
plan in force, for whose rates it searches a fresh plan after the end. The restart has a busy loop for each core beside
it; it is over once every service is served as planned and no rollout is under way.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import Any

from app.control.answer.replay import read_record
from app.control.formulate.formulate import formulate
from simulation.limits import WORK
from simulation.measure.fresh import FreshCost, cheapest, search_fresh
from tests.support.patience import patience
from tests.support.ports import free_port

WARM_UP_MINUTES = 5.0
SAMPLE_MINUTES = 10.0
POLL_SECONDS = 10.0
START_SECONDS = 300.0
SETTLED_SECONDS = 300.0  # must be enough after a restart
CHANGES = ("start", "stop", "move", "resize", "retune")


@dataclass(frozen=True, slots=True)
class Look:
    """The fleet at one moment, as its overview shows it."""

    minute: float
    generation: int
    held: float
    planned: float
    unserved: tuple[str, ...]  # services that no copy serves, or whose plan leaves load unserved
    is_rolling: bool


@dataclass
class LiveFigures:
    """What was seen between the end of the warm-up and the end of the run; prices are an hour's."""

    minutes: float
    held: float
    planned: float
    fresh: float
    bound: float
    held_over_fresh: float
    held_over_bound: float
    plans_per_hour: float
    changes_per_hour: float  # starts, moves and resizes
    changes: dict[str, int]
    looks: int
    looks_with_unserved: int
    attained: dict[str, float]  # in the last hour, in percent
    missed: dict[str, float]  # below their percentile
    restart: dict[str, Any] = field(default_factory=dict)


class LiveFleet:
    """A running `gpuwright up` on a folder of data; it may be ended and started again."""

    def __init__(self, folder: Path, arguments: Sequence[str]) -> None:
        self.folder = folder
        self.data = folder / "data"
        self.url = ""
        self.began = time.monotonic()
        self._arguments = tuple(arguments)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        words = [sys.executable, "-m", "cli.main", "up", "--data-dir", str(self.data), "--port", str(port)]
        variables = {**os.environ, "GPUWRIGHT_CONFIG": str(self.folder / "config.json")}
        with (self.folder / "screen.txt").open("ab") as screen:
            self._process = subprocess.Popen([*words, *self._arguments], stdout=screen, stderr=screen, env=variables)

    def end(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)
            self._process.wait(START_SECONDS)
            self._process = None

    def look(self) -> Look | None:
        """Returns how the fleet is; None while there is no answer or no plan."""
        try:
            seen = json.loads(self.get("/api/v1/overview"))
        except (OSError, urllib.error.URLError):
            return None
        plan = seen["plan"]
        if plan is None or plan["resourceCost"] is None:
            return None
        lacking = [line["service"] for line in seen["services"] if not line["routed"] or line["unservedPerSecond"]]
        return Look(
            (time.monotonic() - self.began) / 60, plan["generation"], seen["money"]["heldPerHour"],
            plan["resourceCost"], tuple(lacking), plan["state"] == "rolling",
        )  # fmt: skip

    def get(self, path: str) -> bytes:
        request = urllib.request.Request(self.url + path)
        request.add_header("Authorization", f"Bearer {(self.data / 'admin.token').read_text().strip()}")
        with urllib.request.urlopen(request, timeout=patience()) as answer:
            return bytes(answer.read())

    def items(self, path: str) -> Iterator[dict[str, Any]]:
        cursor = ""
        while True:
            page = json.loads(self.get(f"{path}?limit=100{cursor}"))
            yield from page["items"]
            if not page["metadata"].get("next"):
                return
            cursor = f"&cursor={page['metadata']['next']}"


def await_look(fleet: LiveFleet, is_so: Callable[[Look], bool], seconds: float) -> Look | None:
    """Returns the first look of this kind; None if there was none in this time."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if (look := fleet.look()) and is_so(look):
            return look
        time.sleep(1.0)
    return None


def watched(fleet: LiveFleet, minutes: float) -> tuple[list[Look], list[bytes]]:
    """Watches the fleet for so long; returns its looks, and the records of plans in force."""
    looks, records = [], []
    next_record = WARM_UP_MINUTES
    while (now := (time.monotonic() - fleet.began) / 60) < minutes:
        if look := fleet.look():
            looks.append(look)
            if now >= next_record:
                records.append(fleet.get(f"/api/v1/plans/{look.generation}/record"))
                next_record += SAMPLE_MINUTES
        time.sleep(POLL_SECONDS)
    return looks, records


def figures(fleet: LiveFleet, looks: Sequence[Look], fresh: Sequence[FreshCost]) -> LiveFigures:
    """Adds up what was seen after the warm-up."""
    counted = [look for look in looks if look.minute >= WARM_UP_MINUTES]
    hours = (counted[-1].minute - counted[0].minute) / 60
    since = counted[0].generation
    plans = [plan for plan in fleet.items("/api/v1/plans") if plan["generation"] > since]
    changes: Counter[str] = Counter()
    for plan in plans:
        changes.update({name: (plan["changes"] or {}).get(name, 0) for name in CHANGES})
    promises = json.loads(fleet.get("/api/v1/slo"))["items"]
    attained = {line["service"]: line["attainment"]["1h"] for line in promises if line["attainment"].get("1h")}
    percentiles = {line["service"]: line["percentile"] for line in promises}
    attained = {name: 100 * share for name, share in attained.items()}
    missed = {name: share for name, share in attained.items() if share < percentiles[name]}
    held, planned = fmean(look.held for look in counted), fmean(look.planned for look in counted)
    of_fresh, of_bound = fmean(cost.per_hour for cost in fresh), fmean(cost.bound_per_hour for cost in fresh)
    return LiveFigures(
        60 * hours, held, planned, of_fresh, of_bound, held / of_fresh, held / of_bound, len(plans) / hours,
        (changes["start"] + changes["move"] + changes["resize"]) / hours, dict(changes), len(counted),
        sum(bool(look.unserved) for look in counted), attained, missed,
    )  # fmt: skip


def fresh_cost(record: bytes) -> FreshCost:
    """Searches a fresh plan for the rates of a recorded plan."""
    found = read_record(record)
    problem = formulate(found.snapshot).problem
    return cheapest(problem, search_fresh(problem, WORK, 0), [found.plan] if found.plan else [])


@contextmanager
def busy_cores() -> Iterator[None]:
    """Keeps every core busy meanwhile."""
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(os.cpu_count() or 1)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def restarted(fleet: LiveFleet) -> dict[str, Any]:
    """Ends the fleet under full load, starts it again, and says how soon it was as before."""
    before = fleet.look()
    assert before is not None
    with busy_cores():
        fleet.end()
        began = time.monotonic()
        fleet.start()
        found = await_look(fleet, lambda look: not look.unserved and not look.is_rolling, 2 * SETTLED_SECONDS)
    return {
        "settledSeconds": time.monotonic() - began if found else None,
        "generations": [before.generation, found.generation if found else None],
        "held": [before.held, found.held if found else None],
        "lost": found is not None and found.generation < before.generation,
    }


def run(minutes: float, arguments: Sequence[str], *, restarts: bool = True) -> LiveFigures:
    with TemporaryDirectory(prefix="gpuwright-live-") as folder:
        fleet = LiveFleet(Path(folder), arguments)
        try:
            fleet.start()
            looks, records = watched(fleet, minutes)
            if not records:
                raise SystemExit((Path(folder) / "screen.txt").read_text()[-2000:])
            seen = figures(fleet, looks, [fresh_cost(record) for record in records])
            if restarts:
                seen.restart = restarted(fleet)
        finally:
            fleet.end()
    return seen


def _say(seen: LiveFigures) -> None:
    rows: Mapping[str, object] = asdict(seen)
    for name, value in rows.items():
        print(f"{name}: {f'{value:.3f}' if isinstance(value, float) else value}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--planner", help="of the policy; default joint")
    parser.add_argument("--no-restart", action="store_true")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    arguments = ["--planner", args.planner] if args.planner else []
    seen = run(args.minutes, arguments, restarts=not args.no_restart)
    if args.json:
        print(json.dumps(asdict(seen)))
    else:
        _say(seen)
    return 0


if __name__ == "__main__":
    sys.exit(main())
