"""Token buckets, one a caller, bounded in number."""

from __future__ import annotations

from collections import OrderedDict


class Buckets:
    """Each key may do `per_second` things a second on average and `burst` at once.

    The clock is an argument. At most `keys` buckets are kept; the one untouched for longest goes first, which
    forgives an attacker with that many addresses, but never lets them fill the memory.
    """

    def __init__(self, per_second: float, burst: float, keys: int = 20_000) -> None:
        self.per_second = per_second
        self.burst = burst
        self._keys = keys
        self._levels: OrderedDict[str, tuple[float, float]] = OrderedDict()  # key -> (level, when)

    def take(self, key: str, now: float) -> float:
        """0.0 and one token less; or, when there is none, the seconds until there is one."""
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
