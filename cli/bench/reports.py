"""Builds the requests of a simulated fleet before the clock runs: node reports as agents send them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec

from agents.contract.fields import LATENCY_EDGES_MS
from agents.contract.reports import GpuFacts, GpuMinute, InstanceMinute, Inventory, Report, UsageInterval

GPUS = 8
INSTANCES = 24
VARIANTS = 40  # different telemetry to choose from, so that no report repeats the previous
USAGE_EVERY = 50  # reports of a node between two changes of what runs there

_encode = msgspec.json.Encoder().encode


def node_name(number: int) -> str:
    return f"bench-{number:05d}"


class ReportSource:
    """Makes the bytes of any node's next report request by putting together prepared parts."""

    def __init__(self, tokens: Sequence[str], host: str, first: int) -> None:
        rng = random.Random(1)  # noqa: S311 (a benchmark, not a secret)
        self._tails = [_tail(rng) for _ in range(VARIANTS)]
        self._heads = [
            f"POST /api/v1/nodes/{node_name(number)}/report HTTP/1.1\r\nHost: {host}\r\n"
            f"Authorization: Bearer {token}\r\nContent-Type: application/json\r\nContent-Length: ".encode()
            for number, token in enumerate(tokens, first)
        ]
        self._polls = [f"Host: {host}\r\nAuthorization: Bearer {token}\r\n\r\n".encode() for token in tokens]
        self._first = first
        self._sequences = [0] * len(tokens)
        self._incarnation = int(datetime.now(UTC).timestamp())

    def __len__(self) -> int:
        return len(self._heads)

    def report(self, number: int, now: datetime, stamp: bytes, minute: bytes) -> bytes:
        """Returns the whole request; `stamp` and `minute` are `now` and its minute, encoded."""
        sequence = self._sequences[number]
        self._sequences[number] = sequence + 1
        extra = b""
        if sequence == 0:
            extra = b'"inventory":' + _encode(_inventory(self._first + number)) + b","
        elif sequence % USAGE_EVERY == number % USAGE_EVERY:
            extra = b'"usage":' + _encode([_interval(self._first + number, sequence, now)]) + b","
        body = b'{"node":"%s","incarnation":%d,"sequence":%d,"at":"%s","minute":"%s",%s%s' % (
            node_name(self._first + number).encode(),
            self._incarnation,
            sequence,
            stamp,
            minute,
            extra,
            self._tails[(number + sequence) % VARIANTS],
        )
        return b"%s%d\r\n\r\n%s" % (self._heads[number], len(body), body)

    def poll(self, number: int, after: int, wait_seconds: int) -> bytes:
        """Returns the whole request for the node's next assignment."""
        return b"GET /api/v1/nodes/%s/assignment?after=%d&waitSeconds=%d HTTP/1.1\r\n%s" % (
            node_name(self._first + number).encode(),
            after,
            wait_seconds,
            self._polls[number],
        )


def stamps(now: datetime) -> tuple[bytes, bytes]:
    """Returns a moment and its minute as reports spell them."""
    text = now.isoformat().replace("+00:00", "Z").encode()
    return text, text[:16] + b":00Z"


def _tail(rng: random.Random) -> bytes:
    """Returns the rest of a report: 8 GPUs and 24 instances."""
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    whole = Report(
        node="n",
        incarnation=0,
        sequence=0,
        at=moment,
        minute=moment,
        boot_id="6f1c2c1e-0f5c-4a87-9a3e-5d1f0c9b7a42",
        epoch=1,
        generation=1,
        assignment_version=1,
        gpus=tuple(_gpu(rng, index) for index in range(GPUS)),
        instances=tuple(_instance(rng, number) for number in range(INSTANCES)),
    )
    encoded = _encode(whole)
    return encoded[encoded.index(b'"bootId"') :]


def _gpu(rng: random.Random, index: int) -> GpuMinute:
    power_w = round(rng.uniform(90, 380), 1)
    return GpuMinute(
        index=index,
        utilization_percent=round(rng.uniform(20, 95), 1),
        memory_used_gib=round(rng.uniform(8, 70), 2),
        power_mean_w=power_w,
        power_peak_w=round(power_w * 1.2, 1),
        energy_counter_mj=rng.randrange(10**11, 10**12),
        temperature_c=round(rng.uniform(40, 80), 1),
        sm_clock_mhz=1410.0,
    )


def _instance(rng: random.Random, number: int) -> InstanceMinute:
    counts = [0] * len(LATENCY_EDGES_MS)
    for _ in range(300):
        counts[min(len(counts) - 1, max(0, int(rng.gauss(24, 4))))] += rng.randrange(1, 9)
    while not counts[-1]:
        counts.pop()
    return InstanceMinute(
        id=f"shop-search-{number:02d}-7c9f4d",
        gpu=number * GPUS // INSTANCES,
        tenant="shop",
        service=f"search-{number:02d}",
        sm_percent=30.0,
        memory_gib=4.5,
        requests=sum(counts),
        errors=rng.randrange(3),
        latency_counts=tuple(counts),
        batch_mean=round(rng.uniform(1, 16), 2),
        queue_mean=round(rng.uniform(0, 4), 2),
        busy_seconds=round(rng.uniform(5, 55), 2),
    )


def _inventory(number: int) -> Inventory:
    gpus = [
        GpuFacts(
            index=index,
            uuid=f"GPU-{number:08x}-0000-4000-8000-{index:012x}",
            gpu_type="bench-80gb",
            memory_gib=80.0,
            address=f"0000:{index + 1:02x}:00.0",
        )
        for index in range(GPUS)
    ]
    return Inventory(gpus=tuple(gpus), templates=("gpuwright-serve",), agent_version="0.1.0")


def _interval(number: int, sequence: int, now: datetime) -> UsageInterval:
    """Returns in turn an instance's start and its end."""
    turn, ends = divmod(sequence // USAGE_EVERY, 2)
    return UsageInterval(
        id=f"{node_name(number)}-{turn}",
        instance=f"shop-search-00-{turn}",
        gpu=0,
        started_at=now,
        ended_at=now if ends else None,
        tenant="shop",
        service="search-00",
        sm_percent=30.0,
        memory_gib=4.5,
        evidence="observed",
    )
