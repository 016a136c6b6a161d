"""The types of fields that messages share, with their limits."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Literal

from msgspec import Meta

CONTRACT = 1


REPORT_SECONDS = 10
LONGEST_NOTICE_SECONDS = 86_400.0  # of a notice of reclaim; a node that goes later is drained by a deadline


ADAPTER_NOT_LOADED = "adapter_not_loaded"  # why a copy that serves lacks a LoRA adapter that is assigned to it


MOST_REPORT_BYTES = 1 << 20  # the server accepts no more


LONGEST_POLL_SECONDS = 60


# Upper edges of the latency histogram in ms: 12 buckets a decade from 0.5 ms, which separates 80 ms from 100 ms. The
# last bucket counts everything above. Trailing zeros may be left out.
LATENCY_EDGES_MS: Sequence[float] = tuple(round(0.5 * 10 ** (step / 12), 4) for step in range(60))


# `(?!\n)`: Python lets `$` match before a last line feed.
Name = Annotated[str, Meta(max_length=63, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$(?!\n)")]


OptionalName = Annotated[str, Meta(max_length=63, pattern=r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?)?$(?!\n)")]


ServiceName = Annotated[
    str,  # tenant/name
    Meta(max_length=127, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?/[a-z0-9]([-a-z0-9]*[a-z0-9])?$(?!\n)"),
]


# For devices, instances and boots, whose names come from elsewhere (NVML, the kernel): printable ASCII, no spaces.
Identifier = Annotated[str, Meta(min_length=1, max_length=100, pattern=r"^[!-~]+$(?!\n)")]


# The same where a report has hundreds: checked by `misnamed`, which caches names already checked.
ReportedName = Annotated[str, Meta(max_length=63, extra_json_schema={"pattern": "^([a-z0-9]([-a-z0-9]*[a-z0-9])?)?$"})]


ReportedId = Annotated[str, Meta(min_length=1, max_length=100, extra_json_schema={"pattern": "^[!-~]+$"})]


Reason = Annotated[str, Meta(max_length=60, pattern=r"^[A-Za-z0-9_.:-]*$(?!\n)")]


Sentence = Annotated[str, Meta(max_length=500, pattern=r"^[^\x00-\x1f\x7f]*$(?!\n)")]


Amount = Annotated[float, Meta(ge=0, le=1e12)]


Percent = Annotated[float, Meta(ge=0, le=100)]


Celsius = Annotated[float, Meta(ge=-100, le=1000)]


Count = Annotated[int, Meta(ge=0, le=1_000_000_000_000)]


Counter = Annotated[int, Meta(ge=0, le=2**63 - 1)]  # a joule counter passes 1e12 mJ within weeks


GpuIndex = Annotated[int, Meta(ge=0, le=1023)]


Moment = Annotated[datetime, Meta(tz=True)]


Address = Annotated[str, Meta(max_length=100, pattern=r"^[!-~]*$(?!\n)")]  # host:port


# The words known here; on the wire they are Reasons, because the other side may know one more.
Health = Literal["ok", "degraded", "failed", "unknown"]


# Stages of a copy, in starting and in stopping.
UP_STAGES = ("routing", "ready")  # gateways send requests to these copies
LEAVING_STAGES = ("draining", "ending")  # these copies still answer, and get no new requests
GATEWAY_BEHIND = "gateway_behind"  # why a copy that is to leave still serves, as its node reports it
