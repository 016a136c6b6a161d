"""Reads the course of a load from a folder of recordings, and deals it out to services.

Two kinds are read: `*-trace.csv`, a file for each client with `seconds,rate` a row in equal steps, and `*.jsonl`, a
line for each request with its `timestamp` in seconds and its `session_id`. Clients, or sessions, are dealt out to the
services in turn; each service's course is scaled so that its highest rate of the played hours is its declared one.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count, pairwise
from math import ceil, floor
from pathlib import Path

from simulation.limits import MOST_RATE_PER_SECOND, MOST_RATES_BYTES
from simulation.measure.load_tables import MOST_SECONDS, number_fault, parse_number
from simulation.measure.rates import RateCurve, make_shapes
from simulation.shapes import Shape

STEP_SECONDS = 600.0  # in which requests are counted
LEAST_SHARE = 0.01  # of the declared rate: a service is never without a request
LEAST_STEP_SECONDS = 1.0  # of a client's rows
EVEN_SHARE = 1e-6  # of a step: by so much a row may be beside its place
_SECONDS = f"{MOST_SECONDS:,.0f}, counted from the start"


class RecordingRefused(ValueError):
    """The folder holds no load that can be played; the message says why, and what is read."""


@dataclass(slots=True)
class RecordedLoad:
    """The rates that were recorded, by service and step; a step that is not there had none."""

    rates: list[dict[int, float]]  # by service
    step_seconds: float = STEP_SECONDS
    begin_seconds: float = 0.0  # of step 0
    step_source: Path | None = None  # the client's file that set the two
    sources: int = 0  # clients or sessions
    last: int = 0  # step of all
    bytes_read: int = 0
    sessions: dict[str, int] = field(default_factory=dict)  # the service of each

    def deal(self) -> int:
        """Returns the service of the next client or session."""
        self.sources += 1
        return (self.sources - 1) % len(self.rates)

    def add(self, service: int, step: int, rate: float) -> None:
        found = self.rates[service]
        found[step] = found.get(step, 0.0) + rate
        self.last = max(self.last, step)

    def list_steps(self, since: float, until: float) -> range:
        """Returns the steps that begin in this time, up to the last that was recorded."""
        first = ceil((since - self.begin_seconds) / self.step_seconds - EVEN_SHARE)
        last = floor((until - self.begin_seconds) / self.step_seconds + EVEN_SHARE)
        return range(max(0, first), min(last, self.last) + 1)


def read_recorded(
    folder: Path, declared: Mapping[str, float], from_hour: float, hours: float
) -> dict[str, Shape]:  # fmt: skip
    """Returns the course of each service for these hours of the recordings."""
    if not folder.is_dir():
        raise RecordingRefused(f"{folder} is not a folder; it must be one with *-trace.csv or *.jsonl")
    load = RecordedLoad([{} for _ in declared])
    for file in sorted(folder.glob("*-trace.csv")):
        _read_client(file, load)
    if not load.sources:
        for file in sorted(folder.glob("*.jsonl")):
            _read_requests(file, load)
    if not load.sources:
        raise RecordingRefused(f"{folder} has no *-trace.csv and no *.jsonl with requests")
    steps = load.list_steps(3600 * from_hour, 3600 * (from_hour + hours))
    seconds = [load.begin_seconds + load.step_seconds * step - 3600 * from_hour for step in steps]
    curves: dict[str, RateCurve] = {}
    for name, rates in zip(sorted(declared), load.rates, strict=True):
        highest = max((rates.get(step, 0.0) for step in steps), default=0.0)
        if highest <= 0:
            ends = (load.begin_seconds + load.step_seconds * load.last) / 3600
            raise RecordingRefused(
                f"{folder} has no load for {name} from hour {from_hour:g} to {from_hour + hours:g}; it has"
                f" {load.sources} clients or sessions for {len(declared)} services, and ends after {ends:.0f} hours"
            )
        shares = [max(LEAST_SHARE, rates.get(step, 0.0) / highest) for step in steps]
        curves[name] = RateCurve(seconds, [declared[name] * share for share in shares])
    return make_shapes(curves, declared)


def _read_client(file: Path, load: RecordedLoad) -> None:
    """Adds the rows of a client, whose steps must be those of the clients before it."""
    reader = csv.reader(_read_lines(file, load), strict=True)
    rows: list[tuple[int, float, float]] = []
    try:
        rows.extend((reader.line_num, *_parse_row(row, f"{file}:{reader.line_num}")) for row in reader if row)
    except csv.Error as error:
        raise RecordingRefused(f"{file}:{reader.line_num}: the row cannot be read: {error}") from None
    _check_steps(file, rows, load)
    service = load.deal()
    for _, at, rate in rows:
        load.add(service, round((at - load.begin_seconds) / load.step_seconds), rate)


def _check_steps(file: Path, rows: Sequence[tuple[int, float, float]], load: RecordedLoad) -> None:
    """Refuses rows that are not in the steps of the folder's first client: sums of such would go up and down."""
    if len(rows) < 2:
        raise RecordingRefused(f"{file} needs at least two rows that begin with seconds,rate; it has {len(rows)}")
    (line, first, _), (_, second, _) = rows[:2]
    if load.step_source is None:
        load.step_source, load.step_seconds = file, second - first
        if load.step_seconds < LEAST_STEP_SECONDS:
            raise RecordingRefused(
                f"{file}:{line + 1}: seconds {second:.12g} must be at least {LEAST_STEP_SECONDS:g} beyond {first:.12g}"
            )
        load.begin_seconds = first % load.step_seconds
    step = load.step_seconds
    rule = f"the rows of all clients are {step:.12g} seconds apart, as {load.step_source} begins"
    place = (first - load.begin_seconds) / step
    if abs(place - round(place)) > EVEN_SHARE:
        raise RecordingRefused(f"{file}:{line}: seconds {first:.12g} is between two steps; {rule}")
    for (_, before, _), (line, at, _) in pairwise(rows):
        if abs(at - before - step) > EVEN_SHARE * step:
            raise RecordingRefused(f"{file}:{line}: seconds {at:.12g} must be {before + step:.12g}; {rule}")


def _parse_row(row: Sequence[str], place: str) -> tuple[float, float]:
    if len(row) < 2:
        raise RecordingRefused(f"{place}: each row must begin with seconds,rate")
    at, rate = parse_number(row[0], MOST_SECONDS), parse_number(row[1], MOST_RATE_PER_SECOND)
    if at is None:
        raise RecordingRefused(f"{place}: {number_fault('seconds', row[0], _SECONDS)}")
    if rate is None:
        raise RecordingRefused(f"{place}: {number_fault('rate', row[1], f'{MOST_RATE_PER_SECOND:,}')}")
    return at, rate


def _read_requests(file: Path, load: RecordedLoad) -> None:
    """Counts the requests of a file, each for the service that its session was dealt to."""
    for number, line in zip(count(1), _read_lines(file, load)):
        if not line.strip():
            continue
        try:
            request = json.loads(line)
            given, session = str(request["timestamp"]), request.get("session_id")
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise RecordingRefused(f"{file}:{number}: a line needs a timestamp in seconds ({error})") from None
        at = parse_number(given, MOST_SECONDS)
        if at is None:
            raise RecordingRefused(f"{file}:{number}: {number_fault('timestamp', given, _SECONDS)}")
        service = load.sessions.get(str(session)) if session is not None else None
        if service is None:
            service = load.deal()
            if session is not None:
                load.sessions[str(session)] = service
        load.add(service, int(at // STEP_SECONDS), 1 / STEP_SECONDS)


def _read_lines(file: Path, load: RecordedLoad) -> Iterator[str]:
    """Yields the lines of a file. The folder's files together have a limit, also where a line has no end."""
    with file.open("rb") as opened:
        for number in count(1):
            line = opened.readline(MOST_RATES_BYTES - load.bytes_read + 1)
            load.bytes_read += len(line)
            if load.bytes_read > MOST_RATES_BYTES:
                raise RecordingRefused(
                    f"{file}:{number}: the recordings of {file.parent} are over {MOST_RATES_BYTES >> 20} MB; give fewer"
                )
            if not line:
                return
            try:
                yield line.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError as error:
                raise RecordingRefused(f"{file}:{number}: the line is not UTF-8 ({error.reason})") from None
