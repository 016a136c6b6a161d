"""Limits requests, or lines of log, per second: a token bucket."""

from __future__ import annotations


class RateLimiter:
    """Allows `most` at once and `per_second` on average. The caller passes the time, which never goes back."""

    def __init__(self, most: float, per_second: float) -> None:
        self._most = most
        self._per_second = per_second
        self._left = most
        self._at = 0.0

    def take(self, now: float) -> bool:
        """Takes one token; False when none is left."""
        self._left = min(self._most, self._left + max(0.0, now - self._at) * self._per_second)
        self._at = now
        if self._left < 1.0:
            return False
        self._left -= 1.0
        return True
