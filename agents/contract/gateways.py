"""The messages between the control plane and a gateway that follows it: endpoints, limits and counts."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from agents.contract.fields import (
    LATENCY_EDGES_MS,
    Address,
    Amount,
    Count,
    Counter,
    Identifier,
    Name,
    Percent,
    Sentence,
    ServiceName,
)
from agents.contract.paths import PathsKey, PathTable


class EndpointCopy(Struct, rename="camel", omit_defaults=True, gc=False):
    """One copy of a service, as gateways are to treat it."""

    id: Identifier
    node: Name
    address: Address = ""  # host:port; empty if unknown
    weight: Annotated[float, Meta(gt=0, le=1e12)] = 1.0  # its planned rate
    drained: bool = False  # no new requests
    in_time: Count = 0  # most requests open here at once that it answers within the SLO; 0: unknown
    paths: PathsKey = ""  # that callers may use; a service's callers may use what all its copies admit


class ServiceEndpoints(Struct, rename="camel", omit_defaults=True, gc=False):
    """A service's copies, and how many of its requests a gateway accepts."""

    service: ServiceName  # tenant/name
    copies: Annotated[tuple[EndpointCopy, ...], Meta(max_length=65_536)] = ()
    queue_limit: Count = 0  # requests open at once at one gateway, answered or waiting; 0: no limit
    shed_share: Annotated[float, Meta(ge=0, le=1)] = 0.0  # of its requests, answered 503 at once
    retry_after_seconds: Annotated[int, Meta(ge=1, le=3600)] = 2
    slo_ms: Amount = 0.0  # of the whole answer; with `tpot_ms`, of its first token
    percentile: Percent = 0.0
    tpot_ms: Amount = 0.0  # of each token after the first; 0: no promise of tokens
    by_prefix: bool = False  # requests that begin alike belong on one copy


class Endpoints(Struct, rename="camel", gc=False):
    """All services, as every following gateway is to route them."""

    version: Counter
    services: Annotated[tuple[ServiceEndpoints, ...], Meta(max_length=65_536)] = ()
    paths: PathTable = {}  # of the copies


WINDOWS_A_BLOCK = 16  # whose scatter is measured together: a change that takes longer is no burst
FREE_WINDOWS = WINDOWS_A_BLOCK - 2  # that a straight line through a block's counts leaves free

Total = Annotated[float, Meta(ge=0, le=1e30)]


class WindowTotals(Struct, rename="camel", omit_defaults=True, frozen=True, gc=False):
    """Blocks of windows in which arrivals were counted: sums of each block's variance, mean and mean squared.

    The variance is that around a straight line.
    """

    slos: Annotated[int, Meta(ge=1, le=1000)]  # a window's length
    blocks: Count = 0
    spread: Total = 0.0
    means: Total = 0.0
    squares: Total = 0.0


class TokenTotals(Struct, rename="camel", omit_defaults=True, frozen=True, gc=False):
    """Tokens of answers, and the answers whose pace of tokens was compared with the promise."""

    tokens_in: Count = 0
    tokens_out: Count = 0
    paced: Count = 0  # answers of at least two tokens, of which each was seen
    pace_late: Count = 0  # of those, slower than promised


class LengthTotals(Struct, rename="camel", omit_defaults=True, frozen=True, gc=False):
    """Answers whose tokens in and out are both known, and these tokens."""

    answers: Count = 0
    tokens_in: Count = 0
    tokens_out: Count = 0


class ServiceCounts(Struct, rename="camel", omit_defaults=True, gc=False):
    """A gateway's counts of a service since the gateway began."""

    service: ServiceName
    requests: Count = 0
    errors: Count = 0  # those shed are among them
    shed: Count = 0
    latency_counts: Annotated[tuple[Count, ...], Meta(max_length=len(LATENCY_EDGES_MS) + 1)] = ()  # or to first tokens
    open: Count = 0  # now: received, and not counted in `requests` yet
    timed: Count = 0  # answers compared with the SLO, to the millisecond
    late: Count = 0  # of those, answers later than the SLO
    windows: Annotated[tuple[WindowTotals, ...], Meta(max_length=8)] = ()  # by their length
    tokens: TokenTotals | None = None  # of a service that promises times of tokens
    lengths: LengthTotals | None = None  # of such a service


MOST_LEFT_OUT = 64  # named in one message


class LeftOutRoute(Struct, rename="camel", omit_defaults=True, gc=False):
    """A copy that the gateway does not route to, and why."""

    node: Name
    copy: Identifier
    reason: Sentence


class GatewayCounts(Struct, rename="camel", omit_defaults=True, gc=False):
    """All of a gateway's counts since it began: totals, so that a lost message loses nothing."""

    began: Annotated[str, Meta(min_length=1, max_length=40, pattern=r"^[!-~]+$(?!\n)")]  # new when counting restarts
    sequence: Annotated[int, Meta(ge=0, lt=2**62)]  # orders a gateway's messages, also across restarts
    services: Annotated[tuple[ServiceCounts, ...], Meta(max_length=16_384)] = ()
    lost_lines: Count = 0  # requests that were not counted
    endpoints: Counter = 0  # the version in force; 0: none yet
    left_out: Annotated[tuple[LeftOutRoute, ...], Meta(max_length=MOST_LEFT_OUT)] = ()  # the first
    uncounted: bool = False  # its requests pass where it cannot count them: copies' own counts have them


class CountsTaken(Struct, rename="camel", gc=False):
    """The answer: this gateway's highest known sequence; the gateway continues above it. Other counts were dropped."""

    sequence: int
