"""Makes a report small enough to be sent: what is left out is sent later, or is the least that an operator misses."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from agents.contract.reports import Report, UsageInterval

SHORT_MESSAGE = 80  # characters


def fit(report: Report, most_bytes: int) -> tuple[Report, bytes]:
    """Returns the report, or as much of it as fits, and its JSON.

    Usage that does not fit is repeated until it is acknowledged. Copies are never left out: the control plane would
    take them for gone.
    """
    encoded = msgspec.json.encode(report)
    if len(encoded) <= most_bytes:
        return report, encoded
    bare = msgspec.structs.replace(report, usage=())
    for shorten in (lambda whole: whole, *SHORTER):
        bare = shorten(bare)
        size = len(msgspec.json.encode(bare))
        if size <= most_bytes:
            break
    usage = _first(report.usage, most_bytes - size)
    fitting = msgspec.structs.replace(bare, usage=usage)
    return fitting, msgspec.json.encode(fitting)


def _first(usage: Sequence[UsageInterval], most_bytes: int) -> tuple[UsageInterval, ...]:
    """Returns the first intervals that fit into so many bytes, with the list around them."""
    remaining_bytes = most_bytes - len(b',"usage":[]')
    taken = []
    for interval in usage:
        remaining_bytes -= len(msgspec.json.encode(interval)) + 1
        if remaining_bytes < 0:
            break
        taken.append(interval)
    return tuple(taken)


def _shorten_messages(report: Report) -> Report:
    replace = msgspec.structs.replace
    return replace(
        report,
        copies=tuple(replace(copy, message=copy.message[:SHORT_MESSAGE]) for copy in report.copies),
        held_back=tuple(replace(held, message=held.message[:SHORT_MESSAGE]) for held in report.held_back),
    )


def _drop_settings(report: Report) -> Report:
    replace = msgspec.structs.replace
    instances = (replace(line, requested=None, applied=None, measured=None) for line in report.instances)
    return replace(report, instances=tuple(instances))


def _drop_latencies(report: Report) -> Report:
    instances = (msgspec.structs.replace(line, latency_counts=()) for line in report.instances)
    return msgspec.structs.replace(report, instances=tuple(instances))


def _drop_messages(report: Report) -> Report:
    copies = tuple(msgspec.structs.replace(copy, message="") for copy in report.copies)
    return msgspec.structs.replace(report, copies=copies, held_back=(), excursions=())


def _drop_instances(report: Report) -> Report:
    return msgspec.structs.replace(report, instances=())


SHORTER: Sequence[Callable[[Report], Report]] = (
    _shorten_messages,
    _drop_settings,
    _drop_latencies,
    _drop_messages,
    _drop_instances,
)
