"""What failed rests before it is tried again, longer each time."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from agents.contract import AssignedInstance

FIRST_SECONDS = 1.0
LONGEST_SECONDS = 60.0
GOOD_SECONDS = 60.0  # a copy that was ready for so long begins a new count


@dataclass(frozen=True, slots=True)
class Failure:
    """The last failure of an instance, as it was wanted then."""

    instance: AssignedInstance
    count: int
    until: float
    reason: str
    message: str


class Failures:
    """The failures of each instance."""

    def __init__(self) -> None:
        self._of: dict[str, Failure] = {}

    def note(self, instance: AssignedInstance, reason: str, message: str, ready_seconds: float, now: float) -> None:
        known = self._of.get(instance.id)
        count = 1 if known is None or ready_seconds > GOOD_SECONDS else known.count + 1
        rest = min(FIRST_SECONDS * 2 ** (count - 1), LONGEST_SECONDS)
        self._of[instance.id] = Failure(instance, count, now + rest, reason, message)

    def resting(self, wanted: Collection[AssignedInstance], now: float) -> Mapping[str, tuple[str, str]]:
        """Why instances are not tried right now. One that is wanted otherwise than before need not rest."""
        by_id = {instance.id: instance for instance in wanted}
        self._of = {name: failure for name, failure in self._of.items() if by_id.get(name) == failure.instance}
        return {
            name: (failure.reason, f"{failure.message}; failed {failure.count} times")
            for name, failure in self._of.items()
            if now < failure.until
        }
