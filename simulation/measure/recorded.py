"""Reads the course of a load from a folder of recordings, and deals it out to services.

Two kinds are read: `*-trace.csv`, a file for each client with `seconds,rate` a row in equal steps, and `*.jsonl`, a
line for each request with its `timestamp` in seconds and its `session_id`. Clients, or sessions, are dealt out to the
services in turn; each service's course is scaled so that its highest rate of the played hours is its declared one.
"""

from __future__ import annotations

import csv
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import count, islice
from pathlib import Path

from simulation.measure.rates import RateCurve, make_shapes
from simulation.shapes import Shape

STEP_SECONDS = 600.0  # in which requests are counted
LEAST_SHARE = 0.01  # of the declared rate: a service is never without a request


class RecordingRefused(ValueError):
    """The folder holds no load that can be played; the message says why, and what is read."""


def read_recorded(
    folder: Path, declared: Mapping[str, float], from_hour: float, hours: float
) -> dict[str, Shape]:  # fmt: skip
    """Returns the course of each service for these hours of the recordings."""
    series = list(_read_clients(folder)) or list(_read_sessions(folder))
    if not series:
        raise RecordingRefused(f"{folder} has no *-trace.csv and no *.jsonl with requests")
    names, since, until = sorted(declared), 3600 * from_hour, 3600 * (from_hour + hours)
    curves: dict[str, RateCurve] = {}
    for number, name in enumerate(names):
        total: dict[float, float] = defaultdict(float)
        for client in islice(series, number, None, len(names)):
            for at, rate in client.items():
                if since <= at <= until:
                    total[at - since] += rate
        highest = max(total.values(), default=0.0)
        if highest <= 0:
            last = max((max(client, default=0.0) for client in series), default=0.0) / 3600
            raise RecordingRefused(
                f"{folder} has no load for {name} from hour {from_hour:g} to {from_hour + hours:g}; it has"
                f" {len(series)} clients or sessions for {len(names)} services, and ends after {last:.0f} hours"
            )
        curves[name] = RateCurve(
            sorted(total), [declared[name] * max(LEAST_SHARE, total[at] / highest) for at in sorted(total)]
        )
    return make_shapes(curves, declared)


def _read_clients(folder: Path) -> Iterator[dict[float, float]]:
    for file in sorted(folder.glob("*-trace.csv")):
        with file.open(newline="", encoding="utf-8") as rows:
            try:
                yield {float(row[0]): float(row[1]) for row in csv.reader(rows) if row}
            except (ValueError, IndexError) as error:
                raise RecordingRefused(f"{file}: each row must begin with seconds,rate ({error})") from None


def _read_sessions(folder: Path) -> Iterator[dict[float, float]]:
    for file in sorted(folder.glob("*.jsonl")):
        sessions: dict[str, list[float]] = defaultdict(list)
        for number, line in zip(count(1), file.read_text(encoding="utf-8").splitlines()):
            try:
                request = json.loads(line)
                sessions[str(request.get("session_id", number))].append(float(request["timestamp"]))
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise RecordingRefused(f"{file}:{number}: a line needs a timestamp in seconds ({error})") from None
        last = max((max(times) for times in sessions.values()), default=0.0)
        for times in sessions.values():
            yield _count(times, last)


def _count(times: Sequence[float], last: float) -> dict[float, float]:
    rates = {STEP_SECONDS * step: 0.0 for step in range(int(last // STEP_SECONDS) + 1)}
    for at in times:
        rates[STEP_SECONDS * (at // STEP_SECONDS)] += 1 / STEP_SECONDS
    return rates
