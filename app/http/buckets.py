"""Token buckets, one for each caller, bounded in number."""

from __future__ import annotations

import math
import threading
from collections import OrderedDict

from app.problem import HttpProblem


class Buckets:
    """Buckets that allow each key `per_second` acts a second on average and `burst` at once.

    The clock is an argument. At most `keys` buckets are kept; the one untouched for longest goes first, which
    forgives an attacker with that many addresses, but never lets them fill the memory. Any thread may call.
    """

    def __init__(self, per_second: float, burst: float, keys: int = 20_000) -> None:
        self.per_second = per_second
        self.burst = burst
        self._keys = keys
        self._lock = threading.Lock()
        self._levels: OrderedDict[str, tuple[float, float]] = OrderedDict()  # key -> (level, when)

    def take(self, key: str, now: float) -> float:
        """Takes a token and returns 0.0; without a token returns the seconds until there is one."""
        with self._lock:
            level = self._level(key, now)
            if level < 1.0:
                self._store(key, level, now)
                return (1.0 - level) / self.per_second
            self._store(key, level - 1.0, now)
            return 0.0

    def wait(self, key: str, now: float) -> float:
        """Returns what `take` would return, without taking a token."""
        level = self._level(key, now)
        return 0.0 if level >= 1.0 else (1.0 - level) / self.per_second

    @property
    def rate(self) -> str:
        """Returns the rate in words."""
        return f"{self.per_second:g} a second" if self.per_second >= 0.1 else f"{self.per_second * 3600:g} an hour"

    def __len__(self) -> int:
        return len(self._levels)

    def _level(self, key: str, now: float) -> float:
        known = self._levels.get(key)
        if known is None:
            return self.burst
        return min(self.burst, known[0] + (now - known[1]) * self.per_second)

    def _store(self, key: str, level: float, now: float) -> None:
        self._levels[key] = (level, now)
        self._levels.move_to_end(key)
        if len(self._levels) > self._keys:
            self._levels.popitem(last=False)


def too_many(what: str, wait: float, buckets: Buckets) -> HttpProblem:
    """Returns a 429 with the time after which to retry."""
    seconds = max(1, math.ceil(wait))
    window = math.ceil(buckets.burst / buckets.per_second)
    return HttpProblem(
        "rate-limited",
        f"too many {what}; at most {buckets.rate}, {buckets.burst:g} at once",
        headers={
            "Retry-After": str(seconds),
            "RateLimit-Policy": f'"default";q={buckets.burst:g};w={window}',
            "RateLimit": f'"default";r=0;t={seconds}',
        },
    )


def sign_in_buckets(per_hour: float) -> Buckets:
    """Returns buckets that admit so many sign-ins an hour, and a third of them at once."""
    return Buckets(per_hour / 3600, max(1.0, per_hour / 3))
