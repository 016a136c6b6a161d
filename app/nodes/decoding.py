"""Decodes a report that can be stored; refuses every other one by name, and counts the refusals."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

import msgspec

from agents.contract.fields import CONTRACT
from agents.contract.reports import Report, find_misnamed
from app.manifests.faults import ManifestFault
from app.nodes import metrics
from app.problem import HttpProblem

EARLIEST_YEAR, LATEST_YEAR = 1900, 2900  # any clock's; beyond them neither Postgres nor Python can hold every moment

_DECODER = msgspec.json.Decoder(Report)


def decode_report(raw: bytes) -> Report:
    """Returns the report; 422 for anything that must not reach the database."""
    try:
        report = _DECODER.decode(raw)
    except msgspec.ValidationError as error:
        message, _, path = str(error).partition(" - at `$")
        raise refuse(_reason(message), path.strip("`.") or "report", message) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        # NaN and Infinity are not JSON; they get a reason of their own.
        reason = "not_finite" if any(word in raw for word in (b"NaN", b"Infinity")) else "malformed"
        raise refuse(reason, "report", str(error)) from None
    except RecursionError:
        raise refuse("malformed", "report", "nested too deeply") from None
    _check(report)
    return report


def refuse(reason: str, field: str, message: str) -> HttpProblem:
    """Returns the refusal of a whole report, and counts it."""
    metrics.REFUSED.labels(reason).inc()
    return HttpProblem(
        "invalid",
        f"the report was not stored ({reason}); this server understands contract version {CONTRACT}",
        faults=[ManifestFault(document="report", field=field, message=message)],
    )


def _reason(message: str) -> str:
    return "out_of_range" if any(word in message for word in ("out of range", " <= ", " >= ")) else "invalid"


def _check(report: Report) -> None:
    minute = report.minute
    for field, moment in _moments(report):
        if not EARLIEST_YEAR <= moment.year <= LATEST_YEAR:
            raise refuse("out_of_range", field, f"{moment.isoformat()} is not in {EARLIEST_YEAR}..{LATEST_YEAR}")
    if minute.second or minute.microsecond:
        raise refuse("invalid", "minute", f"{minute.isoformat()} is not the beginning of a minute")
    if len({gpu.index for gpu in report.gpus}) != len(report.gpus):
        raise refuse("invalid", "gpus", "the index of a GPU occurs twice")
    if len({instance.id for instance in report.instances}) != len(report.instances):
        raise refuse("invalid", "instances", "the id of an instance occurs twice")
    listed = report.inventory.gpus if report.inventory else ()
    if len({gpu.index for gpu in listed}) != len(listed) or len({g.uuid for g in listed}) != len(listed):
        raise refuse("invalid", "inventory", "the index or UUID of a GPU occurs twice")
    wrong = find_misnamed(report.instances)
    if wrong:
        raise refuse("invalid", "instances", wrong)
    for interval in report.usage:
        if bool(interval.service) == bool(interval.job):
            raise refuse("invalid", "usage", f"{interval.id} must name either a service or a job")
        if interval.ended_at is not None and interval.ended_at < interval.started_at:
            raise refuse("invalid", "usage", f"{interval.id} ends before it starts")


def _moments(report: Report) -> Iterator[tuple[str, datetime]]:
    yield "at", report.at
    yield "minute", report.minute
    for interval in report.usage:
        yield "usage", interval.started_at
        yield "usage", interval.ended_at or interval.started_at
    for excursion in report.excursions:
        yield "excursions", excursion.since
