"""Measures how bursty a service's arrivals are: by counts in windows of its SLO's length, and of multiples of it."""

from __future__ import annotations

from agents.contract.gateways import FREE_WINDOWS, WINDOWS_A_BLOCK, WindowTotals

SCALES = (1, 4, 16)  # windows, in SLOs
PLACES = tuple(place - (WINDOWS_A_BLOCK - 1) / 2 for place in range(WINDOWS_A_BLOCK))  # of a block, around its middle
PLACE_SQUARES = sum(place * place for place in PLACES)
LATE_SECONDS = 1.0  # a request is known when it is answered: windows stay open for an SLO and this much


class _Scale:
    """Windows of one length, and the totals of their full blocks."""

    __slots__ = ("blocks", "means", "merged", "open", "spread", "squares", "whole", "windows")

    def __init__(self, merged: int) -> None:
        self.merged = merged  # shortest windows that make one of these
        self.open = 0.0
        self.whole = False  # the open window was counted from its beginning
        self.windows: list[float] = []
        self.blocks = 0
        self.spread = self.means = self.squares = 0.0

    def close(self, number: int, count: int) -> None:
        """Takes the count of the shortest window of this number."""
        self.open += count
        if (number + 1) % self.merged:
            return
        if self.whole:
            self.windows.append(self.open)
        self.open, self.whole = 0.0, True
        if len(self.windows) == WINDOWS_A_BLOCK:
            mean = sum(self.windows) / WINDOWS_A_BLOCK
            self.blocks += 1
            self.spread += _scatter(self.windows, mean)
            self.means += mean
            self.squares += mean * mean
            self.windows.clear()


def _scatter(windows: list[float], mean: float) -> float:
    """Returns the variance of a block's counts around a straight line: a rise that lasts for a block is no burst."""
    rise = sum(place * window for place, window in zip(PLACES, windows, strict=True))
    squares = sum((window - mean) ** 2 for window in windows)
    return max(0.0, squares - rise * rise / PLACE_SQUARES) / FREE_WINDOWS


class BurstMeter:
    """Counts the arrivals of one service. A request answered later than an SLO and a second is not counted."""

    __slots__ = ("_counts", "_next", "_scales", "_window_seconds")

    def __init__(self, slo_ms: float) -> None:
        self._window_seconds = slo_ms / 1000.0
        self._counts: dict[int, int] = {}
        self._next = -1  # the first window that is still open
        self._scales = tuple(_Scale(merged) for merged in SCALES)

    def arrived(self, at: float, now: float, count: int = 1) -> None:
        """Counts requests that arrived then, one unless said otherwise; now is later."""
        window = int(at / self._window_seconds)
        until = int((now - LATE_SECONDS) / self._window_seconds) - 1
        if self._next < 0 or until - self._next > WINDOWS_A_BLOCK * SCALES[-1]:  # long silence is no burst
            self._begin(window + 1)  # this window has begun already
        elif window >= self._next:
            self._counts[window] = self._counts.get(window, 0) + count
        if until > self._next:
            self._close(until)

    def _begin(self, window: int) -> None:
        self._next = window
        self._counts.clear()
        for scale in self._scales:
            scale.windows.clear()
            scale.open, scale.whole = 0.0, False

    def _close(self, until: int) -> None:
        """Closes all windows before this one."""
        for number in range(self._next, until):
            count = self._counts.pop(number, 0)
            for scale in self._scales:
                scale.close(number, count)
        self._next = until

    def totals(self) -> tuple[WindowTotals, ...]:
        """Returns what was counted since it began, by scale."""
        return tuple(
            WindowTotals(scale.merged, scale.blocks, scale.spread, scale.means, scale.squares)
            for scale in self._scales
            if scale.blocks
        )
