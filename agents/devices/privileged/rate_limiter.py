"""How many requests, or lines of log, are taken a second: a bucket that fills by itself."""

from __future__ import annotations


class RateLimiter:
    """`most` at once, `per_second` in the long run. Time is the caller's, and never goes back."""

    def __init__(self, most: float, per_second: float) -> None:
        self._most = most
        self._per_second = per_second
        self._left = most
        self._at = 0.0

    def take(self, now: float) -> bool:
        """Whether one more is taken now."""
        self._left = min(self._most, self._left + max(0.0, now - self._at) * self._per_second)
        self._at = now
        if self._left < 1.0:
            return False
        self._left -= 1.0
        return True
