"""Runs `gpuwright up --llm` for some minutes and compares SLOs and costs in SQL with what was counted and paid.

python -m tests.proofs.language_models --minutes 10
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import psycopg

from app.store.database.database import Database
from app.store.fleet import service_hours
from tests.support.patience import patience
from tests.support.ports import free_port

SETTLED_SECONDS = 30.0  # after all services are served: answers from before are left out
QUARTER_SECONDS = 900
BOOKED_SECONDS = 240.0  # from the end of a quarter-hour until it is paid, at most

SHARES = """
    SELECT service, sum(answers), sum(errors), sum(slow), sum(paced), sum(pace_late), sum(tokens_in), sum(tokens_out)
    FROM service_load WHERE at > %s GROUP BY service ORDER BY service
"""
PROMISES = "SELECT name, CAST(spec #>> '{slo,percentile}' AS double precision) FROM object WHERE kind = 'Service'"
TENANTS = "SELECT name, tenant FROM object WHERE kind = 'Service'"
PAID = "SELECT service, sum(nano) FROM allocation WHERE service = ANY(%s) GROUP BY service"
COUNTED = "SELECT service, sum(tokens_out) FROM instance_minute WHERE service = ANY(%s) GROUP BY service"
IN_SQL = """
    SELECT service, sum(cost), sum(tokens), round(1000000 * sum(cost) / sum(tokens), 9) FROM report.cost_per_request
    WHERE tokens > 0 GROUP BY service
"""


@dataclass(frozen=True, slots=True)
class ServiceShares:
    """How a service kept its SLO, in percent, and the tokens that its gateway counted."""

    service: str
    percentile: float
    in_time: float
    kept_pace: float | None
    tokens_in: int
    tokens_out: int

    @property
    def is_kept(self) -> bool:
        return min(self.in_time, 100.0 if self.kept_pace is None else self.kept_pace) >= self.percentile


@contextmanager
def running(folder: Path) -> Iterator[str]:
    """Yields the database of a fleet of which all services are served; ends it afterwards."""
    screen = folder / "screen.txt"
    words = [sys.executable, "-m", "cli.main", "up", "--llm", "--data-dir", str(folder / "data")]
    with screen.open("w") as output:
        up = subprocess.Popen(
            [*words, "--port", str(free_port())], stdout=output, stderr=output, start_new_session=True,
            env={**os.environ, "GPUWRIGHT_CONFIG": str(folder / "config.json")},
        )  # fmt: skip
    try:
        began = time.monotonic()
        while "all 12 services are served" not in screen.read_text():
            if up.poll() is not None or time.monotonic() - began > patience():
                raise RuntimeError(screen.read_text())
            time.sleep(0.5)
        found = re.search(r"database +(\S+):(\d+)/gpuwright", screen.read_text())
        assert found
        password = (folder / "data" / "postgres.password").read_text().strip()
        yield f"postgresql://gpuwright:{password}@{found[1]}:{found[2]}/gpuwright"
    finally:
        up.send_signal(signal.SIGINT)
        up.wait(patience())


def shares_since(url: str, moment: datetime) -> list[ServiceShares]:
    """Returns every service's shares of answers in time since then."""
    with psycopg.connect(url) as connection:
        promised: dict[str, float] = dict(connection.execute(PROMISES).fetchall())
        rows: list[Any] = connection.execute(SHARES, [moment]).fetchall()
    found = []
    for service, *numbers in rows:
        answers, errors, slow, paced, pace_late, tokens_in, tokens_out = map(float, numbers)
        if answers + errors:
            in_time = 100 * (1 - (slow + errors) / (answers + errors))
            pace = 100 * (1 - pace_late / paced) if paced else None
            found.append(ServiceShares(service, promised[service], in_time, pace, int(tokens_in), int(tokens_out)))
    return found


def costs(url: str, services: list[str]) -> dict[str, tuple[float, float]]:
    """Returns the cost of a million tokens by service: as SQL reports it, and as the ledger and the minutes make it."""
    hour = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
    database = Database(url.replace("postgresql://", "postgresql+psycopg://"), pool_size=1, direct=True)
    try:
        with psycopg.connect(url) as connection:
            tenants: dict[str, str] = dict(connection.execute(TENANTS).fetchall())
        some = [(tenants[name], name) for name in services]
        database.write(partial(service_hours.roll_up, hour=hour, some=some))  # as done once the hour is over
    finally:
        database.close()
    with psycopg.connect(url) as connection:
        paid: dict[str, Any] = dict(connection.execute(PAID, [services]).fetchall())
        counted: dict[str, Any] = dict(connection.execute(COUNTED, [services]).fetchall())
        reported: list[Any] = connection.execute(IN_SQL).fetchall()
    return {
        service: (float(price), float(paid[service]) / 1e9 / float(counted[service]) * 1e6)
        for service, _, _, price in reported
        if service in paid
    }


def prove(minutes: float) -> int:
    """Runs, prints what was found, and returns how many promises were missed or costs differ."""
    with tempfile.TemporaryDirectory(prefix="gpuwright-llm-") as name:
        Path(name).chmod(0o755)
        with running(Path(name)) as url:
            time.sleep(SETTLED_SECONDS)
            began = datetime.now(UTC)
            time.sleep(60 * minutes)
            found = shares_since(url, began)
            missed = sum(not each.is_kept for each in found)
            for each in found:
                pace = "" if each.kept_pace is None else f", {each.kept_pace:.2f} % kept the pace"
                tokens = f", {each.tokens_in} tokens in, {each.tokens_out} out" if each.tokens_out else ""
                print(
                    f"{each.service}: {each.in_time:.2f} % in time of {each.percentile:g} %{pace}{tokens}", flush=True
                )
            time.sleep(QUARTER_SECONDS - time.time() % QUARTER_SECONDS + BOOKED_SECONDS)
            for service, (in_sql, by_hand) in costs(url, [each.service for each in found if each.tokens_out]).items():
                print(f"{service}: {in_sql:.6f} a million tokens in SQL, {by_hand:.6f} by the ledger", flush=True)
                missed += abs(in_sql - by_hand) > 1e-6 * by_hand
    return missed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    return prove(parser.parse_args().minutes)


if __name__ == "__main__":
    sys.exit(main())
