"""States what another risk does to margins and planned rates."""

from __future__ import annotations

from collections.abc import Sequence

from app.control.answer.explain.wording import count, rate
from app.control.answer.whatif.wire import MarginChangeWire, MarginSideWire
from app.control.domain.snapshot import ExpectedLoad, Snapshot

MOST_NAMED = 10  # in a sentence


def compare_margins(before: Snapshot, after: Snapshot) -> list[MarginChangeWire]:
    """Returns the services whose risk differs, those whose rates change most first."""
    found: list[MarginChangeWire] = [
        {"service": name, "before": _side(load), "after": _side(then), "knownHours": load.scores.hours}
        for name, load in before.expected.items()
        if (then := after.expected.get(name)) is not None and then.risk not in (0.0, load.risk)
    ]
    return sorted(found, key=lambda line: (-abs(_more(line)), line["service"]))


def describe_margins(found: Sequence[MarginChangeWire]) -> list[str]:
    """Returns which planned rates change, in a sentence; none where no risk differs."""
    if not found:
        return []
    hours = [line["knownHours"] for line in found]
    known = f"margins are learned from {count(max(hours), 'hour')}" + (" or fewer" if min(hours) < max(hours) else "")
    changed = [line for line in found if _more(line)]
    if not changed:
        return [f"no planned rate changes: {known}, and these ask for none that plans do not have already"]
    words = [
        f"{line['service']} {rate(line['before']['ratePerSecond'])} -> {rate(line['after']['ratePerSecond'])}"
        f" (margin {100 * line['before']['margin']:.3g} -> {100 * line['after']['margin']:.3g} %)"
        for line in changed[:MOST_NAMED]
    ]
    rest = f" and {count(len(changed) - MOST_NAMED, 'more service')}" if len(changed) > MOST_NAMED else ""
    return [f"planned rates that change, a second: {', '.join(words)}{rest}; {known}"]


def _side(load: ExpectedLoad) -> MarginSideWire:
    return {"risk": load.risk, "margin": load.margin, "ratePerSecond": load.rate_per_second}


def _more(line: MarginChangeWire) -> float:
    return line["after"]["ratePerSecond"] - line["before"]["ratePerSecond"]
