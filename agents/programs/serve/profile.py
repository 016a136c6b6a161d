"""The latency profile that the stub follows: the time of a batch on a share of the SMs."""

from __future__ import annotations

import json
from bisect import bisect_left
from dataclasses import dataclass
from pathlib import Path

Curve = tuple[tuple[float, float], ...]  # ascending points


class ProfileError(Exception):
    """An invalid profile; the message names the fault."""


@dataclass(frozen=True, slots=True)
class StubProfile:
    """Linear between its points and flat beyond them, in SM% and in batch."""

    latency_ms: tuple[tuple[float, Curve], ...] = ()  # batch -> SM% -> ms
    memory_gib: Curve = ()  # batch -> GiB
    start_seconds: float = 0.0

    def exec_seconds(self, batch: int, sm_percent: float) -> float:
        return (
            interpolate(tuple((size, interpolate(curve, sm_percent)) for size, curve in self.latency_ms), batch) / 1000
        )

    def needs_gib(self, batch: int) -> float:
        return interpolate(self.memory_gib, batch)


def interpolate(curve: Curve, x: float) -> float:
    """Returns the curve's value; 0 for a curve without points."""
    if not curve:
        return 0.0
    above = bisect_left(curve, (x,))
    if above == 0:
        return curve[0][1]
    if above == len(curve):
        return curve[-1][1]
    (x0, y0), (x1, y1) = curve[above - 1], curve[above]
    return y0 + (y1 - y0) * (x - x0) / (x1 - x0)


def read_file(path: Path) -> StubProfile:
    """Reads a JSON file with `latencyMs`, `memoryGib` and `startSeconds` as in a Profile; other fields are ignored."""
    try:
        document = json.loads(path.read_text())
    except (OSError, ValueError, RecursionError) as error:
        raise ProfileError(f"{path}: {error}") from error
    if not isinstance(document, dict):
        raise ProfileError(f"{path}: not an object")
    try:
        return _profile(document)
    except ProfileError as error:
        raise ProfileError(f"{path}: {error}") from None


def _profile(document: dict[str, object]) -> StubProfile:
    latency = document.get("latencyMs", {})
    if not isinstance(latency, dict):
        raise ProfileError("latencyMs is not an object of batches")
    curves = [(_number(batch, "batch"), _curve(points, f"latencyMs.{batch}")) for batch, points in latency.items()]
    return StubProfile(
        tuple(sorted(curves)),
        _curve(document.get("memoryGib", {}), "memoryGib"),
        _number(document.get("startSeconds", 0), "startSeconds"),
    )


def read_words(text: str) -> tuple[tuple[float, Curve], ...]:
    """Parses latencies from one word: `1:10=21,100=8;8:22` is batch 1 by SM%, and batch 8 at 22 ms on any share."""
    curves = []
    for part in filter(None, text.split(";")):
        batch, colon, points = part.partition(":")
        pairs = [point.partition("=")[::2] for point in points.split(",")] if "=" in points else [("100", points)]
        if not colon or not all(ms for _, ms in pairs):
            raise ProfileError(f"{part[:40]!r} must be batch:ms or batch:sm=ms,sm=ms")
        curves.append((_number(batch, "batch"), _curve(dict(pairs), f"latency of batch {batch}")))
    return tuple(sorted(curves))


def _curve(points: object, name: str) -> Curve:
    has_spread = isinstance(points, dict) and "mean" in points
    if has_spread or (isinstance(points, int | float) and not isinstance(points, bool)):
        return ((0.0, _number(points, name)),)
    if not isinstance(points, dict):
        raise ProfileError(f"{name} is not an object of numbers")
    return tuple(sorted((_number(x, name), _number(y, name)) for x, y in points.items()))


def _number(value: object, name: str) -> float:
    """Returns the number, or the mean of a value with a spread."""
    if isinstance(value, dict) and "mean" in value:
        value = value["mean"]
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        number = -1.0
    if isinstance(value, bool) or not 0 <= number <= 1e9:
        raise ProfileError(f"{name}: {str(value)[:40]!r} is not a number 0..1e9")
    return number
