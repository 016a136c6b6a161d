"""Counts requests by HAProxy's log lines: totals and a latency histogram, for each copy and each service.

A line is `gw1 PID SERVICE SERVER STATUS TERMINATION ACTIVE_MS QUEUED_MS TOKENS`, with whole milliseconds, the finest
that HAProxy logs. TOKENS is FIRST_MS:PACE_US:IN:OUT, `-` where no tokens were seen, and missing in an older base. An
error is an answer of 500 and above, or none, unless the caller hung up. The histogram counts all other answers: a
refusal within a millisecond is not a fast answer.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from agents.contract.fields import LATENCY_EDGES_MS
from agents.contract.gateways import LengthTotals, TokenTotals
from agents.gateway.bursts import BurstMeter
from agents.gateway.desired import HaproxyServer
from agents.gateway.wire import CountedRequests

LONGEST_LINE_BYTES = 1024
KEPT_SECONDS = 900.0  # of a copy that is no longer routed: its agent still asks for its last figures
MOST_GONE_COPIES = 10_000
MOST_TOKENS = 10**12  # a total stays there: with more, the control plane would refuse the counts of all services
LoggedTokens = tuple[int, int, int, int]  # milliseconds to the first, microseconds for each other, in, out


@dataclass(frozen=True, slots=True)
class GatewayPromise:
    """The SLO of a service: of whole answers, or with `tpot_ms` of first tokens and of each token after them."""

    slo_ms: float = 0.0
    tpot_ms: float = 0.0


class RequestTally:
    """The totals of one copy, or of one service."""

    __slots__ = (
        "counts", "errors", "late", "lengths", "meter", "pace_late", "paced", "promise", "requests", "shed", "timed",
        "tokens_in", "tokens_out",
    )  # fmt: skip

    def __init__(self) -> None:
        self.requests = 0
        self.errors = 0
        self.shed = 0
        self.promise = GatewayPromise()
        self.meter: BurstMeter | None = None  # of a service with an SLO of whole answers
        self.timed = 0
        self.late = 0
        self.counts = [0] * (len(LATENCY_EDGES_MS) + 1)
        self.tokens_in = self.tokens_out = self.paced = self.pace_late = 0
        self.lengths: LengthTotals | None = None

    def add_tokens(self, tokens: LoggedTokens, tpot_ms: float) -> None:
        """Adds the tokens of an answer, and whether their pace was slower than promised."""
        self.tokens_in = min(MOST_TOKENS, self.tokens_in + tokens[2])
        self.tokens_out = min(MOST_TOKENS, self.tokens_out + tokens[3])
        if tokens[2] and tokens[3]:  # without usage, nothing is known of the prompt
            known = self.lengths or LengthTotals()
            if max(known.tokens_in + tokens[2], known.tokens_out + tokens[3]) <= MOST_TOKENS:
                self.lengths = LengthTotals(
                    known.answers + 1, known.tokens_in + tokens[2], known.tokens_out + tokens[3]
                )
        if tokens[1] >= 0:
            self.paced += 1
            self.pace_late += tokens[1] > 1000 * tpot_ms


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

    def track(
        self,
        servers: Mapping[str, HaproxyServer],
        services: Mapping[str, int],
        now: float,
        promises: Mapping[str, GatewayPromise],
    ) -> None:
        """Begins totals for what is newly routed; those of copies that are not routed any more are kept for a while."""
        for name, server in servers.items():
            self._servers[name] = server
            self._copies.setdefault(name.encode(), RequestTally())
            self._gone_at.pop(name, None)
        for service in services:
            tally = self._services.setdefault(service.encode(), RequestTally())
            promise = promises.get(service, GatewayPromise())
            if promise != tally.promise:
                tally.promise = promise
                tally.meter = BurstMeter(promise.slo_ms) if promise.slo_ms and not promise.tpot_ms else None
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
        if not 8 <= len(parts) <= 9 or parts[0] != b"gw1" or len(line) > LONGEST_LINE_BYTES:
            self.refused += 1
            return
        try:
            status, active_ms, tokens = _figures(parts)
        except ValueError:
            self.refused += 1
            return
        service = self._services.get(parts[2])
        if service is None:
            self.unknown += 1
            return
        aborted = status <= 0
        failed = status >= 500 or (aborted and not parts[5].startswith(b"C"))
        promise = service.promise
        if not promise.tpot_ms:
            tokens = None
        timed_ms = _first_token_ms(tokens, active_ms, promise.tpot_ms) if tokens else active_ms
        bucket = -1 if failed or aborted else bisect_left(LATENCY_EDGES_MS, timed_ms)
        copy = self._copies.get(parts[3])
        for tally in (service, copy) if copy else (service,):
            tally.requests += 1
            tally.errors += failed
            if bucket >= 0:
                tally.counts[bucket] += 1
            if tokens:
                tally.add_tokens(tokens, promise.tpot_ms)
        if service.meter and now and active_ms >= 0:
            service.meter.arrived(now - active_ms / 1000.0, now)
        # Of a language model only completions are promised anything.
        if bucket >= 0 and promise.slo_ms and (tokens or not promise.tpot_ms):
            service.timed += 1
            service.late += timed_ms > promise.slo_ms
        if status == 503 and parts[5] == b"LR":
            service.shed += 1

    def ended(self) -> dict[str, tuple[int, int]]:
        """Returns by service: requests, and how many of them were turned away."""
        return {service.decode(): (tally.requests, tally.shed) for service, tally in self._services.items()}

    def counted(self, source: str = "") -> tuple[CountedRequests, ...]:
        """Returns the totals of one source's copies, or of all copies and services."""
        found = [
            self._sum_up(self._copies[name.encode()], server.service, server.source, server.copy)
            for name, server in self._servers.items()
            if source in ("", server.source)
        ]
        if not source:
            found += [self._sum_up(tally, service.decode()) for service, tally in self._services.items()]
        return tuple(found)

    def _sum_up(self, tally: RequestTally, service: str, source: str = "", copy: str = "") -> CountedRequests:
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
            TokenTotals(tally.tokens_in, tally.tokens_out, tally.paced, tally.pace_late)
            if tally.tokens_in or tally.tokens_out or tally.paced
            else None,
            tally.lengths,
        )


def _figures(parts: Sequence[bytes]) -> tuple[int, int, LoggedTokens | None]:
    """Returns the status, the milliseconds and the tokens of a line; raises ValueError for what cannot be true."""
    status, active_ms = int(parts[4]), int(parts[6])
    if not (-1 <= status <= 999 and -1 <= active_ms <= 1 << 31):
        raise ValueError(parts)
    return status, active_ms, _tokens(parts[8]) if len(parts) == 9 else None


def _tokens(text: bytes) -> LoggedTokens | None:
    """Returns milliseconds to the first token, microseconds a token after it, tokens in and out; -1: not seen.

    Raises ValueError for anything else than four numbers that can be true.
    """
    if text == b"-":
        return None
    first_ms, pace_us, taken, given = map(int, text.split(b":"))
    if not (-1 <= first_ms <= 1 << 31 and -1 <= pace_us <= 1 << 40 and 0 <= taken <= 1 << 31 and 0 <= given <= 1 << 31):
        raise ValueError(text)
    return first_ms, pace_us, taken, given


def _first_token_ms(tokens: LoggedTokens, active_ms: int, tpot_ms: float) -> float:
    """Returns the time to the first token. Of an answer in one piece it is what is left if the others keep the pace."""
    return float(tokens[0]) if tokens[0] >= 0 else max(0.0, active_ms - (tokens[3] - 1) * tpot_ms)
