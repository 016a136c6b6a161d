"""What time it is by an API server: its clock stamps what was written, and ours may differ from it."""

from __future__ import annotations

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

FIRST_YEAR, LAST_YEAR = 1970, 9000


def read_dates(text: str) -> list[datetime]:
    """Returns the moment that an answer's header `Date` names; none where it names none."""
    try:
        found = parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        return []
    return [found if found.tzinfo else found.replace(tzinfo=UTC)]


def read_stamp(text: str) -> datetime | None:
    """Returns the moment of a time in an object, as `2026-01-31T12:00:00Z`; None for one that no clock has.

    Who may change an object may write any time into it, and the last day of the calendar has no next one.
    """
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found.replace(tzinfo=found.tzinfo or UTC) if FIRST_YEAR <= found.year <= LAST_YEAR else None
