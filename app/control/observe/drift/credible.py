"""Checks the batch times that a server reports against what its node and its gateway counted."""

from __future__ import annotations

from bisect import bisect_left
from math import isfinite

from agents.contract.fields import LATENCY_EDGES_MS
from agents.contract.reports import InstanceMinute
from app.control.observe.drift.predict import Prediction
from app.control.observe.loads.latencies import count_within_at_best

MINUTE_SECONDS = 60.0
OVERRUN_FACTOR = 1.05  # a batch may run over the minute's end, and clocks differ
FEW_BATCHES = 3.0  # by which the counts of requests and batches may differ at the minute's ends
QUICKER_FACTOR = 0.75  # of the reported time: batches differ
MOST_QUICKER_SHARE = 0.5  # of answers
FASTER_SHARE = 0.9  # of the declared time; noise alone is no claim to be faster
SLOWER_FACTOR = 1.25  # times the declared time, which leaves some for the way to the gateway
IDLE_SHARE = 0.5  # of the minute: then so many requests find the server idle
MOST_SLOWER_SHARE = 0.75  # of answers, while it is idle for that long
LEAST_ANSWERS = 50


def is_credible(instance: InstanceMinute, batches: float, prediction: Prediction) -> bool:
    """Returns whether these batches can have taken so long.

    Nothing is busy for longer than time passes; a batch holds no more requests than the server may put together; and
    no answer comes before its batch has ended, so most answers cannot be quicker than a batch. A server that says to
    be much faster than declared, and idle most of the time, answers some requests no slower than declared.
    """
    busy = instance.busy_seconds
    if not (isfinite(busy) and isfinite(batches) and busy > 0 and batches > 0):
        return False
    exec_ms = busy / batches * 1000
    if busy > MINUTE_SECONDS * OVERRUN_FACTOR + exec_ms / 1000:
        return False
    if instance.requests - instance.errors > (batches + FEW_BATCHES) * prediction.batch * OVERRUN_FACTOR:
        return False
    answers = sum(instance.latency_counts)
    if answers < LEAST_ANSWERS:
        return True
    if sum(instance.latency_counts[: bisect_left(LATENCY_EDGES_MS, QUICKER_FACTOR * exec_ms)]) > (
        MOST_QUICKER_SHARE * answers
    ):
        return False
    is_faster = exec_ms < FASTER_SHARE * prediction.exec_ms and busy <= IDLE_SHARE * MINUTE_SECONDS
    late_ms = SLOWER_FACTOR * prediction.exec_ms + prediction.batch_timeout_ms
    surely_slower = answers - count_within_at_best(instance.latency_counts, late_ms)
    return not (is_faster and surely_slower > MOST_SLOWER_SHARE * answers)
