"""Computes how a service of a language model keeps each of its two promises: of first tokens, and of their pace."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from app.store.fleet.loads import TokenAnswers
from app.store.fleet.service_hours import histogram_limit


@dataclass(frozen=True, slots=True)
class TokenShares:
    """The shares of answers that kept each promise; None without any answer that counts."""

    first: float | None = None  # of answers and errors: the first token in time
    pace: float | None = None  # of answers with two tokens or more


def count_token_shares(buckets: Iterable[TokenAnswers], ttft_ms: float) -> TokenShares:
    """Returns the shares over all buckets."""
    asked = in_time = paced = late = 0.0
    for bucket in buckets:
        asked += bucket.answers + bucket.errors
        in_time += max(0.0, bucket.answers - _late_first(bucket, ttft_ms))
        paced += bucket.paced
        late += bucket.pace_late
    return TokenShares(in_time / asked if asked > 0 else None, max(0.0, 1 - late / paced) if paced > 0 else None)


def _late_first(bucket: TokenAnswers, ttft_ms: float) -> float:
    """Returns the answers with late first tokens: counted where they were more than those with a slow pace."""
    if bucket.slow > bucket.pace_late:
        return bucket.slow
    edge, part = histogram_limit(ttft_ms)
    above = list(bucket.latency_counts[edge:])
    return min(bucket.slow, sum(above) - part * above[0]) if above else 0.0
