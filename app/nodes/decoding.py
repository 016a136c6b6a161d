"""A report's bytes into a report that can be stored: what is wrong with it is said here, and counted."""

from __future__ import annotations

import msgspec

from agents.contract import CONTRACT, Report, misnamed
from app.manifests.faults import ManifestFault
from app.nodes import metrics
from app.problem import HttpProblem

_DECODER = msgspec.json.Decoder(Report)


def decode_report(raw: bytes) -> Report:
    """The report; 422 for anything that must not reach the database."""
    try:
        report = _DECODER.decode(raw)
    except msgspec.ValidationError as error:
        message, _, path = str(error).partition(" - at `$")
        raise refuse(_reason(message), path.strip("`.") or "report", message) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        # NaN and Infinity are no JSON; they get the name of what they are.
        reason = "not_finite" if any(word in raw for word in (b"NaN", b"Infinity")) else "malformed"
        raise refuse(reason, "report", str(error)) from None
    except RecursionError:
        raise refuse("malformed", "report", "nested too deeply") from None
    _check(report)
    return report


def refuse(reason: str, field: str, message: str) -> HttpProblem:
    """The refusal of a whole report, counted."""
    metrics.REFUSED.labels(reason).inc()
    return HttpProblem(
        "invalid",
        f"the report was not kept ({reason}); contract version {CONTRACT} is understood here",
        faults=[ManifestFault(document="report", field=field, message=message)],
    )


def _reason(message: str) -> str:
    return "out_of_range" if any(word in message for word in ("out of range", " <= ", " >= ")) else "invalid"


def _check(report: Report) -> None:
    minute = report.minute
    if minute.second or minute.microsecond:
        raise refuse("invalid", "minute", f"{minute.isoformat()} is not the beginning of a minute")
    if len({gpu.index for gpu in report.gpus}) != len(report.gpus):
        raise refuse("invalid", "gpus", "a GPU's index is there twice")
    if len({instance.id for instance in report.instances}) != len(report.instances):
        raise refuse("invalid", "instances", "an instance's id is there twice")
    told_gpus = report.inventory.gpus if report.inventory else ()
    if len({gpu.index for gpu in told_gpus}) != len(told_gpus) or len({g.uuid for g in told_gpus}) != len(told_gpus):
        raise refuse("invalid", "inventory", "a GPU's index or UUID is there twice")
    wrong = misnamed(report.instances)
    if wrong:
        raise refuse("invalid", "instances", wrong)
    for told in report.usage:
        if bool(told.service) == bool(told.job):
            raise refuse("invalid", "usage", f"{told.id} must name a service or a job, and not both")
        if told.ended_at is not None and told.ended_at < told.started_at:
            raise refuse("invalid", "usage", f"{told.id} ends before it starts")
