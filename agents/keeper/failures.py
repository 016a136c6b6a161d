"""Delays the retry of an instance that failed, longer each time."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from agents.contract.assignments import AssignedInstance

FIRST_DELAY_SECONDS = 1.0
LONGEST_DELAY_SECONDS = 60.0
GOOD_SECONDS = 60.0  # after being ready for this long, failures are counted from 1 again


@dataclass(frozen=True, slots=True)
class Failure:
    """The last failure of an instance, and the instance as it was assigned then."""

    instance: AssignedInstance
    count: int
    until: float
    reason: str
    message: str


class Failures:
    """Keeps the last failure of each instance."""

    def __init__(self) -> None:
        self._failures: dict[str, Failure] = {}

    def note(self, instance: AssignedInstance, reason: str, message: str, ready_seconds: float, now: float) -> None:
        """Notes a failure after being ready for so long, and delays the retry."""
        known = self._failures.get(instance.id)
        count = 1 if known is None or ready_seconds > GOOD_SECONDS else known.count + 1
        delay = min(FIRST_DELAY_SECONDS * 2 ** (count - 1), LONGEST_DELAY_SECONDS)
        self._failures[instance.id] = Failure(instance, count, now + delay, reason, message)

    def resting(self, wanted: Collection[AssignedInstance], now: float) -> Mapping[str, tuple[str, str]]:
        """Returns why instances are not retried yet. An instance whose assignment has changed is retried at once."""
        by_id = {instance.id: instance for instance in wanted}
        self._failures = {
            name: failure for name, failure in self._failures.items() if by_id.get(name) == failure.instance
        }
        return {
            name: (failure.reason, f"{failure.message}; failed {failure.count} times")
            for name, failure in self._failures.items()
            if now < failure.until
        }
