"""Counts requests by HAProxy's log lines: totals and a latency histogram, for each copy and each service.

A line is `gw1 PID SERVICE SERVER STATUS TERMINATION ACTIVE_MS QUEUED_MS`, with whole milliseconds, the finest that
HAProxy logs. An error is an answer of 500 and above, or none, unless the caller hung up. The histogram counts all other
answers: a refusal within a millisecond is not a fast answer.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping

from agents.contract.fields import LATENCY_EDGES_MS
from agents.gateway.bursts import BurstMeter
from agents.gateway.desired import HaproxyServer
from agents.gateway.wire import CountedRequests

LONGEST_LINE_BYTES = 1024
KEPT_SECONDS = 900.0  # of a copy that is no longer routed: its agent still asks for its last figures
MOST_GONE_COPIES = 10_000


class RequestTally:
    """The totals of one copy, or of one service."""

    __slots__ = ("counts", "errors", "late", "meter", "requests", "shed", "slo_ms", "timed")

    def __init__(self) -> None:
        self.requests = 0
        self.errors = 0
        self.shed = 0
        self.slo_ms = 0.0
        self.meter: BurstMeter | None = None  # of a service with an SLO
        self.timed = 0
        self.late = 0
        self.counts = [0] * (len(LATENCY_EDGES_MS) + 1)


class Tallies:
    """All totals. Only names that the sidecar knows are counted, so that log lines cannot fill the memory."""

    def __init__(self) -> None:
        self.lines = 0
        self.refused = 0
        self.unknown = 0  # requests for no known service
        self._copies: dict[bytes, RequestTally] = {}
        self._services: dict[bytes, RequestTally] = {}
        self._servers: dict[str, HaproxyServer] = {}
        self._gone_at: dict[str, float] = {}

    def know(
        self,
        servers: Mapping[str, HaproxyServer],
        services: Mapping[str, int],
        now: float,
        slos_ms: Mapping[str, float],
    ) -> None:
        """Takes what is routed now; totals of other copies are kept for a while."""
        for name, server in servers.items():
            self._servers[name] = server
            self._copies.setdefault(name.encode(), RequestTally())
            self._gone_at.pop(name, None)
        for service in services:
            tally = self._services.setdefault(service.encode(), RequestTally())
            slo_ms = slos_ms.get(service, 0.0)
            if slo_ms != tally.slo_ms:
                tally.slo_ms, tally.meter = slo_ms, BurstMeter(slo_ms) if slo_ms else None
        for gone in [service for service in self._services if service.decode() not in services]:
            del self._services[gone]
        for name in [name for name in self._servers if name not in servers]:
            self._gone_at.setdefault(name, now)
        longest_gone = sorted(self._gone_at, key=self._gone_at.__getitem__)
        for at, name in enumerate(longest_gone):
            if now - self._gone_at[name] > KEPT_SECONDS or len(longest_gone) - at > MOST_GONE_COPIES:
                del self._servers[name], self._copies[name.encode()], self._gone_at[name]

    def add(self, line: bytes, now: float = 0.0) -> None:
        """Counts one line, which was read at that moment of any steady clock."""
        self.lines += 1
        parts = line.split(b" ")
        if len(parts) != 8 or parts[0] != b"gw1" or len(line) > LONGEST_LINE_BYTES:
            self.refused += 1
            return
        try:
            status, active_ms = int(parts[4]), int(parts[6])
        except ValueError:
            self.refused += 1
            return
        if not (-1 <= status <= 999 and -1 <= active_ms <= 1 << 31):
            self.refused += 1
            return
        aborted = status <= 0
        failed = status >= 500 or (aborted and not parts[5].startswith(b"C"))
        bucket = -1 if failed or aborted else bisect_left(LATENCY_EDGES_MS, active_ms)
        service = self._services.get(parts[2])
        if service is None:
            self.unknown += 1
            return
        copy = self._copies.get(parts[3])
        for tally in (service, copy) if copy else (service,):
            tally.requests += 1
            tally.errors += failed
            if bucket >= 0:
                tally.counts[bucket] += 1
        if service.meter and now and active_ms >= 0:
            service.meter.arrived(now - active_ms / 1000.0, now)
        if bucket >= 0 and service.slo_ms:
            service.timed += 1
            service.late += active_ms > service.slo_ms
        if status == 503 and parts[5] == b"LR":
            service.shed += 1

    def ended(self) -> dict[str, tuple[int, int]]:
        """Returns by service: requests, and how many of them were turned away."""
        return {service.decode(): (tally.requests, tally.shed) for service, tally in self._services.items()}

    def counted(self, source: str = "") -> tuple[CountedRequests, ...]:
        """Returns the totals of one source's copies, or of all copies and services."""
        found = [
            self._counted(self._copies[name.encode()], server.service, server.source, server.copy)
            for name, server in self._servers.items()
            if source in ("", server.source)
        ]
        if not source:
            found += [self._counted(tally, service.decode()) for service, tally in self._services.items()]
        return tuple(found)

    def _counted(self, tally: RequestTally, service: str, source: str = "", copy: str = "") -> CountedRequests:
        return CountedRequests(
            service,
            tally.requests,
            tally.errors,
            tuple(tally.counts),
            source,
            copy,
            tally.shed,
            0,
            tally.timed,
            tally.late,
            tally.meter.totals() if tally.meter else (),
        )
