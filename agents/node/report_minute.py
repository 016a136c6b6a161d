"""Sums a minute for reports: every report covers the minute from its beginning, so a lost one loses nothing."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from agents.contract.fields import LATENCY_EDGES_MS
from agents.contract.reports import GpuMinute, InstanceMinute
from agents.keeper.copies import NodeCopy, Stage
from agents.seams.device import GpuReading
from agents.seams.traffic import Counters, Served


@dataclass(slots=True)
class GpuSums:
    """Sums of one GPU's readings within the minute."""

    readings: int = 0
    utilization: float = 0.0
    power: float = 0.0
    power_readings: int = 0
    peak_w: float = 0.0
    last: GpuReading | None = None

    def add(self, reading: GpuReading) -> None:
        self.readings += 1
        self.utilization += reading.utilization_percent or 0.0
        if reading.power_w is not None:
            self.power += reading.power_w
            self.power_readings += 1
            self.peak_w = max(self.peak_w, reading.power_w)
        self.last = reading

    def minute(self, index: int, energy_mj: int) -> GpuMinute:
        last = self.last
        if last is None:
            return GpuMinute(index, health="unknown")
        return GpuMinute(
            index=index,
            utilization_percent=min(100.0, self.utilization / self.readings),
            memory_used_gib=max(0.0, last.memory_used_gib),
            power_mean_w=self.power / self.power_readings if self.power_readings else 0.0,
            power_peak_w=self.peak_w,
            energy_counter_mj=energy_mj,
            temperature_c=last.temperature_c or 0.0,
            sm_clock_mhz=last.sm_clock_mhz or 0.0,
            throttle_reasons=tuple(sorted(last.clock_reasons)),
        )


@dataclass(frozen=True, slots=True)
class CopyTotals:
    """The totals of one copy, and their source."""

    counters: Counters
    source: str = ""  # gateway, server-side
    served: Served | None = None


class ReportMinute:
    """Everything since `began`; counts start from the totals at that time."""

    def __init__(self, began: datetime, totals: Mapping[str, CopyTotals]) -> None:
        self.began = began
        self._zero = dict(totals)
        self._gpus: dict[str, GpuSums] = {}

    def skip(self, copy: str, counters: Counters | None = None, served: Served | None = None) -> None:
        """Leaves out what the copy had counted by then: it belongs to the minutes of an earlier agent."""
        zero = self._zero.get(copy, CopyTotals(Counters()))
        self._zero[copy] = replace(zero, counters=counters or zero.counters, served=served or zero.served)

    def read(self, uuid: str, reading: GpuReading) -> None:
        self._gpus.setdefault(uuid, GpuSums()).add(reading)

    def gpu(self, uuid: str, index: int, energy_mj: int) -> GpuMinute:
        return self._gpus.get(uuid, GpuSums()).minute(index, energy_mj)

    def has_run(self, copy: NodeCopy) -> bool:
        """Returns whether the copy has a process, and that did not wait in host memory for the whole minute."""
        waited = copy.stage is Stage.SWAPPED and copy.ended_at is not None and copy.ended_at < self.began
        return copy.running is not None and not waited

    def instances(
        self, copies: Collection[NodeCopy], index: Mapping[str, int], totals: Mapping[str, CopyTotals]
    ) -> dict[str, InstanceMinute]:
        """Returns one entry for each instance: sums over its copies, other fields from the newest copy."""
        found: dict[str, InstanceMinute] = {}
        for copy in copies:
            if not self.has_run(copy):
                continue
            now = totals.get(copy.id, CopyTotals(Counters()))
            counted = subtract_counters(
                now.counters, self._zero[copy.id].counters if copy.id in self._zero else Counters()
            )
            busy = _busy(now.served) - _busy(self._zero[copy.id].served if copy.id in self._zero else None)
            batches = _batches(now.served) - _batches(self._zero[copy.id].served if copy.id in self._zero else None)
            tokens = _tokens(now.served, self._zero[copy.id].served if copy.id in self._zero else None)
            known = found.get(copy.instance)
            entry = InstanceMinute(
                id=copy.instance,
                gpu=index[copy.gpu],
                tenant=copy.wanted.tenant,
                service=copy.wanted.service,
                job=copy.wanted.job,
                sm_percent=copy.wanted.sm_percent,
                memory_gib=copy.wanted.memory_gib,
                requests=counted.requests + (known.requests if known else 0),
                errors=counted.errors + (known.errors if known else 0),
                latency_counts=add_counts(counted.latency_counts, known.latency_counts if known else ()),
                batch_mean=(now.served.batch_mean if now.served else None) or 0.0,
                queue_mean=(now.served.queue if now.served else None) or 0.0,
                busy_seconds=max(0.0, busy) + (known.busy_seconds if known else 0.0),
                source=now.source,
                steps=(now.served.steps if now.served else None) or 0.0,
                saved_steps=(now.served.saved_steps if now.served else None) or 0.0,
                batches=max(0.0, batches) + (known.batches if known else 0.0),
                tokens_in=tokens[0] + (known.tokens_in if known else 0),
                tokens_out=tokens[1] + (known.tokens_out if known else 0),
                paced=counted.paced + (known.paced if known else 0),
                pace_late=counted.pace_late + (known.pace_late if known else 0),
            )
            found[copy.instance] = entry
        return found


def subtract_counters(now: Counters, then: Counters) -> Counters:
    """Returns what was counted after `then`; a counter that restarted counts from 0."""
    if now.requests < then.requests:
        then = Counters()
    counts = [
        max(0, count - (then.latency_counts[edge] if edge < len(then.latency_counts) else 0))
        for edge, count in enumerate(now.latency_counts)
    ]
    while counts and not counts[-1]:
        counts.pop()
    return Counters(
        now.requests - then.requests,
        max(0, now.errors - then.errors),
        tuple(counts),
        max(0, now.paced - then.paced),
        max(0, now.pace_late - then.pace_late),
    )


def add_counts(first: tuple[int, ...], second: tuple[int, ...]) -> tuple[int, ...]:
    longer, shorter = (first, second) if len(first) >= len(second) else (second, first)
    return tuple(count + (shorter[edge] if edge < len(shorter) else 0) for edge, count in enumerate(longer))


def percentile_ms(counts: tuple[int, ...], percentile: float, edges: Sequence[float]) -> float | None:
    """Returns the latency at a percentile, interpolated within its bucket; None if nothing was counted."""
    total = sum(counts)
    reached, wanted = 0.0, total * percentile / 100
    for edge, count in enumerate(counts):
        if count and reached + count >= wanted:
            if edge >= len(edges):
                return edges[-1]
            below = edges[edge - 1] if edge else 0.0
            return below + (edges[edge] - below) * (wanted - reached) / count
        reached += count
    return None


def count_within(counts: tuple[int, ...], limit_ms: float) -> float:
    """Returns how many of a histogram's counts are within a limit, as if spread evenly in its bucket."""
    edge = bisect_left(LATENCY_EDGES_MS, limit_ms)
    whole = float(sum(counts[:edge]))
    if edge >= len(counts) or edge >= len(LATENCY_EDGES_MS):
        return whole
    below = LATENCY_EDGES_MS[edge - 1] if edge else 0.0
    return whole + counts[edge] * (limit_ms - below) / (LATENCY_EDGES_MS[edge] - below)


def _busy(served: Served | None) -> float:
    return (served.busy_seconds if served else None) or 0.0


def _batches(served: Served | None) -> float:
    return (served.batches if served else None) or 0.0


def _tokens(now: Served | None, then: Served | None) -> tuple[int, int]:
    """Returns the tokens in and out since; a copy that began again counts from 0."""
    if now is None or now.tokens is None:
        return 0, 0
    before = then.tokens if then and then.tokens else None
    if before is None or now.tokens.tokens_out < before.tokens_out:
        return now.tokens.tokens_in, now.tokens.tokens_out
    return max(0, now.tokens.tokens_in - before.tokens_in), now.tokens.tokens_out - before.tokens_out
