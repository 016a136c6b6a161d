"""Where GPUs are short, planned rates give way: requests that arrive come before those that are only expected."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from app.control.domain.ports import Rivals

LASTING_SECONDS = 60.0  # two cycles: a plan that is new by then has had its chance
GIVING_SECONDS = 1800.0  # after that shortage: what was given up would otherwise be asked for again at once


@dataclass(slots=True)
class Scarcity:
    """Which services give way, and until when. Times are seconds of the database's clock."""

    _short_since: dict[str, float] = field(default_factory=dict)
    _until: dict[str, float] = field(default_factory=dict)

    def find_giving(self, short: Collection[str], rivals: Rivals, now: float) -> Collection[str]:
        """Returns the services that give way now; `short` are those of which the plan leaves arriving load unserved."""
        self._short_since = {name: self._short_since.get(name, now) for name in short}
        lasting = [name for name, since in self._short_since.items() if now - since >= LASTING_SECONDS]
        if lasting:
            self._until |= dict.fromkeys(rivals(lasting), now + GIVING_SECONDS)
        self._until = {name: until for name, until in self._until.items() if until > now}
        return self._until.keys()
