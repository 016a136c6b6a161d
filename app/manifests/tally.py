"""Collects faults: the first thousand in full, the rest as a count."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from app.manifests.faults import ManifestFault, escape, nearest, quote, shown
from app.manifests.model import JSON

MAX_FAULTS = 1_000


class FaultTally:
    """The faults of an input, in the order in which they were found."""

    def __init__(self) -> None:
        self.faults: list[ManifestFault] = []
        self.unreported = 0

    @property
    def count(self) -> int:
        return len(self.faults) + self.unreported

    @property
    def room(self) -> int:
        """Returns how many more faults are reported in full."""
        return MAX_FAULTS - len(self.faults)

    def add(
        self, document: str, field: str, message: str, allowed: str = "", value: JSON = None, meant: str = ""
    ) -> None:
        if self.room > 0:
            self.faults.append(ManifestFault(document, field, message, allowed, shown(value), meant))
        else:
            self.unreported += 1

    def extend(self, faults: Iterable[ManifestFault], counted: int) -> None:
        """Adds faults that were worded elsewhere, out of `counted` faults in all."""
        reported = list(faults)[: self.room]
        self.faults += reported
        self.unreported += max(0, counted - len(reported))

    def unknown(
        self, document: str, prefix: str, mapping: Mapping[str, JSON], known: Sequence[str], ignored: frozenset[str]
    ) -> None:
        """Adds a fault for every unknown field of a mapping."""
        for field, value in mapping.items():
            if field in known or field in ignored:
                continue
            if self.room <= 0:  # wording costs more than counting
                self.unreported += 1
                continue
            message = f"there is no field {quote(field)} here"
            self.add(
                document, prefix + escape(field), message, f"one of {', '.join(known)}", value, nearest(field, known)
            )

    def all(self) -> list[ManifestFault]:
        """Returns the faults, and after them the number of those not reported in full."""
        if not self.unreported:
            return self.faults
        more = "fault was" if self.unreported == 1 else "faults were"
        return [*self.faults, ManifestFault("", "", f"{self.unreported:,} more {more} found")]
