"""A copy that was taken over cannot keep its node from being heard or managed, whatever it reports."""

from __future__ import annotations

import math
from datetime import UTC, datetime

import msgspec
import pytest

from agents.contract.assignments import AssignedInstance
from agents.contract.reports import InstanceMinute, Report
from agents.keeper.copies import NodeCopy, Stage
from agents.keeper.filler import LONGEST_ID, Filler
from agents.node import reporting
from agents.node.copy_counters import CopyCounters
from agents.node.report_minute import ReportMinute
from agents.prometheus.reading import MOST_LINES
from agents.runtime import Running
from agents.talk.copy_client import TcpCopyClient
from agents.talk.scraping import read_served
from agents.templates.reading import read
from tests.agents.talk.test_copy_client import copy_that, ok, says, says_nothing

NOW = datetime(2026, 1, 1, tzinfo=UTC)
FIGURES = b"requests_total errors_total queue busy_seconds_total sm_count memory_bytes batch_limit".split()
LIES = b"".join(b"gpuwright_serve_%s 1e15\n" % figure for figure in FIGURES) + (
    b"gpuwright_serve_batched_total 1e15\n"
    b"gpuwright_serve_batches_total 1e-300\n"
    b'gpuwright_serve_request_seconds_bucket{le="0.1"} 1e15\n'
)


def taken(minute: InstanceMinute) -> InstanceMinute:
    """As the control plane reads it."""
    text = msgspec.json.encode(Report("node-1", 1, 1, NOW, NOW, instances=(minute,)))
    return msgspec.json.decode(text, type=Report).instances[0]


def copy_at(port: int, name: str = "liar") -> NodeCopy:
    wanted = AssignedInstance(name, 0, "shop", "shop", template="gpuwright-serve", sm_percent=10, memory_gib=1)
    return NodeCopy(
        f"{name}.1.1", wanted, "GPU-0", Stage.READY, port=port, running=Running(f"{name}.1.1", 1, 1, "boot")
    )


def test_case_17_a_report_with_lies_of_a_copy_is_still_taken() -> None:
    served = read_served("gpuwright", LIES)
    assert served is not None
    assert served.batch_mean == math.inf
    minute = InstanceMinute(
        "liar",
        0,
        service="shop",
        requests=served.counters.requests * 2,
        errors=-1,
        latency_counts=served.counters.latency_counts * 100,
        batch_mean=served.batch_mean or 0.0,
        queue_mean=math.nan,
        busy_seconds=served.busy_seconds or 0.0,
        measured={"smCount": float(served.sm_count or 0)},
    )
    limited = taken(reporting.limit_figures(minute))
    assert (limited.requests, limited.errors, limited.batch_mean, limited.queue_mean) == (10**12, 0, 1e12, 0.0)
    honest = InstanceMinute("liar", 0, service="shop", requests=5, latency_counts=(1, 4), measured={"smCount": 8.0})
    assert reporting.limit_figures(honest) == honest


@pytest.mark.parametrize("line", [b"\n", b"gpuwright_serve_queue 1\n"])
def test_a_flood_of_lines_is_cut(line: bytes) -> None:
    served = read_served("gpuwright", line * (MOST_LINES * 5))
    assert served is not None
    assert (served.queue or 0) <= MOST_LINES


def test_a_copy_that_keeps_its_metrics_to_itself_is_left_alone_for_a_while() -> None:
    requests = []

    def says_nothing_long(connection: object, request: bytes) -> None:
        requests.append(request)
        says_nothing(connection, request)  # type: ignore[arg-type]

    with copy_that(says_nothing_long) as silent, copy_that(says(ok(b"gpuwright_serve_queue 3\n"))) as open_port:
        copies = [copy_at(silent), copy_at(open_port, "honest")]
        census, minute = CopyCounters(TcpCopyClient(), Filler(read(), "127.0.0.1"), None), ReportMinute(NOW, {})
        for second in range(20):  # on a GPU near its cap, where all are asked every second
            census.refresh(copies, 1000.0 + second, minute, {"GPU-0"})
        assert len(requests) == 1
        census.refresh(copies, 1000.0 + 100, minute, {"GPU-0"})
        assert len(requests) == 2
        for second in range(101, 130):
            census.refresh(copies, 1000.0 + second, minute, {"GPU-0"})
    assert len(requests) == 2
    honest = census.served("honest.1.1")
    assert honest is not None
    assert honest.queue == 3


def test_an_instance_whose_copies_could_not_be_reported_is_refused() -> None:
    filler = Filler(read(), "127.0.0.1")
    names = ["a" * LONGEST_ID, "b" * (LONGEST_ID + 1)]
    wanted = [AssignedInstance(name, 0, service="shop", template="gpuwright-serve") for name in names]
    assert list(filler.refused(wanted)) == [names[1]]


def test_a_number_of_thousands_of_digits_is_refused_as_an_argument() -> None:
    filler = Filler(read(), "127.0.0.1")
    args = [{"claimGib": 10**5000}, {"steps": 10**400}, {"steps": -(10**5000)}, {"speeds": 10**5000}]
    wanted = [
        AssignedInstance(f"job-{number}", 0, job="job", template="gpuwright-train", args=words)  # type: ignore[arg-type]
        for number, words in enumerate(args)
    ]
    refused = filler.refused(wanted)
    assert {reason for reason, _ in refused.values()} == {"refused_arguments"}
    assert len(refused) == len(args)
