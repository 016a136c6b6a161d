"""Limits requests, or lines of log, per second: a token bucket."""

from __future__ import annotations


class RateLimiter:
    """Allows `most` at once and `per_second` on average. The caller passes the time, which never goes back."""

    def __init__(self, most: float, per_second: float) -> None:
        self._most = most
        self._per_second = per_second
        self._tokens = most
        self._at = 0.0

    def take(self, now: float) -> bool:
        """Takes one token; False when none is left."""
        self._tokens = min(self._most, self._tokens + max(0.0, now - self._at) * self._per_second)
        self._at = now
        if self._tokens < 1.0:
            return False
        self._tokens -= 1.0
        return True
